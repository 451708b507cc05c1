// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"sort"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Decide says what happens next. Its rules are asked in order and the first that has something to say is followed, so
// that at most one thing changes at a time and a later rule may rely on what an earlier one made sure of:
//
//   - a Machine that leaves is finished with before anything else starts, so two are never deleted at once;
//   - nothing is replaced before every other Machine works and every etcd member is a healthy voter, so the membership
//     never shrinks by more than the one whose replacement votes already;
//   - there are never more Machines than wanted plus one.
func Decide(s Snapshot) Step {
	for _, rule := range []func(Snapshot) *Step{
		tearDown, leave, refuse, retryInit, begin, sayLoss, reach, remediate, dropStrays, settle, replace, scale, followVersion,
	} {
		if step := rule(s); step != nil {
			return *step
		}
	}
	return Step{Kind: Done}
}

func wait(reason, format string, args ...any) *Step {
	return &Step{Kind: Wait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// tearDown deletes the control plane: after the workers, all Machines at once, without regard for etcd.
func tearDown(s Snapshot) *Step {
	if !s.Deleting {
		if !s.ClusterDeleting {
			return nil
		}
		for _, machine := range s.Machines {
			if machine.Deleting && machine.Hook {
				return &Step{Kind: ReleaseHook, Machine: machine.Name, Reason: ReasonClusterDeleting,
					Message: "the Cluster is being deleted"}
			}
		}
		return wait(ReasonClusterDeleting, "the Cluster is being deleted")
	}
	if s.Workers > 0 {
		return wait(ReasonWorkersFirst, "%d worker Machines go first", s.Workers)
	}
	if len(s.Machines) == 0 {
		return &Step{Kind: RemoveFinalizer, Reason: ReasonControlPlaneGoing, Message: "all Machines are gone"}
	}
	for _, machine := range s.Machines {
		if !machine.Deleting || machine.Hook {
			return &Step{Kind: DeleteAll, Reason: ReasonControlPlaneGoing, Message: "deleting all control-plane Machines"}
		}
	}
	return wait(ReasonMachinesGoing, "%d control-plane Machines are being deleted", len(s.Machines))
}

// leave sees Machines out that are being deleted, by us or by anybody: leadership away at once, the etcd member after
// the drain, then the host. While one leaves, nothing else starts, except the replacement without which it cannot leave.
func leave(s Snapshot) *Step {
	var leavers []Machine
	for _, machine := range s.Machines {
		if machine.Deleting {
			leavers = append(leavers, machine)
		}
	}
	if len(leavers) == 0 {
		return nil
	}
	sort.Slice(leavers, func(i, j int) bool {
		// What was begun is ended first.
		iOut, jOut := s.memberOf(leavers[i]) == nil, s.memberOf(leavers[j]) == nil
		if iOut != jOut {
			return iOut
		}
		if leavers[i].DeletedAt != leavers[j].DeletedAt {
			return leavers[i].DeletedAt < leavers[j].DeletedAt
		}
		return leavers[i].Name < leavers[j].Name
	})
	for _, machine := range leavers {
		if machine.Hook && nothingToGuard(s, machine) {
			return &Step{Kind: ReleaseHook, Machine: machine.Name, Reason: ReasonNothingToGuard,
				Message: fmt.Sprintf("Machine %s holds no etcd member: its host can go", machine.Name)}
		}
	}
	// One host after another: the next member goes when the one before is gone for good.
	for _, machine := range leavers {
		if !machine.Hook {
			return wait(ReasonTerminating, "Machine %s is being deleted: its host is released", machine.Name)
		}
	}
	// The first that can go goes, so that one that is kept does not keep the others.
	var first *Step
	for _, machine := range leavers {
		step := seeOut(s, machine)
		if !step.Waiting() {
			return step
		}
		if first == nil {
			first = step
		}
	}
	return first
}

// nothingToGuard tells that the Machine cannot have an etcd member.
func nothingToGuard(s Snapshot, machine Machine) bool {
	switch {
	case !machine.HostClaimed:
		return true
	case !s.StackedEtcd:
		return machine.AtTermination && len(machine.OtherHooks) == 0
	case !s.Initialized:
		// A cluster whose init ran to its end has data, though nobody has seen its API yet.
		return !machine.Bootstrapped && machine.Node == "" && machine.AtTermination && len(machine.OtherHooks) == 0
	}
	return false
}

func seeOut(s Snapshot, machine Machine) *Step {
	if s.StackedEtcd && !s.Etcd.Known {
		return wait(ReasonConnectionDown, "Machine %s keeps its host until its etcd member is removed, but etcd cannot be "+
			"read: %s. If the cluster is lost, remove the pre-terminate hook annotation from the Machine", machine.Name, s.Etcd.Problem)
	}
	member := s.memberOf(machine)
	// Only the leader itself can hand over. One that does not answer loses its lead by the removal.
	if member != nil && member.Leader && member.Healthy {
		if next := s.successor(*member); next != nil {
			return &Step{Kind: MoveLeader, Machine: machine.Name, Member: member.ID, To: next.ID, Reason: ReasonLeaving,
				Message: fmt.Sprintf("moving etcd leadership from Machine %s to %s", machine.Name, next.Machine)}
		}
	}
	if !machine.AtTermination {
		return wait(ReasonDraining, "Machine %s is being deleted: waiting until it is drained", machine.Name)
	}
	if len(machine.OtherHooks) > 0 {
		return wait(ReasonOtherHooks, "Machine %s is being deleted: waiting for the hooks %s", machine.Name, list(machine.OtherHooks))
	}
	if member == nil && machine.Node == "" && machine.Joining {
		// The join may add its member after this look, and nobody would remove it.
		return wait(ReasonJoinRuns, "Machine %s is being deleted: its host is kept until the bootstrap that runs there has ended, "+
			"because it may still add an etcd member", machine.Name)
	}
	if member == nil {
		// A member whose Machine is not known may be the one of this Machine, which never got a Node.
		if step := dropStrays(s); step != nil && machine.Node == "" {
			return step
		}
		return &Step{Kind: ReleaseHook, Machine: machine.Name, Reason: ReasonLeaving,
			Message: fmt.Sprintf("Machine %s has no etcd member any more: its host can go", machine.Name)}
	}
	verdict := s.mayRemove(member.ID)
	if verdict.Allowed {
		return &Step{Kind: RemoveEtcdMember, Machine: machine.Name, Member: member.ID, Reason: ReasonLeaving,
			Message: fmt.Sprintf("removing the etcd member of Machine %s, which is drained", machine.Name)}
	}
	return replaceFirst(s, machine, verdict)
}

// replaceFirst makes a replacement for a Machine that somebody deleted although etcd needs it.
func replaceFirst(s Snapshot, leaver Machine, verdict quorum.Verdict) *Step {
	held := fmt.Sprintf("Machine %s is being deleted but kept: %s", leaver.Name, verdict.Message)
	if step := refuse(s); step != nil {
		return step
	}
	if !s.Initialized || !s.Reachable || len(s.Machines) > s.Replicas || len(s.active()) >= s.Replicas {
		return wait(ReasonQuorum, "%s", held)
	}
	for _, machine := range s.active() {
		if problem := s.outage(machine); problem != "" {
			return wait(ReasonQuorum, "%s; waiting for Machine %s: %s", held, machine.Name, problem)
		}
	}
	for _, member := range s.Etcd.Members {
		if member.Learner || !member.Healthy {
			return wait(ReasonQuorum, "%s", held)
		}
	}
	return join(s, ReasonReplacementFirst, held+"; making a replacement")
}

// refuse stops what must never be done, whatever the state. Machines that never joined do not count for the version:
// a version that was mistyped can be taken back.
func refuse(s Snapshot) *Step {
	for _, machine := range s.Machines {
		if !s.Initialized || !machine.HostClaimed || s.Etcd.Known && s.neverJoined(machine) {
			continue
		}
		if err := skew.ControlPlaneStep(machine.Version, s.Version); err != nil {
			return &Step{Kind: Refuse, Reason: ReasonVersionSkew, Message: err.Error()}
		}
	}
	if _, err := skew.Parse(s.Version); err != nil {
		return &Step{Kind: Refuse, Reason: ReasonVersionSkew, Message: err.Error()}
	}
	if s.Replicas < 1 && len(s.Machines) > 0 {
		return &Step{Kind: Refuse, Reason: ReasonReplicas,
			Message: "spec.replicas is 0, which would lose the cluster's data: set it to 1 or more, or delete the Cluster"}
	}
	if s.StackedEtcd && s.Replicas > 0 && s.Replicas%2 == 0 {
		return &Step{Kind: Refuse, Reason: ReasonReplicas, Message: fmt.Sprintf(
			"spec.replicas is %d, but etcd on the control plane needs an odd number of members: set %d or %d",
			s.Replicas, s.Replicas-1, s.Replicas+1)}
	}
	return nil
}

// begin makes the first Machine and waits for it.
func begin(s Snapshot) *Step {
	if len(s.Machines) == 0 {
		switch {
		case s.Replicas == 0:
			return &Step{Kind: Done}
		case s.Initialized:
			return &Step{Kind: Refuse, Reason: ReasonMachinesLost, Message: "all Machines of the control plane are gone, and with " +
				"them the cluster's data: a new kubeadm init would hide that. Delete the Cluster and make it again, from a backup of etcd"}
		case !s.Certificates:
			return wait(ReasonCertificates, "waiting for the cluster's certificates")
		}
		return &Step{Kind: CreateInit, Reason: ReasonScaleUp, Message: "making the first control-plane Machine"}
	}
	if s.Initialized {
		return nil
	}
	for _, machine := range s.active() {
		// Without a host it holds nothing: an edit that corrects a mistake takes effect at once. With one, kubeadm init
		// may have made a cluster, and after a move of the objects that is not known until its API has been read.
		if !machine.UpToDate && !machine.HostClaimed {
			return &Step{Kind: DeleteMachine, Machine: machine.Name, Reason: ReasonReplaced,
				Message: fmt.Sprintf("Machine %s is outdated and has no host yet", machine.Name)}
		}
	}
	machine := s.Machines[0]
	message := "waiting for kubeadm init on Machine " + machine.Name
	if machine.Problem != "" {
		message += ": " + machine.Problem
	}
	if !machine.UpToDate {
		message += ". It was made from an earlier spec: delete it to start over with the present one"
	}
	return wait(ReasonInitializing, "%s", message)
}

// reach makes sure that later rules know what they decide about.
func reach(s Snapshot) *Step {
	if !s.Reachable {
		return wait(ReasonConnectionDown, "the workload cluster's API does not answer")
	}
	if s.StackedEtcd && !s.Etcd.Known {
		return wait(ReasonConnectionDown, "etcd cannot be read: %s", s.Etcd.Problem)
	}
	return nil
}

// dropStrays removes members whose Machine is gone, such as the learner of a join that failed. They count for the quorum,
// or will.
func dropStrays(s Snapshot) *Step {
	if !s.StackedEtcd {
		return nil
	}
	if strays := s.strays(); len(strays) > 0 {
		member := strays[0]
		for _, machine := range s.active() {
			if machine.Node == "" {
				return wait(ReasonMachineNotReady, "an etcd member (%x) may belong to Machine %s, which has no Node yet: %s",
					member.ID, machine.Name, s.shortcoming(machine))
			}
		}
		if verdict := s.mayRemove(member.ID); !verdict.Allowed {
			return wait(ReasonQuorum, "etcd member %x (%s) has no Machine but cannot be removed: %s", member.ID, member.Name, verdict.Message)
		}
		return &Step{Kind: RemoveEtcdMember, Member: member.ID, Reason: ReasonStrayMember,
			Message: fmt.Sprintf("removing etcd member %x (%s), whose Machine is gone", member.ID, member.Name)}
	}
	return nil
}
