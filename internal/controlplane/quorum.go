// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "fmt"

// Verdict is the answer to "may this be done", with the reason when it may not.
type Verdict struct {
	Allowed bool
	Message string
}

// RemovalKeepsQuorum says whether etcd still has a quorum of healthy voters after the member is gone, and can agree on
// its removal now. A learner does not vote, so only the second counts for it.
func RemovalKeepsQuorum(etcd Etcd, id uint64) Verdict {
	if !etcd.Known {
		return Verdict{Message: "etcd's members are not known: " + etcd.Problem}
	}
	var voters, healthy int
	for _, member := range etcd.Members {
		if member.Learner || member.ID == id {
			continue
		}
		voters++
		if member.Healthy {
			healthy++
		}
	}
	if voters == 0 {
		return Verdict{Message: "it holds the only voting etcd member, so the data would be lost with it"}
	}
	if quorum := voters/2 + 1; healthy < quorum {
		return Verdict{Message: fmt.Sprintf("without its etcd member %d of %d voters would be healthy, and %d are needed",
			healthy, voters, quorum)}
	}
	if !etcd.Agreed {
		return Verdict{Message: "etcd has no quorum to agree on a removal"}
	}
	return Verdict{Allowed: true}
}

// successor is the voter that takes over from the leader: healthy, on a Machine that stays, up to date before outdated,
// newest first. Nil when there is none.
func (s Snapshot) successor(leader Member) *Member {
	var best *Member
	var bestMachine Machine
	for i := range s.Etcd.Members {
		member := &s.Etcd.Members[i]
		if member.ID == leader.ID || member.Learner || !member.Healthy {
			continue
		}
		for _, machine := range s.active() {
			if machine.Name != member.Machine {
				continue
			}
			better := best == nil ||
				machine.UpToDate && !bestMachine.UpToDate ||
				machine.UpToDate == bestMachine.UpToDate && machine.Created > bestMachine.Created
			if better {
				best, bestMachine = member, machine
			}
		}
	}
	return best
}
