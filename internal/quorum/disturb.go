// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import "slices"

// restart judges work that stops members and brings them back with their data. The list stays as it is, so those that
// go on must be a quorum of all voters. Nothing is acknowledged without one, so nothing can be lost: a single member
// may restart, and the cluster does not answer meanwhile. A member that does not answer loses nothing by a restart,
// also when the quorum is lost: it may be what brings it back.
func (v Verdict) restart(m Membership, op Operation) Verdict {
	stops := func(member Member) bool { return slices.Contains(op.Members, member.ID) }
	who := m.names(stops)
	if !slices.ContainsFunc(m.Members, func(member Member) bool {
		return stops(member) && !member.Learner && (member.Healthy || member.Full)
	}) {
		return v.allow()
	}
	if !m.Agreed {
		return v.lost()
	}
	if v.Before.Voters == 1 {
		return v.allowWith(ReasonOutage, "%s is the only voting etcd member: the cluster does not answer until it is back",
			list(who))
	}
	stay := m.After(op).count(func(member Member) bool { return member.Healthy && !member.leaving() })
	if !stay.Quorate() {
		return v.refuse(ReasonQuorumAtRisk, "Do it to one member at a time, and when all others are healthy",
			"during a restart of %s %d of %d voters would be healthy, and %d are needed", list(who), stay.Healthy, stay.Voters,
			Majority(stay.Voters))
	}
	if stay.Tolerates() < v.Before.Tolerates() {
		return v.allowWith(ReasonToleranceLowered, "during a restart of %s etcd tolerates %s", list(who),
			failures(stay.Tolerates()))
	}
	return v.allow()
}

// loseFailureDomain reports whether a quorum would be left without a failure domain. Nobody removes those members
// first, so the others must be a quorum of all.
func (v Verdict) loseFailureDomain(m Membership, op Operation) Verdict {
	if !m.Agreed {
		return v.lost()
	}
	if !v.After.Quorate() {
		return v.refuse(ReasonQuorumAtRisk, "Spread the control plane over more failure domains",
			"without failure domain %q %d of %d voters would be healthy, and %d are needed",
			op.FailureDomain, v.After.Healthy, v.After.Voters, Majority(v.After.Voters))
	}
	return v.allow()
}
