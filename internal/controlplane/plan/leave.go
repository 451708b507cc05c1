// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// leave leads Machines out that are being deleted, by us or by anybody: first its departure is judged and leadership
// moves away, then its drain begins, then its API server goes, then its etcd member, then the host. While one leaves,
// nothing else starts, except the replacement without which it cannot leave, and what may go on beside the release of
// a host.
func leave(s facts) *controlplane.Step {
	deleting := s.deletingMachines()
	for _, machine := range deleting {
		if machine.Hooked() && nothingToGuard(s, machine) {
			return s.depart(machine, controlplane.ReleaseTerminateHook, controlplane.ReasonNothingToGuard,
				"Machine %s holds no etcd member: its host can go", machine.Name)
		}
	}
	// One host after another: the next member that votes goes when the one before is gone for good, which no time that
	// passes tells. A host has bounds of its own: so many resets, and what its policy for silence says.
	for _, machine := range deleting {
		if !machine.Hooked() {
			return besideRelease(s, deleting, s.waitFor(machine, controlplane.ReasonTerminating, "Machine %s is being deleted: "+
				"its host is released; condition Ready of its QuoinMachine says what that waits for", machine.Name))
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
		if step := preCreateWhileDraining(s, deleting[0], kept[0]); step != nil {
			return step
		}
	}
	return kept[0]
}

// besideRelease is what goes on while the hosts of those that left are released: of the control plane, they are no part
// any more, and a host may never be released. A reset takes minutes, and what Cluster API does for a Machine before it
// can have a host need not come after it, so the next Machine is made, and one that holds nothing makes room for it.
// What is ill and casts no vote goes, and so does what somebody deleted of that kind: it leaves no gap in etcd, whoever
// may come back. Else wait is the step, and says what those wait for.
func besideRelease(s facts, deleting []controlplane.Machine, wait *controlplane.Step) *controlplane.Step {
	left, held := true, true
	for _, machine := range deleting {
		switch {
		case machine.Hooked():
			left, held = false, held && (machine.DrainHook || machine.AtTermination)
		case machine.Joining || s.memberOf(machine) != nil:
			return wait
		}
	}
	if s.StackedEtcd && s.Etcd.Known {
		for _, machine := range deleting {
			if !machine.Hooked() || s.mayVote(machine) {
				continue
			}
			step := s.next(machine)
			if step.MayProceed {
				return step
			}
			wait.Message += ". " + step.Message
		}
		if held {
			if step := dropIll(s); step != nil {
				return step
			}
			if step := s.awaitElection(s.remediateBy(s.castsNoVote), ""); step != nil && step.Waiting() {
				wait.Message += ". " + step.Message
			}
		}
	}
	if !left {
		if held {
			return cmp.Or(s.replacementOfKept(deleting), wait)
		}
		return wait
	}
	step := s.steadyState()
	if step == nil {
		return wait
	}
	switch step.Kind {
	case controlplane.CreateMachine, controlplane.AllowHostClaim, controlplane.UpdateKubeadmConfig,
		controlplane.PrepullAddons, controlplane.RequestBackup:
		return step
	case controlplane.DeleteMachine:
		if s.idle(step.Machine) {
			return step
		}
	}
	return wait
}

// replacementOfKept makes what a Machine waits for that is kept before its drain or behind it; nil when it waits for
// something else. What holds nothing makes room for it.
func (s facts) replacementOfKept(deleting []controlplane.Machine) *controlplane.Step {
	for _, machine := range deleting {
		switch step := s.next(machine); {
		case step.Joins(), step.Kind == controlplane.UpdateKubeadmConfig, step.Kind == controlplane.PrepullAddons,
			step.Kind == controlplane.DeleteMachine:
			return step
		}
	}
	return nil
}

// next is the next step of the departure of the Machine.
func (s facts) next(machine controlplane.Machine) *controlplane.Step {
	step := finalize
	if machine.DrainHook {
		step = approveDrain
	}
	return s.awaitElection(step(s, machine), "Machine "+machine.Name+" is being deleted but kept: ")
}

// deletingMachines are those that are being deleted and not gone yet. What was begun is ended first. Of the others the
// one goes before whose member leaves no gap: a learner, whether it answers or not, and a dead one; then one whose vote
// is not cast now, though it may be again; then those that work.
func (s facts) deletingMachines() []controlplane.Machine {
	var deleting []controlplane.Machine
	for _, machine := range s.Machines {
		if machine.Deleting && !machine.Gone() {
			deleting = append(deleting, machine)
		}
	}
	rank := func(machine controlplane.Machine) int {
		state := s.memberState(machine)
		return place(s.memberOf(machine) == nil, !machine.DrainHook, !state.Counts(), state != quorum.MemberHealthy)
	}
	slices.SortFunc(deleting, func(a, b controlplane.Machine) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.DeletedAt, b.DeletedAt), cmp.Compare(a.Name, b.Name))
	})
	return deleting
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
	if why := s.keptByUnclaimed(machine); why != "" {
		return s.wait(controlplane.Repair, controlplane.ReasonMemberWithoutMachine,
			"Machine %s is being deleted but kept: %s", machine.Name, why).
			WithMachine(machine.Name)
	}
	member := s.memberOf(machine)
	if member == nil {
		// A member whose Machine is not known may be the one of this Machine.
		if step := dropOrphanedMembers(s); step != nil && s.mayVote(machine) {
			return step
		}
		if step := unconfirmed(s, machine); step != nil {
			return step
		}
		return s.depart(machine, controlplane.ReleaseDrainHook, controlplane.ReasonNothingToGuard,
			"Machine %s has no etcd member: its drain can begin", machine.Name)
	}
	if step := dropGivenUp(s, member); step != nil {
		return step
	}
	// A member that is dead leaves no gap, nor does a learner beside the only voter: that stays until another one votes,
	// which nothing can while this learner is there.
	if other := s.onItsWay(machine); other != "" && s.stateOf(*member) != quorum.MemberDead && !s.besideOnlyVoter(member) {
		return s.waitFor(machine, controlplane.ReasonOneAtATime,
			"Machine %s is being deleted but kept until Machine %s, which leaves now, is gone; condition Deleting of that one "+
				"says what it waits for", machine.Name, other)
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

// contradiction is what a person can do when members speak for different clusters.
const contradiction = "Stop etcd on the hosts that contradict the cluster which is to stay (docs/control-plane.md)"

func etcdUnknown(s facts, machine controlplane.Machine) *controlplane.Step {
	step := s.waitFor(machine, controlplane.ReasonConnectionDown,
		"Machine %s keeps its host until its etcd member is removed, but etcd cannot be read: %s",
		machine.Name, s.Etcd.Problem)
	if s.Etcd.Contradicts {
		step.Message += ". " + contradiction
	} else {
		step.Message += lostOrLetGo
	}
	return step
}

const lostOrLetGo = ". If the cluster is lost, delete the Cluster; or remove our hooks from the Machine, and the one " +
	"in spec.lifecycleHooks from its QuoinMachine"

// unconfirmed keeps a Machine of which the list has no member, while no quorum confirms the list: the one that answered
// may be behind, and the Machine's member vote, also where its bootstrap failed after the join. It is nil when nothing
// speaks against its departure.
func unconfirmed(s facts, machine controlplane.Machine) *controlplane.Step {
	if !s.StackedEtcd || s.Etcd.Agreed || !machine.HostClaimed {
		return nil
	}
	return s.waitFor(machine, controlplane.ReasonQuorum, "Machine %s keeps its host until a quorum of etcd says that it "+
		"has no member: the list of the member that answered has none, and may be old"+lostOrLetGo, machine.Name)
}

// besideOnlyVoter reports whether the member is a learner, and only one member votes.
func (s facts) besideOnlyVoter(member *quorum.Member) bool {
	return s.stateOf(*member) == quorum.MemberLearner && s.Etcd.Count().Voters == 1
}

// onItsWay names another Machine whose drain was approved and whose departure is not over; empty when there is none.
// For a voter that is slow, which no time ends, who is needed behind its drain is none: it may be needed because of it.
func (s facts) onItsWay(except controlplane.Machine) string {
	for _, machine := range s.Machines {
		if machine.Deleting && !machine.DrainHook && machine.Name != except.Name && s.memberOf(machine) != nil &&
			(!s.slow(except.Name) || !s.neededBehindDrain(machine)) {
			return machine.Name
		}
	}
	return ""
}

// leads is the Machine's member while it leads etcd, and works, and could hand over; nil else.
func (s facts) leads(machine controlplane.Machine) *quorum.Member {
	member := s.memberOf(machine)
	if member == nil || !member.Leader || member.Hearsay || s.stateOf(*member) != quorum.MemberHealthy {
		return nil
	}
	return member
}

// handOver moves leadership away from the Machine's member while all members still work. Only the leader itself can
// hand over: one that does not answer loses its lead by the removal. While nobody agrees the one that leads may hang.
func handOver(s facts, machine controlplane.Machine, operation controlplane.Operation,
	reason string) *controlplane.Step {
	member := s.leads(machine)
	if member == nil || !s.Etcd.Agreed {
		return nil
	}
	next := s.successor(*member)
	if next == nil {
		return nil
	}
	return &controlplane.Step{Kind: controlplane.MoveLeader, Operation: operation, MayProceed: machine.Deleting,
		RecheckAfter: controlplane.RecheckSoon, Machine: machine.Name, Member: member.ID, To: next.ID, Reason: reason,
		Message: fmt.Sprintf("moving etcd leadership from Machine %s to %s", machine.Name, next.Machine)}
}

// replaceFirst makes a replacement for a Machine that somebody deleted although etcd needs it.
func replaceFirst(s facts, leaving controlplane.Machine, verdict quorum.Verdict) *controlplane.Step {
	held := fmt.Sprintf("Machine %s is being deleted but kept: %s", leaving.Name, verdict.Message)
	if step := beforeAnything(s); step != nil {
		return step
	}
	if loss := s.quorumLoss(); loss != nil {
		// Which of the others works is not known then, so none of them is waited for, or advised to be replaced.
		return s.waitFor(leaving, controlplane.ReasonQuorumLost, "Machine %s is being deleted but kept: %s. %s",
			leaving.Name, loss.Message, loss.WayOut)
	}
	if s.memberState(leaving) == quorum.MemberWavering {
		return s.waitFor(leaving, controlplane.ReasonQuorum, "%s. Its etcd member was healthy less than %s ago and may be "+
			"back: %s", held, s.DeadMemberTimeout, s.memberOf(leaving).Problem)
	}
	if !s.Initialized || !s.Reachable {
		return s.waitFor(leaving, controlplane.ReasonQuorum, "%s; %s", held, s.unreachable())
	}
	if step := dropIdle(s); step != nil && s.idle(step.Machine) {
		return step
	}
	for _, machine := range s.active() {
		if problem := s.outage(machine); problem != "" {
			return s.waitFor(leaving, controlplane.ReasonQuorum, "%s; waiting for Machine %s: %s", held, machine.Name,
				s.explained(machine, problem))
		}
	}
	if s.present() > s.Replicas {
		return s.waitFor(leaving, controlplane.ReasonQuorum, "%s. %s", held, verdict.WayOut)
	}
	if vain := s.joinsInVain(); vain != "" {
		return s.waitFor(leaving, controlplane.ReasonQuorum, "%s. %s", held, vain)
	}
	for _, member := range s.Etcd.Members {
		if member.Shortcoming() != "" {
			return s.waitFor(leaving, controlplane.ReasonQuorum, "%s. %s", held, verdict.WayOut)
		}
	}
	if s.Spare.Free == 0 && s.Spare.Pending > 0 {
		return s.waitFor(leaving, controlplane.ReasonNoSpareHost, "%s; %s", held, s.pendingHost())
	}
	if s.Spare.Free == 0 {
		return s.waitFor(leaving, controlplane.ReasonNoSpareHost, "%s; %s", held, s.missingHost(leaving))
	}
	step := join(s, controlplane.ReasonReplacementFirst, held+"; making a replacement")
	if step.Waiting() && step.Machine == "" {
		step.Machine, step.Operation = leaving.Name, s.operationOf(leaving)
	}
	return step
}

// slow reports whether the voter of this Machine hangs without being dead.
func (s facts) slow(name string) bool {
	return slices.ContainsFunc(s.Etcd.Members, func(member quorum.Member) bool {
		return member.Machine == name && s.stateOf(member) == quorum.MemberSlow
	})
}

// unblock lets remediation go before Machines that are being deleted and kept. What they wait for may be a member that
// nobody but remediation takes away, and one that nobody can help must not keep others from help. Only what casts no
// vote goes, or what a kept one names: that leaves no gap which the departure of a kept Machine could make larger, and
// a kept one stays as long as its own verdict says so. For what votes a replacement comes first, in the one place that
// there is for it. Nothing goes while a departure makes progress, for it ends by itself. Where remediation waits, or a
// member without a Machine is waited for, what is kept says for what: it may wait for the same, and they name the way
// out.
func unblock(s facts, kept []*controlplane.Step) *controlplane.Step {
	if slices.ContainsFunc(kept, func(step *controlplane.Step) bool {
		return step.Reason != controlplane.ReasonQuorum && step.Reason != controlplane.ReasonNoSpareHost &&
			step.Reason != controlplane.ReasonOneAtATime && step.Reason != controlplane.ReasonMemberWithoutMachine &&
			step.Reason != controlplane.ReasonMachineNotReady && step.Kind != controlplane.Refuse
	}) {
		return nil
	}
	if s.electing() || s.first(reportQuorumLoss, requireReachability) != nil {
		return nil
	}
	if slices.ContainsFunc(kept, func(step *controlplane.Step) bool { return step.Kind == controlplane.Refuse }) {
		return dropIll(s)
	}
	orphaned := dropOrphanedMembers(s)
	if orphaned != nil && !orphaned.Waiting() {
		return orphaned
	}
	step := s.remediateBy(anyStep)
	switch {
	case step == nil:
	case s.castsNoVote(step):
		return step
	case step.Kind == controlplane.DeleteMachine && slices.ContainsFunc(kept, func(wait *controlplane.Step) bool {
		return wait.Reason == controlplane.ReasonMachineNotReady && wait.Machine == step.Machine
	}):
		// It is what is waited for, and its member, if it has one, stays as long as etcd needs it.
		return step
	case step.Kind == controlplane.DeleteMachine && s.slow(step.Machine):
		// No time ends that, and as long as it is so nobody can go by its vote.
		return step
	case step.Kind == controlplane.Wait:
		kept[0].Message += ". " + step.Message
	case step.Kind == controlplane.CreateMachine, step.Kind == controlplane.AllowHostClaim,
		step.Kind == controlplane.UpdateKubeadmConfig, step.Kind == controlplane.PrepullAddons:
		if s.present() <= s.Replicas && beforeAnything(s) == nil {
			return step
		}
	}
	if orphaned != nil && !strings.Contains(kept[0].Message, orphaned.Message) {
		kept[0].Message += ". " + orphaned.Message
	}
	return nil
}
