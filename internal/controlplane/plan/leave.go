// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"sort"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// leave sees Machines out that are being deleted, by us or by anybody: first its departure is judged and leadership
// moves away, then its drain begins, then its API server goes, then its etcd member, then the host. While one leaves,
// nothing else starts, except the replacement without which it cannot leave.
func leave(s facts) *controlplane.Step {
	deleting := s.deletingMachines()
	for _, machine := range deleting {
		if machine.Hooked() && nothingToGuard(s, machine) {
			return s.depart(machine, controlplane.ReleaseTerminateHook, controlplane.ReasonNothingToGuard,
				"Machine %s holds no etcd member: its host can go", machine.Name)
		}
	}
	// One host after another: the next member goes when the one before is gone for good.
	for _, machine := range deleting {
		if !machine.Hooked() {
			if step := follow(s, deleting); step != nil {
				return step
			}
			return s.waitFor(machine, controlplane.ReasonTerminating, "Machine %s is being deleted: its host is released",
				machine.Name)
		}
	}
	// The first that can go goes, so that one that is kept does not keep the others.
	var kept []*controlplane.Step
	for _, machine := range deleting {
		step := s.next(machine)
		if !step.Waiting() {
			return step
		}
		kept = append(kept, step)
	}
	if len(kept) == 0 {
		return nil
	}
	if step := unblock(s, kept); step != nil {
		return step
	}
	if len(deleting) == 1 {
		if step := ahead(s, deleting[0], kept[0]); step != nil {
			return step
		}
	}
	return kept[0]
}

// follow makes the next Machine while the hosts of those that left are released: of the control plane, they are no part
// any more. Nothing else is begun beside that. A reset takes minutes, and what Cluster API does for a Machine before it
// can have a host need not come after it.
func follow(s facts, deleting []controlplane.Machine) *controlplane.Step {
	for _, machine := range deleting {
		if machine.Hooked() || machine.Joining || s.memberOf(machine) != nil {
			return nil
		}
	}
	step := s.steadyState()
	if step == nil {
		return nil
	}
	switch step.Kind {
	case controlplane.CreateMachine, controlplane.AllowHostClaim, controlplane.UpdateKubeadmConfig,
		controlplane.PrepullAddons, controlplane.RequestBackup:
		return step
	}
	return nil
}

// next is the next step of the departure of the Machine.
func (s facts) next(machine controlplane.Machine) *controlplane.Step {
	if machine.DrainHook {
		return approveDrain(s, machine)
	}
	return finalize(s, machine)
}

// deletingMachines are those that are being deleted and not gone yet. What was begun is ended first, and a member that
// does not work anyway goes before one that does.
func (s facts) deletingMachines() []controlplane.Machine {
	var deleting []controlplane.Machine
	for _, machine := range s.Machines {
		if machine.Deleting && !machine.Gone() {
			deleting = append(deleting, machine)
		}
	}
	rank := func(machine controlplane.Machine) int {
		member := s.memberOf(machine)
		switch {
		case member == nil:
			return 0
		case !machine.DrainHook:
			return 1
		case !member.Healthy:
			return 2
		}
		return 3
	}
	sort.SliceStable(deleting, func(i, j int) bool {
		if a, b := rank(deleting[i]), rank(deleting[j]); a != b {
			return a < b
		}
		if deleting[i].DeletedAt != deleting[j].DeletedAt {
			return deleting[i].DeletedAt < deleting[j].DeletedAt
		}
		return deleting[i].Name < deleting[j].Name
	})
	return deleting
}

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

// approveDrain opens the way out of a Machine when etcd can do without its member: while the kubelet there drains, and
// until the host is released, that member may fail at any moment.
func approveDrain(s facts, machine controlplane.Machine) *controlplane.Step {
	if !s.StackedEtcd {
		return s.depart(machine, controlplane.ReleaseDrainHook, controlplane.ReasonNothingToGuard,
			"Machine %s has no etcd member: its drain can begin", machine.Name)
	}
	if !s.Etcd.Known {
		return etcdUnknown(s, machine)
	}
	member := s.memberOf(machine)
	if member == nil {
		return s.depart(machine, controlplane.ReleaseDrainHook, controlplane.ReasonNothingToGuard,
			"Machine %s has no etcd member: its drain can begin", machine.Name)
	}
	if why := s.keptByUnclaimed(machine); why != "" {
		return s.wait(controlplane.Repair, controlplane.ReasonMemberWithoutMachine,
			"Machine %s is being deleted but kept: %s", machine.Name, why).
			WithMachine(machine.Name)
	}
	// A member that is dead leaves no gap.
	if other := s.onItsWay(machine); other != "" && !s.dead(member) {
		return s.waitFor(machine, controlplane.ReasonOneAtATime,
			"Machine %s is being deleted but kept until Machine %s, which leaves "+
				"now, is gone",
			machine.Name, other)
	}
	verdict := s.mayDepart(machine, s.terms(machine))
	if !verdict.Allowed {
		return replaceFirst(s, machine, verdict)
	}
	if step := handOver(s, machine, s.operationOf(machine), controlplane.ReasonLeaving); step != nil {
		return step
	}
	if verdict.Reason != "" {
		return s.depart(machine, controlplane.ReleaseDrainHook, controlplane.ReasonToleranceLowered,
			"Machine %s is being deleted: its drain can begin, although %s", machine.Name, verdict.Message)
	}
	return s.depart(machine, controlplane.ReleaseDrainHook, controlplane.ReasonLeaving,
		"Machine %s is being deleted: etcd can do without its member, so its drain can begin", machine.Name)
}

func etcdUnknown(s facts, machine controlplane.Machine) *controlplane.Step {
	step := s.waitFor(machine, controlplane.ReasonConnectionDown,
		"Machine %s keeps its host until its etcd member is removed, but etcd cannot be read: %s",
		machine.Name, s.Etcd.Problem)
	if !s.Etcd.Contradicts {
		step.Message += ". If the cluster is lost, delete the Cluster; or remove our hooks from the Machine, and the one " +
			"in spec.lifecycleHooks from its QuoinMachine"
	}
	return step
}

// onItsWay names another Machine whose departure was agreed to and is not over; empty when there is none.
func (s facts) onItsWay(except controlplane.Machine) string {
	for _, machine := range s.Machines {
		if machine.Deleting && !machine.DrainHook && machine.Name != except.Name && s.memberOf(machine) != nil {
			return machine.Name
		}
	}
	return ""
}

// handOver moves leadership away from the Machine's member while all members still work. Only the leader itself can
// hand over: one that does not answer loses its lead by the removal.
func handOver(s facts, machine controlplane.Machine, operation controlplane.Operation,
	reason string) *controlplane.Step {
	member := s.memberOf(machine)
	if member == nil || !member.Leader || !member.Healthy {
		return nil
	}
	next := s.successor(*member)
	if next == nil {
		return nil
	}
	return &controlplane.Step{Kind: controlplane.MoveLeader, Operation: operation, MayProceed: machine.Deleting,
		RecheckAfter: controlplane.RecheckSoon,
		Machine:      machine.Name,
		Member:       member.ID, To: next.ID, Reason: reason,
		Message: fmt.Sprintf("moving etcd leadership from Machine %s to %s", machine.Name, next.Machine)}
}

// finalize leads a Machine whose departure was agreed to from its drain to the release of its host.
func finalize(s facts, machine controlplane.Machine) *controlplane.Step {
	if s.StackedEtcd && !s.Etcd.Known {
		return etcdUnknown(s, machine)
	}
	if step := handOver(s, machine, s.operationOf(machine), controlplane.ReasonLeaving); step != nil {
		return step
	}
	if !machine.AtTermination {
		return s.waitFor(machine, controlplane.ReasonDraining, "Machine %s is being deleted: waiting until it is drained",
			machine.Name)
	}
	if step := evict(s, machine); step != nil {
		return step
	}
	if len(machine.OtherHooks) > 0 {
		return s.waitFor(machine, controlplane.ReasonOtherHooks, "Machine %s is being deleted: waiting for the hooks %s",
			machine.Name, list(machine.OtherHooks))
	}
	member := s.memberOf(machine)
	if member == nil && machine.Node == "" && machine.Joining {
		// The join may add its member after this look, and nobody would remove it.
		return s.waitFor(machine, controlplane.ReasonJoinRuns,
			"Machine %s is being deleted: its host is kept until the bootstrap that "+
				"runs there has ended, "+
				"because it may still add an etcd member", machine.Name)
	}
	if member == nil {
		// A member whose Machine is not known may be the one of this Machine, which never got a Node.
		if step := dropOrphanedMembers(s); step != nil && machine.Node == "" {
			return step
		}
		if step := deleteNode(s, machine); step != nil {
			return step
		}
		return s.depart(machine, controlplane.ReleaseTerminateHook, controlplane.ReasonLeaving,
			"Machine %s has no etcd member any more: its host can go", machine.Name)
	}
	verdict := s.mayRemove(member.ID, s.terms(machine))
	if !verdict.Allowed {
		// It may have been let go while its member looked dead or no host was free. Without a replacement to wait for, what
		// was agreed to is done as long as a quorum is left.
		step := replaceFirst(s, machine, verdict)
		if !step.Waiting() || s.replacementComes() {
			return step
		}
		verdict = s.mayRemove(member.ID, quorum.Terms{Lowered: true, DeadMemberTimeout: s.DeadMemberTimeout})
	}
	if !verdict.Allowed {
		return replaceFirst(s, machine, verdict)
	}
	if step := stopAPIServer(s, machine, member); step != nil {
		return step
	}
	return removeDrained(s, machine, member)
}

// replaceFirst makes a replacement for a Machine that somebody deleted although etcd needs it.
func replaceFirst(s facts, leaver controlplane.Machine, verdict quorum.Verdict) *controlplane.Step {
	held := fmt.Sprintf("Machine %s is being deleted but kept: %s", leaver.Name, verdict.Message)
	if step := beforeAnything(s); step != nil {
		return step
	}
	if member := s.memberOf(leaver); s.wavering(member) {
		return s.waitFor(leaver, controlplane.ReasonQuorum,
			"%s. Its etcd member was healthy less than %s ago and may be back: %s", held, s.DeadMemberTimeout, member.Problem)
	}
	if !s.Initialized || !s.Reachable {
		return s.waitFor(leaver, controlplane.ReasonQuorum, "%s", held)
	}
	if step := reschedule(s); step != nil {
		return step
	}
	for _, machine := range s.active() {
		if problem := s.outage(machine); problem != "" {
			return s.waitFor(leaver, controlplane.ReasonQuorum, "%s; waiting for Machine %s: %s", held, machine.Name,
				s.explained(machine, problem))
		}
	}
	if s.present() > s.Replicas || len(s.active()) >= s.Replicas {
		return s.waitFor(leaver, controlplane.ReasonQuorum, "%s. %s", held, verdict.WayOut)
	}
	for _, member := range s.Etcd.Members {
		if member.Learner || !member.Healthy {
			return s.waitFor(leaver, controlplane.ReasonQuorum, "%s. %s", held, verdict.WayOut)
		}
	}
	if s.Spare.Free == 0 && s.Spare.Pending > 0 {
		return s.waitFor(leaver, controlplane.ReasonNoSpareHost, "%s; %s", held, s.pendingHost())
	}
	if s.Spare.Free == 0 {
		return s.waitFor(leaver, controlplane.ReasonNoSpareHost, "%s; %s", held, s.missingHost(leaver))
	}
	step := join(s, controlplane.ReasonReplacementFirst, held+"; making a replacement")
	if step.Waiting() && step.Machine == "" {
		step.Machine, step.Operation = leaver.Name, s.operationOf(leaver)
	}
	return step
}
