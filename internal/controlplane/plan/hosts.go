// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// replaceable reports whether a replacement can vote before somebody leaves: a host is free or will be soon, or a
// Machine that joins has one. A Machine that was made for a host which is gone since is no replacement, and nobody
// waits for it.
func (s facts) replaceable() bool {
	return s.hostsLeft() || s.arriving() != ""
}

// replacementComes reports whether a replacement is on its way without anybody's help: one has a host, one can claim a
// host, or one will be made when a host is free again.
func (s facts) replacementComes() bool {
	return s.arriving() != "" || s.hostsLeft() && s.joining() != "" ||
		s.Spare.Free == 0 && s.Spare.Pending > 0 && len(s.active()) < s.Replicas
}

// hostsLeft reports whether a host is free, or will be soon.
func (s facts) hostsLeft() bool {
	return s.Spare.Free > 0 || s.Spare.Pending > 0 || s.Spare.Returning > 0
}

// arriving names an active Machine that has a host and does not vote yet; empty when there is none.
func (s facts) arriving() string {
	for _, machine := range s.active() {
		if machine.HostClaimed && s.joins(machine) {
			return machine.Name
		}
	}
	return ""
}

// scheduled are the active Machines without a surplus one that has no host and will not get one before another Machine
// leaves.
func (s facts) scheduled() []controlplane.Machine {
	active := s.active()
	surplus := len(active) - s.Replicas
	if s.hostsLeft() {
		return active
	}
	var scheduled []controlplane.Machine
	for _, machine := range active {
		if surplus > 0 && !machine.HostClaimed && s.neverJoined(machine) {
			surplus--
			continue
		}
		scheduled = append(scheduled, machine)
	}
	return scheduled
}

// unscheduled reports whether the Machine is active but not scheduled.
func (s facts) unscheduled(name string) bool {
	named := func(machine controlplane.Machine) bool { return machine.Name == name }
	return slices.ContainsFunc(s.active(), named) && !slices.ContainsFunc(s.scheduled(), named)
}

// reschedule deletes a Machine that waits for a host where none is left, when there is one elsewhere: the failure
// domain of a Machine cannot be changed, and one that is made now gets one with a free host.
func reschedule(s facts) *controlplane.Step {
	if s.Spare.Free == 0 || !s.Initialized {
		return nil
	}
	for _, machine := range s.active() {
		if machine.NoHost && !machine.HostClaimed && s.neverJoined(machine) {
			return s.dropHostless(s.ongoing(), machine)
		}
	}
	return nil
}

// dropIdle deletes a Machine that joins never, or that would be replaced at once if it did: nobody waits for it.
// Members that no Machine runs come first, for one of them may be its own.
func dropIdle(s facts) *controlplane.Step {
	if dropOrphanedMembers(s) != nil {
		return nil
	}
	return s.first(reschedule, dropOutdated)
}

// idle reports whether a Machine may go beside one that leaves: it holds nothing. One that joins may be a voter by the
// time it goes, and be kept then for as long as the other one is.
func (s facts) idle(name string) bool {
	return slices.ContainsFunc(s.active(), func(machine controlplane.Machine) bool {
		return machine.Name == name && !machine.Joining && s.neverJoined(machine)
	})
}

func (s facts) dropHostless(operation controlplane.Operation, machine controlplane.Machine) *controlplane.Step {
	return s.handsOn(machine, change(controlplane.DeleteMachine, operation, controlplane.ReasonHostGone,
		"Machine %s has no host, and none of failure domain %s is free any more: the next one is made where one is",
		machine.Name, machine.FailureDomain).WithMachine(machine.Name))
}

// handsOn has the Machine that is made after this one replace whom this one replaces, for which nothing was tried yet.
// Where none is made it would be somebody else's.
func (s facts) handsOn(machine controlplane.Machine, deletion *controlplane.Step) *controlplane.Step {
	if s.madeAgain(machine, s.unhealthy()) {
		deletion.Attempt = machine.Health.Replaces
	}
	return deletion
}

// dropUnjoinable deletes a Machine that waits for a host where none can join: its join was judged when it was made,
// which may be days ago, and it would claim the next host in vain. Another one is made once one can join. What passes
// by itself, such as a voter that is slow, is no reason: one after the other would be made and deleted. Nor is a member
// without a Machine, which goes first. Where the claim comes first it leaves like any other.
func dropUnjoinable(s facts) *controlplane.Step {
	stays := func(member quorum.Member) bool {
		state := s.stateOf(member)
		return state == quorum.MemberDead || state == quorum.MemberFull
	}
	verdict := s.mayJoin()
	if !s.Initialized || !s.StackedEtcd || s.disturbed() || verdict.Allowed || len(s.orphanedMembers()) > 0 ||
		!slices.ContainsFunc(s.Etcd.Members, stays) {
		return nil
	}
	for _, machine := range s.active() {
		if !machine.HostClaimed && s.neverJoined(machine) {
			return s.handsOn(machine, s.changeOf(machine, controlplane.DeleteMachine, controlplane.ReasonHostClaimNotAllowed,
				"deleting Machine %s, which has no host yet, and is made again when one can join: %s", machine.Name,
				refusedBy(verdict)))
		}
	}
	return nil
}

// missingHost says which host is missing.
func (s facts) missingHost(leaving controlplane.Machine) string {
	text := fmt.Sprintf("1 more host is needed: none of the %s is free", cmp.Or(s.Spare.Kind, "hosts"))
	if s.Spare.Why != "" {
		text += " (" + s.Spare.Why + ")"
	}
	text += "; register or free one"
	if leaving.FailureDomain != "" {
		text += ", best in failure domain " + leaving.FailureDomain
	}
	return text
}

// pendingHost says that a host will be free soon.
func (s facts) pendingHost() string {
	text := fmt.Sprintf("waiting for one of the %s, which is being reset or inspected, until it is free or Quarantined",
		cmp.Or(s.Spare.Kind, "hosts"))
	if s.Spare.Why != "" {
		text += " (" + s.Spare.Why + ")"
	}
	return text
}
