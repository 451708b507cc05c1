// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// view is what a QuoinMachine's state follows from. Each part is nil when it does not exist.
type view struct {
	now     time.Time
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// host that carries the claim of the QuoinMachine; the cache's own, not to be changed.
	host *infrav1.QuoinHost
	// hosts of every namespace, the candidates of a claim; the cache's own, not to be changed.
	hosts []infrav1.QuoinHost
	// obstacle says why no host was claimed.
	obstacle *obstacle
	// hold says why the host of a QuoinMachine in deletion is not touched yet.
	hold *obstacle
	// candidates counts why no host was chosen, when one was looked for.
	candidates []infrav1.HostCandidates
}

// obstacle keeps a QuoinMachine from its host.
type obstacle struct{ reason, message string }

func (r *Reconciler) observe(ctx context.Context, quoinMachine *infrav1.QuoinMachine) (*view, error) {
	v := &view{now: r.now()}
	machine, err := util.GetOwnerMachine(ctx, r.Client, quoinMachine.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Machine of QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name, err)
	}
	v.machine = machine
	if name := clusterName(quoinMachine, machine); name != "" {
		v.cluster, err = util.GetClusterByName(ctx, r.Client, quoinMachine.Namespace, name)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Cluster %s/%s: %w", quoinMachine.Namespace, name, err)
		}
	}
	hosts := &infrav1.QuoinHostList{}
	// Not copied, because thousands of hosts are looked at for one that may be claimed, and that one is copied then.
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	v.hosts = hosts.Items
	v.host = find(v.hosts, quoinMachine, machine)
	return v, nil
}

func clusterName(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) string {
	if machine != nil {
		return machine.Spec.ClusterName
	}
	return quoinMachine.Labels[clusterv1.ClusterNameLabel]
}

// claimedHost asks the API server for the host that carries the claim of the QuoinMachine. The server selects it, because a
// list of a large fleet for each claim would cost more than all the rest of it.
func (r *Reconciler) claimedHost(ctx context.Context, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) (*infrav1.QuoinHost, error) {
	hosts := &infrav1.QuoinHostList{}
	consumer := client.MatchingFields{
		infrav1.HostConsumerNamespaceField: quoinMachine.Namespace, infrav1.HostConsumerNameField: quoinMachine.Name,
	}
	if err := r.APIReader.List(ctx, hosts, consumer); err != nil {
		return nil, fmt.Errorf("listing the QuoinHosts of QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name, err)
	}
	return find(hosts.Items, quoinMachine, machine), nil
}

// find returns the host that carries the claim.
func find(hosts []infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) *infrav1.QuoinHost {
	for i := range hosts {
		if claims(&hosts[i], quoinMachine, machine) {
			return &hosts[i]
		}
	}
	return nil
}

// claims says whether the host carries the claim of the QuoinMachine. The provider ID names the host; before that is set, a
// manager may have died between claiming the host and writing it down, and the Machine's UID tells our claim from one of an
// earlier Machine.
func claims(host *infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) bool {
	ref := host.Spec.ConsumerRef
	switch {
	case ref == nil || ref.Namespace != quoinMachine.Namespace || ref.Name != quoinMachine.Name:
		return false
	case quoinMachine.Spec.ProviderID != "":
		return quoinMachine.Spec.ProviderID == host.ProviderID()
	}
	return machine == nil || ref.Claim == infrav1.ClaimOf(string(machine.UID))
}

// candidates are the hosts as placement sees them.
func candidates(hosts []infrav1.QuoinHost) []placement.Host {
	out := make([]placement.Host, 0, len(hosts))
	for i := range hosts {
		out = append(out, placement.HostOf(&hosts[i]))
	}
	return out
}

// members counts the hosts that machines of this cluster and role have, by failure domain. It looks at each machine and each
// host once: in a large fleet, many machines are placed in a row.
func (r *Reconciler) members(ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *view) (map[string]int, error) {
	list := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(quoinMachine.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: v.cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing the QuoinMachines of Cluster %s: %w", v.cluster.Name, err)
	}
	_, controlPlane := quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	peers := map[string]*infrav1.QuoinMachine{}
	for i := range list.Items {
		peer := &list.Items[i]
		if _, same := peer.Labels[clusterv1.MachineControlPlaneLabel]; same == controlPlane && peer.DeletionTimestamp.IsZero() && peer.Name != quoinMachine.Name {
			peers[peer.Name] = peer
		}
	}
	counts := map[string]int{}
	for i := range v.hosts {
		host := &v.hosts[i]
		if ref := host.Spec.ConsumerRef; ref != nil && ref.Namespace == quoinMachine.Namespace {
			if peer := peers[ref.Name]; peer != nil && claims(host, peer, nil) {
				counts[host.Spec.FailureDomain]++
			}
		}
	}
	return counts, nil
}

// machinesOfHost maps a host to its consumer and, when it can be claimed, to every QuoinMachine that waits for one.
func (r *Reconciler) machinesOfHost(ctx context.Context, o client.Object) []ctrl.Request {
	host, ok := o.(*infrav1.QuoinHost)
	if !ok {
		return nil
	}
	if ref := host.Spec.ConsumerRef; ref != nil {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}}}
	}
	waiting := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, waiting, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinMachines")
		return nil
	}
	var requests []ctrl.Request
	for i := range waiting.Items {
		m := &waiting.Items[i]
		// The others see the host in their counts of why none is free; a deleting one may have just lost its claim.
		if m.Spec.ProviderID == "" || !m.DeletionTimestamp.IsZero() {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return requests
}

func selectorOf(quoinMachine *infrav1.QuoinMachine) (placement.Request, error) {
	request := placement.Request{Namespace: quoinMachine.Namespace}
	if quoinMachine.Spec.HostSelector == nil {
		return request, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(quoinMachine.Spec.HostSelector)
	if err != nil {
		return request, err
	}
	request.Selector = selector
	return request, nil
}
