// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package before

import (
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// terms are those of a departure that somebody asked for: as much must be tolerated afterwards as is wanted, unless there is
// nothing to make a replacement from, or nothing to lose.
func (s Snapshot) terms(machine Machine) quorum.Terms {
	member := s.memberOf(machine)
	spare := s.replaceable()
	return quorum.Terms{Desired: s.Replicas, Spare: spare,
		Lowered:           !spare || s.dead(member) || s.Strategy == RemoveFirst && !machine.UpToDate,
		DeadMemberTimeout: s.Patience}
}

// dead tells that a voter has not been healthy for so long that nobody counts on it any more. One that a single reading
// missed, or that restarts, is still a voter whose loss would be felt.
func (s Snapshot) dead(member *quorum.Member) bool {
	return member != nil && !member.Learner && !member.Healthy && !member.Full && !member.Unasked && member.Silent >= s.Patience
}

// full is a voter whose database has reached its quota; nil when there is none.
func (s Snapshot) full() *quorum.Member {
	for i := range s.Etcd.Members {
		if member := &s.Etcd.Members[i]; s.StackedEtcd && !member.Learner && member.Full {
			return member
		}
	}
	return nil
}

// wavering tells that the member is a voter that was healthy a moment ago.
func (s Snapshot) wavering(member *quorum.Member) bool {
	return member != nil && !member.Learner && !member.Healthy && !member.Full && !member.Unasked && !s.dead(member)
}

// joining names an active Machine that does not vote yet; empty when there is none.
func (s Snapshot) joining() string {
	for _, machine := range s.active() {
		if s.joins(machine) {
			return machine.Name
		}
	}
	return ""
}

// joins tells that the Machine does not vote yet.
func (s Snapshot) joins(machine Machine) bool {
	member := s.memberOf(machine)
	return s.StackedEtcd && (member == nil || member.Learner) || machine.Node == ""
}

// mayDepart judges etcd without the Machine's member.
func (s Snapshot) mayDepart(machine Machine, terms quorum.Terms) quorum.Verdict {
	member := s.memberOf(machine)
	if member == nil {
		return quorum.Verdict{Allowed: true}
	}
	return quorum.Judge(s.membership(), quorum.Operation{Kind: quorum.Depart, Members: []uint64{member.ID}}, terms)
}

// membership is etcd with what is known of the members' Machines: whose is being deleted departs, and until its drain was
// opened nothing happens to it, so that meanwhile it is as good as any other.
func (s Snapshot) membership() quorum.Membership {
	judged := s.Etcd
	judged.Members = slices.Clone(s.Etcd.Members)
	for i := range judged.Members {
		if member := &judged.Members[i]; member.Machine == "" {
			member.Departing = slices.Contains(s.RemoveMembers, member.ID)
		}
		for _, machine := range s.Machines {
			if member := &judged.Members[i]; member.Machine == machine.Name {
				member.Departing, member.Held, member.FailureDomain = machine.Deleting, machine.DrainHook, machine.FailureDomain
			}
		}
	}
	return judged
}
