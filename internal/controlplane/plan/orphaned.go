// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// orphanedMembers are members that no known Machine runs.
func (s facts) orphanedMembers() []quorum.Member {
	return slices.DeleteFunc(slices.Clone(s.Etcd.Members), func(member quorum.Member) bool { return member.Machine != "" })
}

// unclaimed are voters that work, or may work, although no Machine of the control plane runs them, except those that a
// person has given up. That there is no Machine says more about the objects than about the member: they may be from
// before it joined, restored from a backup, or those of a management cluster that was left behind. Each counts in every
// quorum, so none of them is ever removed by itself.
func (s facts) unclaimed() []quorum.Member {
	if !s.StackedEtcd || !s.Etcd.Known {
		return nil
	}
	return slices.DeleteFunc(s.orphanedMembers(), func(member quorum.Member) bool {
		return !s.stateOf(member).Works() || slices.Contains(s.RemoveMembers, member.ID)
	})
}

// describeUnclaimed says what a person can do about a member of unclaimed.
func (s facts) describeUnclaimed(member quorum.Member) string {
	state := "votes"
	if member.Unasked {
		state = "may vote"
	}
	return fmt.Sprintf("etcd member %x (%s) %s, but no Machine of this control plane runs it: the objects here may be "+
		"older than that member. It is never removed by itself, and until it has a Machine or is gone no Machine is made, "+
		"replaced or let go. If another management cluster has its Machine, pause this Cluster. If "+
		"nobody needs it: kubectl annotate quoincontrolplane %s "+
		"quoin.cluster.x-k8s.io/remove-etcd-member=%x", member.ID, member.Name, state, s.Name, member.ID)
}

// dropOrphanedMembers removes members whose Machine is gone, such as the learner of a join that failed, or a voter that
// is dead. They count for the quorum, or will. Voters that work are left to a person.
func dropOrphanedMembers(s facts) *controlplane.Step {
	if !s.StackedEtcd {
		return nil
	}
	orphaned := s.orphanedMembers()
	for _, machine := range s.active() {
		if len(orphaned) > 0 && machine.Node == "" && machine.HostClaimed {
			return s.waitFor(machine, controlplane.ReasonMachineNotReady,
				"an etcd member (%x) may belong to Machine %s, which has no Node yet: %s; if it will not come, %s",
				orphaned[0].ID, machine.Name, s.shortcoming(machine), haveReplaced)
		}
	}
	unclaimed := s.unclaimed()
	var first *controlplane.Step
	for _, member := range orphaned {
		if slices.ContainsFunc(unclaimed, func(kept quorum.Member) bool { return kept.ID == member.ID }) {
			continue
		}
		step := s.dropOrphanedMember(member)
		if !step.Waiting() {
			return step
		}
		if first == nil {
			first = step
		}
	}
	if first == nil && len(unclaimed) > 0 {
		first = s.wait(controlplane.Repair, controlplane.ReasonMemberWithoutMachine, "%s", s.describeUnclaimed(unclaimed[0]))
	}
	return first
}

func (s facts) dropOrphanedMember(member quorum.Member) *controlplane.Step {
	ordered := slices.Contains(s.RemoveMembers, member.ID)
	patience := max(s.DeadMemberTimeout, s.OrphanedMemberTimeout)
	if !member.Learner && member.Silent < patience && !ordered {
		return s.wait(s.ongoing(), controlplane.ReasonQuorum,
			"etcd member %x (%s) has no Machine, but was healthy less than %s ago and may be back: %s. If it will not be: "+
				"kubectl annotate quoincontrolplane %s quoin.cluster.x-k8s.io/remove-etcd-member=%x",
			member.ID, member.Name, patience, member.Problem, s.Name, member.ID)
	}
	// By the quorum alone: nobody looks after it, and while it is there nothing joins.
	if verdict := s.mayRemove(member.ID, quorum.ByQuorumAlone(s.DeadMemberTimeout)); !verdict.Allowed {
		return s.wait(s.ongoing(), controlplane.ReasonQuorum, "etcd member %x (%s) has no Machine but cannot be removed: %s",
			member.ID, member.Name, refusedBy(verdict))
	}
	why := "whose Machine is gone"
	if ordered {
		why = "as a person asked for"
	}
	step := change(controlplane.RemoveEtcdMember, controlplane.Repair, controlplane.ReasonOrphanedMember,
		"removing etcd member %x (%s), %s", member.ID, member.Name, why)
	step.Member, step.MayProceed, step.RecheckAfter = member.ID, true, controlplane.RecheckSoon
	return step
}

// keptByUnclaimed says why a Machine stays: voters work that no Machine runs. What casts no vote goes all the same, for
// without it the quorum is safer, whoever the others belong to; but not the last Machine through which etcd can be
// reached, and not one that may run such a voter itself: so may one whose join still runs, until its host says what it
// added.
func (s facts) keptByUnclaimed(machine controlplane.Machine) string {
	unclaimed, member := s.unclaimed(), s.memberOf(machine)
	switch {
	case len(unclaimed) == 0:
	case member == nil && !s.mayVote(machine) && (!machine.Joining || !machine.HostClaimed):
	case member != nil && !s.stateOf(*member).Works() && s.othersStay(member):
	default:
		return s.describeUnclaimed(unclaimed[0])
	}
	return ""
}

// mayWaver is a member that no Machine is known to run and that this one may, while it is not known whether it is dead
// or will be back; nil when there is none.
func (s facts) mayWaver(machine controlplane.Machine) *quorum.Member {
	if !s.mayVote(machine) || s.memberOf(machine) != nil {
		return nil
	}
	for _, member := range s.orphanedMembers() {
		if s.stateOf(member) == quorum.MemberWavering && !slices.Contains(s.RemoveMembers, member.ID) {
			return &member
		}
	}
	return nil
}

// othersStay reports whether another member votes whose Machine does not leave.
func (s facts) othersStay(member *quorum.Member) bool {
	return slices.ContainsFunc(s.membership().Members, func(other quorum.Member) bool {
		leaves := other.Departing && !other.Held
		return other.Machine != "" && other.ID != member.ID && other.Shortcoming() == "" && !leaves
	})
}

// dropGivenUp removes the voters that a person has given up before the last Machine goes through which etcd can be
// reached: they would have the quorum then, on hosts that no Machine of this control plane knows, and nothing could
// join them. Nil when there are none, when another Machine stays, or when this one casts no vote.
func dropGivenUp(s facts, member *quorum.Member) *controlplane.Step {
	if !s.stateOf(*member).Counts() || s.othersStay(member) {
		return nil
	}
	for _, other := range s.orphanedMembers() {
		if s.stateOf(other).Counts() && slices.Contains(s.RemoveMembers, other.ID) {
			if step := s.dropOrphanedMember(other); !step.Waiting() {
				return step
			}
		}
	}
	return nil
}
