// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// nothingToGuard reports whether the Machine cannot have an etcd member.
func nothingToGuard(s facts, machine controlplane.Machine) bool {
	switch {
	case !machine.HostClaimed:
		return true
	case !s.StackedEtcd:
		return machine.AtTermination && len(machine.OtherHooks) == 0 && !machine.Undrained && deleteNode(s, machine) == nil
	case !s.Initialized:
		// A cluster whose init ran to its end has data, though nobody has seen its API yet.
		return !machine.Bootstrapped && machine.Node == "" && machine.AtTermination && len(machine.OtherHooks) == 0
	}
	return false
}

// finalize leads a Machine whose drain was approved from its drain to the release of its host.
func finalize(s facts, machine controlplane.Machine) *controlplane.Step {
	if s.StackedEtcd && !s.Etcd.Known {
		return etcdUnknown(s, machine)
	}
	if step := handOver(s, machine, s.operationOf(machine), controlplane.ReasonLeaving); step != nil {
		return step
	}
	if !machine.AtTermination {
		return s.waitFor(machine, controlplane.ReasonDraining, "Machine %s is being deleted: waiting until it is drained; "+
			"its condition Deleting says what keeps it, and spec.deletion.nodeDrainTimeoutSeconds bounds that", machine.Name)
	}
	if step := evict(s, machine); step != nil {
		return step
	}
	if len(machine.OtherHooks) > 0 {
		return s.waitFor(machine, controlplane.ReasonOtherHooks, "Machine %s is being deleted: waiting for the hooks %s, "+
			"which whoever set them takes off, or you", machine.Name, list(machine.OtherHooks))
	}
	member := s.memberOf(machine)
	if s.memberState(machine) == quorum.MemberJoining {
		// The join may add its member after this observation, also when its Node is there, and nobody would remove it.
		return s.waitFor(machine, controlplane.ReasonJoinRuns,
			"Machine %s is being deleted: its host is kept until the bootstrap there has been stopped, because it may still "+
				"add an etcd member. A host that does not answer is waited for an hour; one that answers and cannot be made to "+
				"stop it has to be repaired, or powered off. If it does not run any more, annotate its QuoinHost with "+
				"quoin.cluster.x-k8s.io/abandon=<its provider ID>", machine.Name)
	}
	if member == nil {
		// A member whose Machine is not known may be the one of this Machine.
		if step := dropOrphanedMembers(s); step != nil {
			return step
		}
		if step := unconfirmed(s, machine); step != nil {
			return step
		}
		if step := deleteNode(s, machine); step != nil {
			return step
		}
		return s.depart(machine, controlplane.ReleaseTerminateHook, controlplane.ReasonLeaving,
			"Machine %s has no etcd member any more: its host can go", machine.Name)
	}
	if why := s.keptByUnclaimed(machine); why != "" {
		return s.wait(controlplane.Repair, controlplane.ReasonMemberWithoutMachine,
			"Machine %s is drained, but its etcd member stays: %s", machine.Name, why).WithMachine(machine.Name)
	}
	if step := dropGivenUp(s, member); step != nil {
		return step
	}
	verdict := s.mayRemove(member.ID, s.terms(machine))
	if !verdict.Allowed {
		// It may have been let go while its member looked dead or no host was free. Without a replacement to wait for, what
		// was approved is done as long as a quorum is left.
		step := replaceFirst(s, machine, verdict)
		if !step.Waiting() || s.replacementComes() {
			return step
		}
		verdict = s.mayRemove(member.ID, quorum.ByQuorumAlone(s.DeadMemberTimeout))
	}
	if !verdict.Allowed {
		return replaceFirst(s, machine, verdict)
	}
	if step := stopAPIServer(s, machine, member); step != nil {
		return step
	}
	return removeDrained(s, machine, member)
}

// stopAPIServer has the API server of a Machine leave before its etcd member does. Without a member it would hang, with
// every connection that clients hold to it, until its host is reset; and it can take itself out of the Service
// kubernetes only while etcd answers it. Nil when nothing has to be done or awaited: also when the member is dead, for
// then it hangs already.
func stopAPIServer(s facts, machine controlplane.Machine, member *quorum.Member) *controlplane.Step {
	if s.stateOf(*member) == quorum.MemberDead {
		return nil
	}
	switch machine.APIServer {
	case controlplane.APIServerServing:
		return s.depart(machine, controlplane.StopAPIServer, controlplane.ReasonLeaving,
			"having the API server of Machine %s leave before its etcd member, without which it would hang", machine.Name)
	case controlplane.APIServerLeaving:
		return s.waitFor(machine, controlplane.ReasonAPIServerLeaves,
			"Machine %s is being deleted: waiting until its API server has left, for minutes at most", machine.Name)
	}
	return nil
}

// removeDrained removes the member of a Machine that has nothing more to do.
func removeDrained(s facts, machine controlplane.Machine, member *quorum.Member) *controlplane.Step {
	step := s.depart(machine, controlplane.RemoveEtcdMember, controlplane.ReasonLeaving,
		"removing the etcd member of Machine %s, which is drained", machine.Name)
	step.Member, step.RecheckAfter = member.ID, controlplane.RecheckSoon
	if machine.APIServer == controlplane.APIServerStays {
		step.Reason = controlplane.ReasonAPIServerStays
		step.Message += fmt.Sprintf(", although its API server has not left: %s. Clients that are connected to it may hang "+
			"until its host is reset", machine.APIServerProblem)
	}
	return step
}

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
