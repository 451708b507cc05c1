// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// handOver has the cluster's virtual address leave a host whose Machine is being drained, while its API server still
// answers: with its etcd member that ends, and keepalived would need several seconds to notice. Nothing waits for it,
// and where it cannot be done nothing else is held up. The host is asked once by each manager, and does it once.
func (r *reconciliation) handOver(ctx context.Context) (outcome, error) {
	addresses, err := r.addressesToHandOver(ctx)
	if err != nil || len(addresses) == 0 {
		return ready, err
	}
	op := milestone{"handover", r.host.Spec.ConsumerRef.Claim}
	if r.pace().marked(op) {
		return ready, nil
	}
	ours := r.ownerRecord()
	type answer struct {
		held    bool
		refusal error
	}
	reply, o := call(ctx, r, op, shortCall, func(ctx context.Context, host *infrav1.QuoinHost) (answer, error) {
		held, err := r.controller.Provisioner.HandOver(ctx, host, ours, addresses)
		if answered(err) {
			return answer{refusal: err}, nil
		}
		return answer{held: held}, err
	})
	switch {
	case o.pending:
		return o, nil
	case reply.refusal != nil:
		r.event("Warning", "VirtualAddressNotHandedOver", "Machine %s leaves, and the virtual address of Cluster %s may go "+
			"only when its API server does: %s", r.claim.machine.Name, r.claim.cluster.Name, reply.refusal)
	case reply.held:
		r.event("Normal", "VirtualAddressHandedOver", "the host held the virtual address of Cluster %s and gave it up, "+
			"because Machine %s leaves", r.claim.cluster.Name, r.claim.machine.Name)
	}
	return ready, nil
}

// addressesToHandOver are the virtual addresses that the host is to give up: none unless its Machine is past the hooks
// before its drain, and another one stays that can have them.
func (r *reconciliation) addressesToHandOver(ctx context.Context) ([]netip.Prefix, error) {
	c := r.claim
	if r.paused || r.host.Spec.Maintenance != nil || c.cluster == nil || !c.cluster.DeletionTimestamp.IsZero() ||
		c.machine == nil || c.machine.DeletionTimestamp.IsZero() || !util.IsControlPlaneMachine(c.machine) ||
		heldBeforeDrain(c.machine) {
		return nil, nil
	}
	addresses := virtualAddressesOf(c.quoinCluster)
	if len(addresses) == 0 {
		return nil, nil
	}
	if stays, err := r.controller.anotherStays(ctx, c); err != nil || !stays {
		return nil, err
	}
	return addresses, nil
}

// heldBeforeDrain reports whether a hook still keeps the Machine from being drained.
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
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.cluster.Name},
		client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return false, fmt.Errorf("listing the control-plane Machines of Cluster %s: %w", c.cluster.Name, err)
	}
	for i := range peers.Items {
		peer := &peers.Items[i]
		if peer.Name != c.machine.Name && peer.Status.NodeRef.IsDefined() && (peer.DeletionTimestamp.IsZero() ||
			heldBeforeDrain(peer)) {
			return true, nil
		}
	}
	return false, nil
}

// stopCall bounds the conversation in which a host ends its API server. It is longer than the kubelet may take.
const stopCall = 90 * time.Second

// stopAPIServer has a host end its API server when the control plane asks for it: after the drain, while the etcd
// member beside it still answers. What became of it is said in a condition, which the control plane waits for, for a
// while. A host whose kubelet does not end it is asked once by each manager; anything else that fails is tried again.
func (r *reconciliation) stopAPIServer(ctx context.Context) outcome {
	const condition = infrav1.HostAPIServerStoppedCondition
	if !r.apiServerLeaves() {
		conditions.Delete(r.host, condition)
		return ready
	}
	op := milestone{"stop-api-server", r.host.Spec.ConsumerRef.Claim}
	if conditions.IsTrue(r.host, condition) || r.pace().marked(op) {
		return ready
	}
	if r.host.Spec.Maintenance != nil {
		r.setFalse(condition, infrav1.HostMaintenanceReason, maintenanceNote(r.host, "the API server is not ended"))
		return ready
	}
	r.setFalse(condition, infrav1.HostStepRunningReason, "the API server is being ended")
	ours := r.ownerRecord()
	refusal, o := call(ctx, r, op, stopCall, func(ctx context.Context, host *infrav1.QuoinHost) (*ssh.ExitError, error) {
		err := r.controller.Provisioner.StopAPIServer(ctx, host, ours)
		if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
			return exit, nil
		}
		return nil, err
	})
	switch {
	case o.pending:
		return o
	case refusal != nil:
		r.setFalse(condition, infrav1.HostStepFailedReason, refusal.Error())
		r.event("Warning", "APIServerNotStopped", "QuoinMachine %s leaves the control plane, and its API server serves "+
			"until its etcd member is removed: %s", r.claim.quoinMachine.Name, refusal)
	default:
		r.setTrue(condition, infrav1.HostAPIServerStoppedReason)
		r.event("Normal", infrav1.HostAPIServerStoppedCondition, "the API server has ended, because QuoinMachine %s leaves "+
			"the control plane", r.claim.quoinMachine.Name)
	}
	return ready
}

// apiServerLeaves reports whether the control plane asks for the end of the API server. An annotation that somebody
// copied to a QuoinMachine that lives asks for nothing.
func (r *reconciliation) apiServerLeaves() bool {
	c := r.claim
	if c.quoinMachine == nil || c.cluster != nil && !c.cluster.DeletionTimestamp.IsZero() || c.machine != nil &&
		c.machine.DeletionTimestamp.IsZero() {
		return false
	}
	_, controlPlane := c.quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	_, err := time.Parse(time.RFC3339, c.quoinMachine.Annotations[infrav1.StopAPIServerAnnotation])
	return controlPlane && err == nil
}
