// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"

// evict has us drain the node of a Machine that leaves, where Cluster API has gone past that for good: all
// control-plane Machines were deleted at once, or the QuoinMachine was deleted before its turn. It comes before the
// removal of the etcd member, because the kubelet talks to its own API server, which dies with that member; and before
// the hooks of others, who expect a drained node at their point. Nil when there is nothing to evict.
func evict(s facts, machine controlplane.Machine) *controlplane.Step {
	if !machine.Undrained {
		return nil
	}
	return s.depart(machine, controlplane.EvictPods, controlplane.ReasonDrainSkipped,
		"Machine %s is being deleted and Cluster API skipped its drain: evicting the pods of Node %s", machine.Name,
		machine.Node)
}

// deleteNode takes the Node of a Machine away whose host is about to be released, when no other Machine stays: then
// Cluster API will not do it, and the host, which is free again as soon as the Machine is gone, would come back under
// the Node of its former life. It is the only case in which a Node goes before its host.
func deleteNode(s facts, machine controlplane.Machine) *controlplane.Step {
	if !machine.Registered || len(s.active()) > 0 {
		return nil
	}
	step := s.changeOf(machine, controlplane.DeleteNode, controlplane.ReasonLeaving,
		"deleting Node %s of Machine %s, because Cluster API will not while every control-plane Machine is being deleted",
		machine.Node, machine.Name)
	step.Node = machine.Node
	return step
}

// dropNodes deletes Nodes whose Machine is gone and whose kubelet has stopped: what is left of a Machine whose
// finalizer was stripped.
func dropNodes(s facts) *controlplane.Step {
	if len(s.OrphanNodes) == 0 {
		return nil
	}
	step := change(controlplane.DeleteNode, s.ongoing(), controlplane.ReasonOrphanNode,
		"deleting Node %s, whose Machine is gone", s.OrphanNodes[0])
	step.Node = s.OrphanNodes[0]
	return step
}
