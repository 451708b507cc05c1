// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// observation is what a QuoinMachine's state follows from. Each part is nil when it does not exist.
type observation struct {
	now     time.Time
	steps   steady.Steps
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

func (r *Reconciler) observe(ctx context.Context, quoinMachine *infrav1.QuoinMachine) (*observation, error) {
	v := &observation{now: r.Clock.Now(), steps: steady.StepsOf(r.Clock)}
	machine, err := util.GetOwnerMachine(ctx, r.Client, quoinMachine.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Machine of QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name,
			err)
	}
	v.machine = machine
	if name := clusterName(quoinMachine, machine); name != "" {
		v.cluster, err = util.GetClusterByName(ctx, r.Client, quoinMachine.Namespace, name)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Cluster %s/%s: %w", quoinMachine.Namespace, name, err)
		}
	}
	v.host, err = r.hostOf(ctx, quoinMachine, machine)
	return v, err
}

// hostOf is the host that carries the claim of the QuoinMachine, as the cache has it; nil when there is none.
func (r *Reconciler) hostOf(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine,
) (*infrav1.QuoinHost, error) {
	claimed := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, claimed, client.UnsafeDisableDeepCopy,
		fieldindex.HostsOfQuoinMachine(client.ObjectKeyFromObject(quoinMachine))); err != nil {
		return nil, fmt.Errorf("listing the QuoinHosts of QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name,
			err)
	}
	return find(claimed.Items, quoinMachine, machine), nil
}

func clusterName(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) string {
	if machine != nil {
		return machine.Spec.ClusterName
	}
	return quoinMachine.Labels[clusterv1.ClusterNameLabel]
}

// claimedHost asks the API server for the host that carries the claim of the QuoinMachine. The server selects it,
// because a list of a large fleet for each claim would cost more than all the rest of it.
func (r *Reconciler) claimedHost(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine,
) (*infrav1.QuoinHost, error) {
	hosts := &infrav1.QuoinHostList{}
	consumer := client.MatchingFields{
		infrav1.HostConsumerNamespaceField: quoinMachine.Namespace, infrav1.HostConsumerNameField: quoinMachine.Name,
	}
	if err := r.APIReader.List(ctx, hosts, consumer); err != nil {
		return nil, fmt.Errorf("listing the QuoinHosts of QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name,
			err)
	}
	return find(hosts.Items, quoinMachine, machine), nil
}

// find returns the host that carries the claim.
func find(
	hosts []infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine,
) *infrav1.QuoinHost {
	for i := range hosts {
		if claims(&hosts[i], quoinMachine, machine) {
			return &hosts[i]
		}
	}
	return nil
}

// claims says whether the host carries the claim of the QuoinMachine. Before the provider ID is set, a manager may have
// died between claiming the host and writing it down; the Machine's name and UID tell our claim from one of an earlier
// Machine, and from one that names the QuoinMachine and somebody else's Machine.
func claims(host *infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) bool {
	switch {
	case !host.ClaimedBy(quoinMachine):
		return false
	case quoinMachine.Spec.ProviderID != "":
		return true
	case !placement.NamespaceAccepted(quoinMachine.Spec.HostNamespaces, quoinMachine.Namespace, host.Namespace):
		// Whoever may write a QuoinHost can write any claim into it. It does not bind a QuoinMachine that would not have
		// claimed that host.
		return false
	}
	return machine == nil || host.Serves(machine)
}

// candidates are the hosts as placement sees them.
func candidates(hosts []infrav1.QuoinHost) []placement.Host {
	out := make([]placement.Host, 0, len(hosts))
	for i := range hosts {
		out = append(out, placement.HostOf(&hosts[i]))
	}
	return out
}

// fleet lists the hosts of every namespace, to count why none of them can be claimed. They are the cache's own and not
// to be changed.
func (r *Reconciler) fleet(ctx context.Context) ([]infrav1.QuoinHost, error) {
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	return hosts.Items, nil
}

// free lists the free hosts that the QuoinMachine may have and some more, the candidates of a claim. They are the
// cache's own and not to be changed.
func (r *Reconciler) free(ctx context.Context, quoinMachine *infrav1.QuoinMachine) ([]infrav1.QuoinHost, error) {
	var labels map[string]string
	if quoinMachine.Spec.HostSelector != nil {
		labels = quoinMachine.Spec.HostSelector.MatchLabels
	}
	var all []infrav1.QuoinHost
	for _, namespace := range []string{quoinMachine.Namespace, placement.AnyNamespace} {
		hosts := &infrav1.QuoinHostList{}
		free := fieldindex.FreeHosts(namespace, labels)
		if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy, free); err != nil {
			return nil, fmt.Errorf("listing the free QuoinHosts: %w", err)
		}
		all = append(all, hosts.Items...)
	}
	return all, nil
}

// members counts the hosts that machines of this cluster and role have, by failure domain, and lists what identifies
// the hosts that its machines of either role have. It asks for the hosts of each machine, because a fleet is larger
// than a cluster.
func (r *Reconciler) members(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (map[string]int, []placement.Identity, error) {
	list := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(quoinMachine.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: v.cluster.Name}); err != nil {
		return nil, nil, fmt.Errorf("listing the QuoinMachines of Cluster %s: %w", v.cluster.Name, err)
	}
	_, controlPlane := quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	counts := map[string]int{}
	var taken []placement.Identity
	for i := range list.Items {
		peer := &list.Items[i]
		if peer.Name == quoinMachine.Name {
			continue
		}
		host, err := r.hostOf(ctx, peer, nil)
		if err != nil {
			return nil, nil, err
		}
		if host == nil {
			continue
		}
		taken = append(taken, placement.IdentitiesOf(host)...)
		if _, same := peer.Labels[clusterv1.MachineControlPlaneLabel]; same == controlPlane &&
			peer.DeletionTimestamp.IsZero() {
			counts[host.Spec.FailureDomain]++
		}
	}
	return counts, taken, nil
}

func selectorOf(quoinMachine *infrav1.QuoinMachine) (placement.Request, error) {
	_, controlPlane := quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	request := placement.Request{Namespace: quoinMachine.Namespace, HostNamespaces: quoinMachine.Spec.HostNamespaces,
		Worker: !controlPlane}
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
