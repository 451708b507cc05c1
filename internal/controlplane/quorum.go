// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"

// mayRemove judges the removal of a member from etcd, by the quorum alone.
func (s Snapshot) mayRemove(id uint64) quorum.Verdict {
	return quorum.Judge(s.Etcd, quorum.Operation{Kind: quorum.Remove, Members: []uint64{id}}, quorum.Terms{Lowered: true})
}

// successor is the voter that takes over from the leader: healthy, on a Machine that stays, up to date before outdated,
// newest first. Nil when there is none.
func (s Snapshot) successor(leader quorum.Member) *quorum.Member {
	var best *quorum.Member
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
