// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// lookAtSupply looks whether the control plane and each pool find the host that the first replacement of their rollouts
// needs. They are rolled out one after another, and each host that is left serves the next.
func lookAtSupply(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	hosts := &infrav1.QuoinHostList{}
	if err := s.Management.List(ctx, hosts); err != nil {
		return "", nil, fmt.Errorf("list the QuoinHosts: %w", err)
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return "", nil, err
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	goals, err := s.goals(ctx)
	if err != nil {
		return "", nil, err
	}
	left, fleet := s.left(machines, goals), s.supply(hosts, machines)
	findings, err := s.judgeHealing(ctx, pools, goals)
	if err != nil {
		return "", nil, err
	}
	if s.ControlPlane != nil && (s.ControlPlane.Spec.Version != s.Version || left[""]) {
		template := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
		object := "QuoinControlPlane " + s.ControlPlane.Name
		why, err := fleet.lacks(ctx, template, "", "", object, s.Version)
		if err != nil {
			return "", nil, err
		}
		if why != "" {
			findings = append(findings, judgeControlPlaneSupply(s.ControlPlane, object, why)...)
		}
	}
	for i := range pools {
		pool := &pools[i]
		goal := s.goal(goals, pool.Name)
		raised := pool.Spec.Template.Spec.Version == goal && !left[pool.Name]
		if ptr.Deref(pool.Spec.Replicas, 1) == 0 || raised || !surges(pool) {
			continue
		}
		object := "MachineDeployment " + pool.Name
		why, err := fleet.lacks(ctx, pool.Spec.Template.Spec.InfrastructureRef, pool.Name,
			pool.Spec.Template.Spec.FailureDomain, object, goal)
		if err != nil {
			return "", nil, err
		}
		if why != "" {
			findings = append(findings, blocks(object, "NoSpareHost", "its rollout begins with a further Machine, and "+why,
				"add a host, or set maxSurge: 0 and maxUnavailable: 1"))
		}
	}
	return fmt.Sprintf("%d QuoinHosts for a control plane and %d MachineDeployments", len(fleet.hosts), len(pools)),
		findings, nil
}

// judgeControlPlaneSupply says what the strategy makes of it that no host is free. One that is not known here may need
// one.
func judgeControlPlaneSupply(of *controlplanev1.QuoinControlPlane, object, why string) []quoinv1.Finding {
	strategy, begins := of.Spec.Rollout.Strategy, "its rollout begins with a further Machine, and "
	few := ptr.Deref(of.Spec.Replicas, 1) < controlplane.FewestToRemoveFirst
	switch {
	case few || strategy == controlplanev1.RolloutStrategySurge:
	case strategy == controlplanev1.RolloutStrategyRemoveFirst:
		return nil
	case strategy == "" || strategy == controlplanev1.RolloutStrategyAuto:
		return []quoinv1.Finding{warns(object, "NoSpareHost", why+", so each member goes before its replacement comes, and "+
			"one failure less is tolerated meanwhile", "add a host")}
	default:
		begins = fmt.Sprintf("nobody here knows what a rollout by strategy %s begins with, and ", strategy)
	}
	return []quoinv1.Finding{blocks(object, "NoSpareHost", begins+why, "add a host")}
}

// left reports of which groups Machines leave.
func (s Subject) left(machines []clusterv1.Machine, goals goals) map[string]bool {
	left := map[string]bool{}
	for i := range machines {
		if of := group(&machines[i]); of != nil {
			left[*of] = left[*of] || s.leaves(&machines[i], goals)
		}
	}
	return left
}

// surges reports whether a rollout of the pool begins with a further Machine.
func surges(pool *clusterv1.MachineDeployment) bool {
	surge, unavailable := bounds(pool)
	return surge > 0 && unavailable == 0
}

// supply is the hosts that there are.
type supply struct {
	s        Subject
	machines []clusterv1.Machine
	hosts    []placement.Host
	taken    []placement.Identity
	// cgroupEnded says that a kubelet of the version has to be told to start on one of the hosts.
	cgroupEnded bool
}

// supply is the hosts, and which of them the Machines have.
func (s Subject) supply(hosts *infrav1.QuoinHostList, machines []clusterv1.Machine) supply {
	ours := map[string]bool{}
	for _, machine := range machines {
		ours[machine.Name] = true
	}
	fleet := supply{s: s, machines: machines}
	for i := range hosts.Items {
		fleet.cgroupEnded = fleet.cgroupEnded ||
			skew.CgroupEnded(placement.CgroupOf(hosts.Items[i].Status.Facts), s.Version) != ""
		fleet.hosts = append(fleet.hosts, placement.HostOf(&hosts.Items[i]))
		if ref := hosts.Items[i].Spec.ConsumerRef; ref != nil && ref.Namespace == s.Cluster.Namespace && ours[ref.Machine] {
			fleet.taken = append(fleet.taken, placement.IdentitiesOf(hosts.Items[i].Status.Facts)...)
		}
	}
	return fleet
}

// lacks says why no host of the failure domain, or of any, is free for a Machine of the group, its template and the
// version; empty when one is, and when the template is not ours.
func (f supply) lacks(
	ctx context.Context, ref clusterv1.ContractVersionedObjectReference, group, domain, object, version string,
) (string, error) {
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return "", nil
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: f.s.Cluster.Namespace, Name: ref.Name}
	switch err := f.s.Management.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("QuoinMachineTemplate %s, of which it is made, is not there", key), nil
	case err != nil:
		return "", fmt.Errorf("read QuoinMachineTemplate %s of %s: %w", key, object, err)
	}
	fails, err := f.failsOnCgroupV1(ctx, group)
	if err != nil {
		return "", err
	}
	request := placement.Request{Namespace: key.Namespace, FailureDomain: domain, Version: version,
		Taken: f.taken, FailCgroupV1: fails, Worker: group != ""}
	if wants := template.Spec.Template.Spec.HostSelector; wants != nil {
		selector, err := metav1.LabelSelectorAsSelector(wants)
		if err != nil {
			return fmt.Sprintf("hostSelector of QuoinMachineTemplate %s cannot be read: %v", key, err), nil
		}
		request.Selector = selector
	}
	result := placement.Select(request, f.hosts)
	if result.Chosen != nil {
		return "", nil
	}
	return result.Message(), nil
}

// failsOnCgroupV1 reports whether a kubelet of the group would not start on those of the hosts that have cgroup v1.
// Neither the bootstrap data of its newest Machine tell it to, after which the next one's are made, nor does the
// configuration that kubeadm gives all kubelets.
func (f supply) failsOnCgroupV1(ctx context.Context, name string) (bool, error) {
	if !f.cgroupEnded {
		return false, nil
	}
	var newest *clusterv1.Machine
	for i := range f.machines {
		machine := &f.machines[i]
		if of := group(machine); of != nil && *of == name && machine.Spec.Bootstrap.DataSecretName != nil &&
			(newest == nil || newest.CreationTimestamp.Before(&machine.CreationTimestamp)) {
			newest = machine
		}
	}
	if newest != nil {
		data := &corev1.Secret{}
		key := client.ObjectKey{Namespace: newest.Namespace, Name: *newest.Spec.Bootstrap.DataSecretName}
		if err := client.IgnoreNotFound(f.s.Management.Get(ctx, key, data)); err != nil {
			return false, fmt.Errorf("read the bootstrap data of Machine %s: %w", newest.Name, err)
		}
		if observed.StartsOnCgroupV1(data.Data["value"]) {
			return false, nil
		}
	}
	return observed.SharedFailsOnCgroupV1(ctx, f.s.Workload), nil
}
