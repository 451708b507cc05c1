// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"sort"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// scale makes or deletes one Machine.
func scale(s facts) *controlplane.Step {
	active := s.active()
	switch {
	case len(active) < s.Replicas:
		return join(s, controlplane.ReasonScaleUp, fmt.Sprintf("%d of %d Machines exist: making one more", len(active),
			s.Replicas))
	case len(active) > s.Replicas:
		leaver := s.pick()
		for _, machine := range active {
			if s.unscheduled(machine.Name) {
				leaver = machine
			}
		}
		return remove(s, leaver, controlplane.ScaleDown, controlplane.ReasonScaleDown, s.placeTaken(leaver))
	}
	return nil
}

// join makes a further Machine, or admits the one that was made ahead, and before that what its join needs.
func join(s facts, reason, message string) *controlplane.Step {
	if step := leaveNobodyBehind(s, s.ongoing(), message); step != nil {
		return step
	}
	if step := beforeJoin(s); step != nil {
		return step
	}
	if s.StackedEtcd {
		verdict := quorum.Judge(s.membership(), quorum.Operation{Kind: quorum.AddLearner},
			quorum.Terms{Desired: s.Replicas, All: true})
		if !verdict.Allowed {
			return s.wait(s.ongoing(), controlplane.ReasonQuorum, "%s, but none can join now: %s. %s", message, verdict.Message,
				verdict.WayOut)
		}
	}
	if step := s.admit(reason, message); step != nil {
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
			return s.waitFor(machine, controlplane.ReasonQuorum, "Machine %s cannot go: %s", machine.Name, verdict.Message)
		}
		if step := handOver(s, machine, operation, reason); step != nil {
			return step
		}
		if member := s.memberOf(machine); member != nil && member.Leader && member.Healthy {
			return s.waitFor(machine, controlplane.ReasonQuorum, "Machine %s cannot go: no other member can lead etcd",
				machine.Name)
		}
	}
	return change(controlplane.DeleteMachine, operation, reason, "deleting Machine %s",
		machine.Name).WithMachine(machine.Name)
}

// placeTaken are the terms of a departure after which nothing may be missing: the place of the Machine is taken, or not
// wanted any more.
func (s facts) placeTaken(leaver controlplane.Machine) quorum.Terms {
	member := s.memberOf(leaver)
	return quorum.Terms{Desired: s.Replicas, Spare: true, Lowered: s.dead(member),
		DeadMemberTimeout: s.DeadMemberTimeout}
}

// pick is the active Machine that leaves next: one that a user marked, then outdated, then not working, then from the
// failure domain with most Machines, then the oldest.
func (s facts) pick() controlplane.Machine {
	active := s.active()
	crowd := map[string]int{}
	for _, machine := range active {
		crowd[machine.FailureDomain]++
	}
	sort.Slice(active, func(i, j int) bool {
		a, b := active[i], active[j]
		if a.Preferred != b.Preferred {
			return a.Preferred
		}
		// Before those that do not work: a new Machine that comes up slowly must not go in the place of an outdated one, else
		// a surge would never end.
		if a.UpToDate != b.UpToDate {
			return !a.UpToDate
		}
		aWorks, bWorks := s.shortcoming(a) == "", s.shortcoming(b) == ""
		if aWorks != bWorks {
			return !aWorks
		}
		if crowd[a.FailureDomain] != crowd[b.FailureDomain] {
			return crowd[a.FailureDomain] > crowd[b.FailureDomain]
		}
		if a.Created != b.Created {
			return a.Created < b.Created
		}
		return a.Name < b.Name
	})
	return active[0]
}
