// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// view is what a QuoinMachine's state follows from. Each part is nil when it does not exist.
type view struct {
	now     time.Time
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// host that carries the claim of the QuoinMachine; the cache's own, not to be changed.
	host *infrav1.QuoinHost
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
	claimed := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, claimed, client.UnsafeDisableDeepCopy, fieldindex.HostsOfQuoinMachine(client.ObjectKeyFromObject(quoinMachine))); err != nil {
		return nil, fmt.Errorf("listing the QuoinHosts of QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name, err)
	}
	v.host = find(claimed.Items, quoinMachine, machine)
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

// fleet lists the hosts of every namespace, the candidates of a claim. They are the cache's own and not to be changed: thousands
// are looked at for one that may be claimed, and that one is copied then.
func (r *Reconciler) fleet(ctx context.Context) ([]infrav1.QuoinHost, error) {
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	return hosts.Items, nil
}

// members counts the hosts that machines of this cluster and role have, by failure domain, and lists what identifies the hosts
// that its machines of either role have. It looks at each machine and each host once: in a large fleet, many machines are
// placed in a row.
func (r *Reconciler) members(ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *view, fleet []infrav1.QuoinHost) (map[string]int, []placement.Identity, error) {
	list := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(quoinMachine.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: v.cluster.Name}); err != nil {
		return nil, nil, fmt.Errorf("listing the QuoinMachines of Cluster %s: %w", v.cluster.Name, err)
	}
	_, controlPlane := quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	peers := map[string]*infrav1.QuoinMachine{}
	for i := range list.Items {
		peer := &list.Items[i]
		if peer.Name != quoinMachine.Name {
			peers[peer.Name] = peer
		}
	}
	counts := map[string]int{}
	var taken []placement.Identity
	for i := range fleet {
		host := &fleet[i]
		if ref := host.Spec.ConsumerRef; ref != nil && ref.Namespace == quoinMachine.Namespace {
			peer := peers[ref.Name]
			if peer == nil || !claims(host, peer, nil) {
				continue
			}
			taken = append(taken, placement.IdentitiesOf(host.Status.Facts)...)
			if _, same := peer.Labels[clusterv1.MachineControlPlaneLabel]; same == controlPlane && peer.DeletionTimestamp.IsZero() {
				counts[host.Spec.FailureDomain]++
			}
		}
	}
	return counts, taken, nil
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
	// The waiting ones see the host in their counts of why none is free.
	waiting := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, waiting, client.UnsafeDisableDeepCopy, fieldindex.MachinesAwaitingHost()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinMachines")
		return nil
	}
	requests := make([]ctrl.Request, 0, len(waiting.Items))
	for i := range waiting.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&waiting.Items[i])})
	}
	return requests
}

// placementChanges passes the changes of an unclaimed host that placement looks at. A free host tells its probes every few
// seconds, and hundreds of QuoinMachines may wait for one that fits; a claimed host concerns its consumer alone.
func placementChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*infrav1.QuoinHost)
		now, ok2 := e.ObjectNew.(*infrav1.QuoinHost)
		if !ok1 || !ok2 || before.Spec.ConsumerRef != nil || now.Spec.ConsumerRef != nil {
			return true
		}
		return !reflect.DeepEqual(placement.HostOf(before), placement.HostOf(now))
	}}
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
