// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import "fmt"

// addLearner judges the beginning of a join. kubeadm promotes the learner by itself as soon as etcd lets it, so the
// join is judged by its end, with the new voter counted as down: it is the one member that nothing is known about.
// Whatever it does, those that vote now must be a quorum of one more. So a join never makes the loss of a member fatal
// that was not before the newcomer failed as well, and a dead voter is removed before its replacement joins, not after.
//
// A single voter cannot be a quorum of two. It has no other way to get company or a replacement, and etcd makes the
// same exception (membership/cluster.go, IsReadyToAddVotingMember); that both must live until one is removed is
// announced.
//
// etcd takes one learner at a time (MaxLearners), so a dead one, or one that never started, blocks every join until it
// is removed: better before kubeadm tries than in the middle of it.
func (v Verdict) addLearner(m Membership, t Terms) Verdict {
	if !m.Agreed {
		return v.lost()
	}
	for _, member := range m.Members {
		switch {
		case !member.Started():
			return v.refuse(ReasonMemberJoining, "Wait until it has started; if it never will, remove it",
				"%s was added to etcd and has not started, and another cannot join before that", member)
		case member.Learner:
			return v.refuse(ReasonMemberJoining, "Wait until it votes; if it never will, remove it",
				"%s is still a learner, and etcd takes one at a time", member)
		}
	}
	if t.Desired > 0 && v.Before.Voters > t.Desired {
		return v.refuse(ReasonEnoughMembers, "Remove one of the members before another joins",
			"etcd has %d voters already; wanted: %d", v.Before.Voters, t.Desired)
	}
	grown := v.grow(m, v.Before.Voters+1)
	if sick := m.sick(); grown.Allowed && t.All && len(sick) > 0 {
		return v.refuse(ReasonMemberDead, m.mend("Repair "+list(sick)+", or remove it first: its replacement joins then"),
			"%s must work or be removed first, because kubeadm join asks every member", list(sick))
	}
	return grown
}

// grow asks those that vote now to be a quorum of so many voters. Members on their way out count: they are in the list
// and stay there until a removal of their own.
func (v Verdict) grow(m Membership, voters int) Verdict {
	if v.Before.Voters == 1 && v.Before.Healthy == 1 {
		return v.allowWith(ReasonToleranceLowered, "etcd will have 2 voters, which must both live until one of them is "+
			"removed or a third votes")
	}
	if v.Before.Healthy >= Majority(voters) {
		return v.allow()
	}
	sick := m.sick()
	return v.refuse(ReasonQuorumAtRisk, m.mend(fmt.Sprintf("Repair %s, or remove it first: its replacement joins then",
		list(sick))),
		"of %d voters %d would be healthy should the new one fail, and %d are needed: %s must work or be removed first",
		voters, v.Before.Healthy, Majority(voters), list(sick))
}
