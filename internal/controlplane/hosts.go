// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
)

// replaceable tells that a replacement can vote before somebody leaves: a host is free or will be soon, or a Machine
// that joins has one. A Machine that was made for a host which is gone since is no replacement, and nobody waits for
// it.
func (s Snapshot) replaceable() bool {
	return s.hostsLeft() || s.arriving() != ""
}

// replacementComes tells that a replacement is on its way without anybody's help: one has a host, one can claim a host,
// or one will be made when a host is free again.
func (s Snapshot) replacementComes() bool {
	return s.arriving() != "" || s.hostsLeft() && s.joining() != "" ||
		s.Spare.Free == 0 && s.Spare.Coming > 0 && len(s.active()) < s.Replicas
}

// hostsLeft tells that a host is free, or will be soon.
func (s Snapshot) hostsLeft() bool {
	return s.Spare.Free > 0 || s.Spare.Coming > 0 || s.Spare.Returning > 0
}

// arriving names an active Machine that has a host and does not vote yet; empty when there is none.
func (s Snapshot) arriving() string {
	for _, machine := range s.active() {
		if machine.HostClaimed && s.joins(machine) {
			return machine.Name
		}
	}
	return ""
}

// placed are the active Machines without a surplus one that has no host and will not get one before another Machine
// leaves.
func (s Snapshot) placed() []Machine {
	active := s.active()
	surplus := len(active) - s.Replicas
	if s.hostsLeft() {
		return active
	}
	var placed []Machine
	for _, machine := range active {
		if surplus > 0 && !machine.HostClaimed && s.neverJoined(machine) {
			surplus--
			continue
		}
		placed = append(placed, machine)
	}
	return placed
}

// unplaced tells that the Machine is active but not placed.
func (s Snapshot) unplaced(name string) bool {
	named := func(machine Machine) bool { return machine.Name == name }
	return slices.ContainsFunc(s.active(), named) && !slices.ContainsFunc(s.placed(), named)
}

// reschedule deletes a Machine that waits for a host where none is left, when there is one elsewhere: the failure
// domain of a Machine cannot be changed, and one that is made now gets one with a free host.
func reschedule(s Snapshot) *Step {
	if s.Spare.Free == 0 || !s.Initialized {
		return nil
	}
	for _, machine := range s.active() {
		if machine.NoHost && !machine.HostClaimed && s.neverJoined(machine) {
			return dropHostless(s.ongoing(), machine)
		}
	}
	return nil
}

func dropHostless(operation Operation, machine Machine) *Step {
	return change(DeleteMachine, operation, ReasonHostGone,
		"Machine %s has no host, and none of failure domain %s is free "+
			"any more: the next one is made where one is", machine.Name, machine.FailureDomain).about(machine.Name)
}

// missing says which host is missing.
func (s Snapshot) missing(leaver Machine) string {
	text := fmt.Sprintf("1 more host is needed: none of the %s is free", s.hostKind())
	if s.Spare.Why != "" {
		text += " (" + s.Spare.Why + ")"
	}
	text += "; register or free one"
	if leaver.FailureDomain != "" {
		text += ", best in failure domain " + leaver.FailureDomain
	}
	return text
}

// coming says that a host will be free soon.
func (s Snapshot) coming() string {
	text := fmt.Sprintf("waiting for one of the %s, which is being reset or inspected", s.hostKind())
	if s.Spare.Why != "" {
		text += " (" + s.Spare.Why + ")"
	}
	return text
}

func (s Snapshot) hostKind() string {
	if s.Spare.Kind == "" {
		return "hosts"
	}
	return s.Spare.Kind
}
