// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// domains are the failure domains of control planes, with their hosts.
func (o *Observation) domains() []controlplane.FailureDomain {
	var domains []controlplane.FailureDomain
	for _, domain := range o.Cluster.Status.FailureDomains {
		if ptr.Deref(domain.ControlPlane, false) {
			domains = append(domains, controlplane.FailureDomain{Name: domain.Name, Free: o.freeDomains[domain.Name],
				Pending: o.pendingDomains[domain.Name]})
		}
	}
	return domains
}

// countSpares finds the hosts that a Machine made from the template could claim now, as placement of QuoinMachines
// does.
func (inv *Inventory) countSpares() error {
	hosts := inv.fleet
	inv.freeDomains, inv.pendingDomains = map[string]int{}, map[string]int{}
	if inv.Template == nil {
		// Without it no Machine is made at all, and that is said where one would be.
		inv.Spare = controlplane.Spare{Free: 1}
		return nil
	}
	selector, err := hostSelector(inv.Template)
	if err != nil {
		return err
	}
	accepted, _, err := unstructured.NestedStringSlice(inv.Template.Object, "spec", "template", "spec", "hostNamespaces")
	if err != nil {
		return fmt.Errorf("reading hostNamespaces of %s %s: %w", inv.Template.GetKind(), inv.Template.GetName(), err)
	}
	request := placement.Request{Namespace: inv.ControlPlane.Namespace, HostNamespaces: accepted, Selector: selector,
		Version: inv.ControlPlane.Spec.Version, Taken: placement.Taken(hosts, inv.ClusterQuoinMachines),
		FailCgroupV1: inv.failCgroupV1}
	inv.request = &request
	fleet := make([]placement.Host, 0, len(hosts))
	for i := range hosts {
		fleet = append(fleet, placement.HostOf(&hosts[i]))
	}
	spare := controlplane.Spare{Kind: "hosts of namespace " + inv.ControlPlane.Namespace}
	if !selector.Empty() {
		spare.Kind = "hosts that " + selector.String() + " selects"
	}
	for _, host := range fleet {
		switch {
		case placement.Select(request, []placement.Host{host}).Chosen != nil:
			spare.Free++
			inv.freeDomains[host.FailureDomain]++
		case placement.Pending(request, host):
			spare.Pending++
			inv.pendingDomains[host.FailureDomain]++
		}
	}
	if spare.Free == 0 {
		var reasons []string
		for _, count := range placement.Select(request, fleet).Counts() {
			reasons = append(reasons, fmt.Sprintf("%d %s", count.Hosts, count.Reason))
		}
		spare.Why = strings.Join(reasons, ", ")
	}
	inv.Spare = spare
	inv.countReturning()
	return nil
}

// countReturning finds the hosts that Machines have left for good. Each is reset next, or already.
func (inv *Inventory) countReturning() {
	for name, machine := range inv.Machines {
		infra, host := inv.QuoinMachines[name], inv.Hosts[name]
		if machine.DeletionTimestamp.IsZero() || infra == nil || host == nil || HasHostHook(infra) ||
			HasHook(machine, controlplanev1.PreDrainHookAnnotation) ||
			HasHook(machine, controlplanev1.PreTerminateHookAnnotation) {
			continue
		}
		if free := placement.HostOf(host); placement.Returning(*inv.request, free) {
			inv.Spare.Returning++
			inv.pendingDomains[free.FailureDomain]++
		}
	}
}

// hostless reports whether none of the hosts that are free or will be can be claimed for a Machine: it is bound to a
// failure domain, and those there are gone.
func (inv *Inventory) hostless(machine *clusterv1.Machine) bool {
	domain := machine.Spec.FailureDomain
	return domain != "" && inv.Template != nil && inv.freeDomains[domain]+inv.pendingDomains[domain] == 0
}

// claimedFor reports whether a host carries the claim of the QuoinMachine. A claim is written there before the
// QuoinMachine shows it, and in between the host is not free any more.
func (inv *Inventory) claimedFor(infra *infrav1.QuoinMachine) bool {
	for i := range inv.fleet {
		if inv.fleet[i].ClaimedBy(infra) {
			return true
		}
	}
	return false
}

func hostSelector(template *unstructured.Unstructured) (labels.Selector, error) {
	raw, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec", "hostSelector")
	if err != nil {
		return nil, err
	}
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, selector); err != nil {
		return nil, fmt.Errorf("reading hostSelector of %s %s: %w", template.GetKind(), template.GetName(), err)
	}
	return metav1.LabelSelectorAsSelector(selector)
}
