// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// handOver has the cluster's virtual address leave a host whose Machine is being drained, while its API server still
// answers: with its etcd member that ends, and keepalived would need several seconds to notice. Nothing waits for it, and where
// it cannot be done nothing else is held up. The host is asked once by each manager, and does it once.
func (t *turn) handOver() (outcome, error) {
	addresses, err := t.addressesToHandOver()
	if err != nil || len(addresses) == 0 {
		return ready, err
	}
	op := "handover " + t.host.Spec.ConsumerRef.Claim
	if t.r.pace.marked(t.key(), op) {
		return ready, nil
	}
	ours := t.ownerRecord()
	type answer struct {
		held    bool
		refusal error
	}
	told, o := exchange(t, op, shortExchange, func(ctx context.Context, host *infrav1.QuoinHost) (answer, error) {
		held, err := t.r.Exchanges.HandOver(ctx, host, ours, addresses)
		if answered(err) {
			return answer{refusal: err}, nil
		}
		return answer{held: held}, err
	})
	switch {
	case o.pending:
		return o, nil
	case told.refusal != nil:
		t.event("Warning", "VirtualAddressNotHandedOver", "Machine %s leaves, and the virtual address of Cluster %s may go only when its API server does: %s",
			t.claim.machine.Name, t.claim.cluster.Name, told.refusal)
	case told.held:
		t.event("Normal", "VirtualAddressHandedOver", "the host held the virtual address of Cluster %s and gave it up, because Machine %s leaves",
			t.claim.cluster.Name, t.claim.machine.Name)
	}
	return ready, nil
}

// addressesToHandOver are the virtual addresses that the host is to give up: none unless its Machine is past the hooks before its drain,
// and another one stays that can have them.
func (t *turn) addressesToHandOver() ([]netip.Prefix, error) {
	c := t.claim
	if t.paused || t.host.Spec.Maintenance != nil || c.cluster == nil || !c.cluster.DeletionTimestamp.IsZero() ||
		c.machine == nil || c.machine.DeletionTimestamp.IsZero() || !util.IsControlPlaneMachine(c.machine) || heldBeforeDrain(c.machine) {
		return nil, nil
	}
	addresses := virtualAddressesOf(c.quoinCluster)
	if len(addresses) == 0 {
		return nil, nil
	}
	if stays, err := t.r.anotherStays(t.ctx, c); err != nil || !stays {
		return nil, err
	}
	return addresses, nil
}

// heldBeforeDrain tells that a hook still keeps the Machine from being drained.
func heldBeforeDrain(machine *clusterv1.Machine) bool {
	for name := range machine.Annotations {
		if strings.HasPrefix(name, clusterv1.PreDrainDeleteHookAnnotationPrefix) {
			return true
		}
	}
	return false
}

// anotherStays says whether another control-plane Machine of the cluster is a node, and is not on its way out as well.
func (r *Reconciler) anotherStays(ctx context.Context, c claim) (bool, error) {
	peers := &clusterv1.MachineList{}
	err := r.Client.List(ctx, peers, client.InNamespace(c.cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return false, fmt.Errorf("listing the control-plane Machines of Cluster %s: %w", c.cluster.Name, err)
	}
	for i := range peers.Items {
		peer := &peers.Items[i]
		if peer.Name != c.machine.Name && peer.Status.NodeRef.IsDefined() && (peer.DeletionTimestamp.IsZero() || heldBeforeDrain(peer)) {
			return true, nil
		}
	}
	return false, nil
}
