// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import "slices"

// leave judges a departure and a removal. The rules, and why each is safe:
//
//   - The last voter never goes: no other member has the data.
//   - The members must be able to agree now. A removal is an entry of the log like any other; etcd applies it one at a
//     time,
//     so the quorums before and after it have a member in common and nothing that was acknowledged is forgotten.
//   - Members that do not vote, or whose vote is not cast anyway, may go whenever the others agree: the healthy voters
//     stay
//     the same while the quorum gets smaller or stays, so no failure becomes fatal that was not before. A voter that
//     has been silent only for a moment is not among them: it will be back. Nor is one whose database is full: it votes
//     all the same.
//   - When a healthy voter goes, those that stay must be a quorum of what is left. Only those count that are healthy
//     and
//     have applied the log: one that is far behind could not help to acknowledge a write for a long time.
//   - Unless the terms allow less, what is left must tolerate the failures that the desired number tolerates. With that
//     many
//     members this holds only if a replacement votes already, so it is what "replacement first" means.
//   - If they do allow less, it is less by one member, so that two departures never meet, and by one failure: a voter
//     that is dead is less by one already, and goes first.
//
// A member that was let go already (Departing, and not Held) is counted out of a further departure: its drain may end
// at any time. As it may also end last, there must be a quorum with it in the list too. A removal counts it in: it is
// one change of the list, and all others in it stay there until theirs. So of several Machines that were deleted at
// once each goes in its turn, and none waits for another that waits for it.
func (v Verdict) leave(m Membership, op Operation, t Terms) Verdict {
	goes := func(member Member) bool {
		return slices.Contains(op.Members, member.ID) || op.Kind == Depart && member.leaving()
	}
	left := m
	left.Members = slices.DeleteFunc(slices.Clone(m.Members), goes)
	who := m.names(func(member Member) bool { return slices.Contains(op.Members, member.ID) })
	if len(who) == 0 {
		return v.allow()
	}
	if v.After.Voters == 0 {
		const keep = "Add members first; to give up the cluster and its data, delete the Cluster"
		return v.refuse(ReasonLastMember, keep, "no voting etcd member would be left without %s, so the cluster's data "+
			"would be lost", list(who))
	}
	if !m.Agreed {
		return v.lost()
	}
	if !slices.ContainsFunc(m.Members, func(member Member) bool {
		return slices.Contains(op.Members, member.ID) && member.State(t.DeadMemberTimeout).Counts()
	}) {
		return v.leaveUnvoting(m, op, t, who)
	}

	v.After = left.Count()
	good := func(member Member) bool { return member.Healthy && member.Lag <= t.MaxLag }
	caughtUp := left.count(good)
	for _, next := range []Membership{m.After(op), left} {
		count := next.count(good)
		switch {
		case count.Voters == 0:
			return v.tooMany(m, op, t, who, count)
		case !count.Quorate():
			return v.refuse(ReasonQuorumAtRisk, repair(next, t),
				"without %s %d of %d voters would be healthy, and %d are needed%s",
				list(who), count.Healthy, count.Voters, Majority(count.Voters), behind(next, t))
		case !t.Lowered && (count.Tolerates() < Tolerance(t.Desired) || count.Voters < t.Desired):
			return v.keepTolerance(next, t, who, count)
		case t.Lowered && count.Voters < t.Desired-1:
			return v.tooMany(m, op, t, who, count)
		case t.Lowered && count.Tolerates() < Tolerance(t.Desired)-1:
			return v.keepTolerance(next, t, who, count)
		}
	}
	if tolerates := caughtUp.Tolerates(); tolerates < Tolerance(t.Desired) ||
		t.Desired == 0 && tolerates < v.Before.Tolerates() {
		return v.allowWith(ReasonToleranceLowered, "without %s etcd has %d voters and tolerates %s until a replacement votes",
			list(who), caughtUp.Voters, failures(tolerates))
	}
	return v.allow()
}

const oneAtATime = "Delete one Machine at a time, and wait until its replacement votes"

// leaveUnvoting judges members whose vote nobody counts on.
func (v Verdict) leaveUnvoting(m Membership, op Operation, t Terms, who []string) Verdict {
	after := m.After(op).Count()
	if !after.Quorate() {
		return v.refuse(ReasonQuorumAtRisk, repair(m.After(op), t),
			"without %s %d of %d voters would be healthy, and %d are needed",
			list(who), after.Healthy, after.Voters, Majority(after.Voters))
	}
	if after.Voters < v.Before.Voters && after.Tolerates() < Tolerance(t.Desired) {
		return v.allowWith(ReasonToleranceLowered, "%s casts no vote; without it etcd has %d voters and tolerates %s until "+
			"a replacement votes",
			list(who), after.Voters, failures(after.Tolerates()))
	}
	return v.allow()
}

// keepTolerance refuses a departure that would leave fewer failures tolerated than wanted, by what stands in its way.
func (v Verdict) keepTolerance(left Membership, t Terms, who []string, after Count) Verdict {
	const format = "without %s etcd would have %d of %d voters healthy and tolerate %s, where %d voters tolerate %s%s"
	args := []any{list(who), after.Healthy, after.Voters, failures(after.Tolerates()), t.Desired,
		failures(Tolerance(t.Desired)), behind(left, t)}
	switch {
	case after.Healthy < after.Voters:
		return v.refuse(ReasonQuorumAtRisk, repair(left, t), format, args...)
	case len(who) > 1:
		return v.refuse(ReasonOneAtATime, oneAtATime, format, args...)
	case t.Spare:
		return v.refuse(ReasonReplacementFirst, "Wait until the replacement votes and has caught up: a host is free for it",
			format, args...)
	}
	return v.refuse(ReasonNoSpareHost, "Add a host of its kind so that a replacement can be made first, or let the "+
		"rollout strategy remove first",
		format, args...)
}

// tooMany refuses a departure that would meet another one.
func (v Verdict) tooMany(m Membership, op Operation, t Terms, who []string, after Count) Verdict {
	others := "another member is missing already"
	if len(who) > 1 {
		others = "they are too many at once"
	}
	if leaving := m.names(func(member Member) bool {
		return member.leaving() && !slices.Contains(op.Members, member.ID)
	}); len(leaving) > 0 {
		others = "on their way out already: " + list(leaving)
	}
	return v.refuse(ReasonOneAtATime, oneAtATime, "without %s etcd would have %d of %d wanted voters; %s", list(who),
		after.Voters, t.Desired, others)
}

// repair is the way out when members that stay are not good enough.
func repair(left Membership, t Terms) string {
	if sick := left.sick(); len(sick) > 0 {
		return left.mend("Repair " + list(sick) + ", or let it be replaced first")
	}
	slow := left.names(func(member Member) bool { return !member.Learner && member.Lag > t.MaxLag })
	return "Wait until " + list(slow) + " has caught up"
}

// behind says which of the members that stay have not caught up; empty when all have.
func behind(left Membership, t Terms) string {
	slow := left.names(func(member Member) bool { return !member.Learner && member.Healthy && member.Lag > t.MaxLag })
	if len(slow) == 0 {
		return ""
	}
	return "; " + list(slow) + " is behind"
}

func failures(n int) string {
	switch {
	case n < 1:
		return "no failure"
	case n == 1:
		return "one failure"
	case n == 2:
		return "two failures"
	}
	return "several failures"
}
