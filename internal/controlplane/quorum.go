// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"

// mayRemove judges the removal of a member from etcd.
func (s Snapshot) mayRemove(id uint64, terms quorum.Terms) quorum.Verdict {
	return quorum.Judge(s.membership(), quorum.Operation{Kind: quorum.Remove, Members: []uint64{id}}, terms)
}

// successor is the voter that takes over from the leader: healthy, on a Machine that stays before one that is kept for
// now, up to date before outdated, newest first. Nil when there is none.
func (s Snapshot) successor(leader quorum.Member) *quorum.Member {
	var best *quorum.Member
	var bestMachine Machine
	for i := range s.Etcd.Members {
		member := &s.Etcd.Members[i]
		if member.ID == leader.ID || member.Learner || !member.Healthy {
			continue
		}
		for _, machine := range s.Machines {
			if machine.Name != member.Machine || machine.Deleting && !machine.DrainHook {
				continue
			}
			if best == nil || better(machine, bestMachine) {
				best, bestMachine = member, machine
			}
		}
	}
	return best
}

// better tells whether a should lead etcd rather than b.
func better(a, b Machine) bool {
	switch {
	case a.Deleting != b.Deleting:
		return !a.Deleting
	case a.UpToDate != b.UpToDate:
		return a.UpToDate
	}
	return a.Created > b.Created
}
