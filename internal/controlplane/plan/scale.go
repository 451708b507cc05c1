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

// scale makes or deletes one Machine.
func scale(s facts) *controlplane.Step {
	active := s.active()
	switch {
	case len(active) < s.Replicas:
		if step := awaitVersion(s); step != nil && s.refill() == controlplane.ScaleUp {
			// One whose predecessor has left is never held up: until it votes, less can fail.
			return step
		}
		return join(s, controlplane.ReasonScaleUp, fmt.Sprintf("%d of %d Machines exist: making one more", len(active),
			s.Replicas))
	case len(active) > s.Replicas:
		leaving := s.pick()
		for _, machine := range active {
			if s.unscheduled(machine.Name) {
				leaving = machine
			}
		}
		return remove(s, leaving, controlplane.ScaleDown, controlplane.ReasonScaleDown, s.placeTaken())
	}
	return nil
}

// join makes a further Machine, or allows the one that was pre-created a host, and before that what its join needs.
func join(s facts, reason, message string) *controlplane.Step {
	if step := leaveNobodyBehind(s, s.ongoing(), message); step != nil {
		return step
	}
	if step := beforeJoin(s); step != nil {
		return step
	}
	if s.StackedEtcd {
		if verdict := s.mayJoin(); !verdict.Allowed {
			return s.wait(s.ongoing(), controlplane.ReasonQuorum, "%s, but none can join now: %s", message,
				refusedBy(verdict))
		}
	}
	if step := s.allowHostClaim(reason, message); step != nil {
		return step
	}
	return change(controlplane.CreateMachine, s.ongoing(), reason, "%s", message)
}

// remove lets a Machine go whose place is taken, or not wanted any more, or taken by its replacement later. Leadership
// moves before the drain, so that etcd elects while all of its members still work.
func remove(s facts, machine controlplane.Machine, operation controlplane.Operation, reason string,
	terms quorum.Terms) *controlplane.Step {
	if s.StackedEtcd {
		if verdict := s.mayDepart(machine, terms); !verdict.Allowed {
			return s.waitFor(machine, controlplane.ReasonQuorum, "Machine %s cannot go: %s", machine.Name,
				refusedBy(verdict))
		}
		if step := handOver(s, machine, operation, reason); step != nil {
			return step
		}
		if s.leads(machine) != nil {
			return s.waitFor(machine, controlplane.ReasonQuorum, "Machine %s cannot go: no other member can lead etcd. "+
				"Wait until another one works on a Machine that stays", machine.Name)
		}
	}
	return change(controlplane.DeleteMachine, operation, reason, "deleting Machine %s",
		machine.Name).WithMachine(machine.Name)
}

// pick is the active Machine that leaves next: one that a user marked, then outdated, then not working, then from the
// failure domain with most Machines, then the oldest.
func (s facts) pick() controlplane.Machine {
	active := s.active()
	crowd := map[string]int{}
	for _, machine := range active {
		crowd[machine.FailureDomain]++
	}
	return slices.MinFunc(active, func(a, b controlplane.Machine) int {
		return cmp.Or(
			place(a.Preferred)-place(b.Preferred),
			// Before those that do not work: a new Machine that comes up slowly must not go in the place of an outdated one,
			// else a surge would never end.
			place(!a.UpToDate)-place(!b.UpToDate),
			place(s.shortcoming(a) != "")-place(s.shortcoming(b) != ""),
			crowd[b.FailureDomain]-crowd[a.FailureDomain],
			cmp.Compare(a.Created, b.Created),
			cmp.Compare(a.Name, b.Name))
	})
}

// nextDomain is the failure domain of the next Machine: the one with fewest up-to-date Machines, then with fewest, then
// with most hosts, among those that have a free host, or where none is free at all, one that will be. Without one it
// stays open, and the Machine takes the first host that becomes free: bound to a domain whose hosts are all in use, it
// would hold up a surge for ever.
func (s facts) nextDomain() string {
	machines, upToDate := map[string]int{}, map[string]int{}
	for _, machine := range s.active() {
		machines[machine.FailureDomain]++
		if machine.UpToDate {
			upToDate[machine.FailureDomain]++
		}
	}
	hosts := func(domain controlplane.FailureDomain) int {
		if s.Spare.Free > 0 {
			return domain.Free
		}
		return domain.Pending
	}
	having := slices.DeleteFunc(slices.Clone(s.Domains), func(domain controlplane.FailureDomain) bool {
		return hosts(domain) == 0
	})
	if len(having) == 0 {
		return ""
	}
	return slices.MinFunc(having, func(a, b controlplane.FailureDomain) int {
		return cmp.Or(
			upToDate[a.Name]-upToDate[b.Name],
			machines[a.Name]-machines[b.Name],
			hosts(b)-hosts(a),
			cmp.Compare(a.Name, b.Name))
	}).Name
}

// place of the first condition that holds; where none does it is after the last.
func place(conditions ...bool) int { return slices.Index(append(conditions, true), true) }
