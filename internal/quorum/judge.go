// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"fmt"
	"time"
)

// Kind of an operation.
type Kind string

const (
	// AddLearner lets a new member join without a vote.
	AddLearner Kind = "AddLearner"
	// Remove takes members out of the list, now.
	Remove Kind = "Remove"
	// Depart begins the way out of the Machines of members: drain, then Remove, then the host goes.
	Depart Kind = "Depart"
)

// Operation is what is to be done.
type Operation struct {
	Kind Kind
	// Members that it is about, by ID. Several are judged together: what counts is what is left when all of it is done.
	// A member that is not in the list is no loss. AddLearner needs none.
	Members []uint64
}

// Verdict is the answer to "may this be done".
type Verdict struct {
	Allowed bool
	// Reason is a word for conditions and metrics; empty when allowed without reserve.
	Reason string
	// Message says in a sentence what the membership would be and why that is not good enough; or, when allowed, what is
	// lost meanwhile.
	Message string
	// WayOut says what a person can do.
	WayOut string
	// Before and After count the membership.
	Before, After Count
}

// Reasons of a refusal.
const (
	// ReasonUnknown: no member told the list.
	ReasonUnknown = "MembershipUnknown"
	// ReasonOutdated: the reading is older than the terms allow.
	ReasonOutdated = "MembershipOutdated"
	// ReasonQuorumLost: the members cannot agree on anything.
	ReasonQuorumLost = "QuorumLost"
	// ReasonQuorumAtRisk: what would be left has no quorum.
	ReasonQuorumAtRisk = "QuorumAtRisk"
	// ReasonLastMember: the data would be gone with it.
	ReasonLastMember = "LastMember"
	// ReasonReplacementFirst: fewer failures would be tolerated, and a host is free for a replacement.
	ReasonReplacementFirst = "ReplacementFirst"
	// ReasonNoSpareHost: fewer failures would be tolerated, and there is no host for a replacement.
	ReasonNoSpareHost = "NoSpareHost"
	// ReasonOneAtATime: another member is missing or leaves already.
	ReasonOneAtATime = "OneAtATime"
	// ReasonMemberDead: a member does not answer that is asked before another joins.
	ReasonMemberDead = "MemberDead"
	// ReasonMemberJoining: a learner, or a member that has not started, is in the list.
	ReasonMemberJoining = "MemberJoining"
	// ReasonEnoughMembers: one more than desired is there already.
	ReasonEnoughMembers = "EnoughMembers"
)

// ReasonToleranceLowered is the reason of a permission with a reserve: fewer failures are tolerated meanwhile.
const ReasonToleranceLowered = "ToleranceLowered"

// Judge says whether an operation may be done to a membership, by what the membership would be after it.
//
// It relies on two things. Changes happen one at a time: each waits for the reading after the one before. And no host
// goes while its member is in the list, so whoever is in the list and healthy stays so unless it fails by itself.
//
// What was not read, or too long ago, is not judged: a member may have been lost or another change made since.
// LastMember comes before everything else that can be known, because no state of the others makes up for it.
func Judge(m Membership, op Operation, t Terms) Verdict {
	if t.MaxLag == 0 {
		t.MaxLag = DefaultMaxLag
	}
	if !m.Known {
		return Verdict{Reason: ReasonUnknown, Message: "etcd's members are not known: " +
			orElse(m.Problem, "they were not read"),
			WayOut: "Make a control-plane host reachable. If the cluster is lost, restore it, or delete the Cluster"}
	}
	v := Verdict{Before: m.Count(), After: m.After(op).Count()}
	if t.MaxAge > 0 && m.Age > t.MaxAge {
		return v.refuse(ReasonOutdated, "Wait for the next reading, or make the control-plane hosts reachable",
			"etcd's members were last read %s ago, and %s is the limit", m.Age.Round(time.Second), t.MaxAge)
	}
	switch op.Kind {
	case AddLearner:
		return v.addLearner(m, t)
	case Remove, Depart:
		return v.leave(m, op, t)
	}
	return v.refuse(ReasonUnknown, "Ask for one of the kinds that there are", "%q is no operation", op.Kind)
}

// JudgeOneOf judges the departure of one member of which it is only known that it is one of these: each of them may go.
// So many others of them may be leaving already, of which it is known no better; then all of them are judged together.
func JudgeOneOf(m Membership, members []uint64, leaving int, t Terms) Verdict {
	if leaving > 0 || len(members) == 0 {
		return Judge(m, Operation{Kind: Depart, Members: members}, t)
	}
	var worst Verdict
	for i := range members {
		verdict := Judge(m, Operation{Kind: Depart, Members: members[i : i+1]}, t)
		if !verdict.Allowed {
			return verdict
		}
		if worst.Reason == "" {
			worst = verdict
		}
	}
	return worst
}

func (v Verdict) refuse(reason, wayOut, format string, args ...any) Verdict {
	v.Allowed, v.Reason, v.WayOut, v.Message = false, reason, wayOut, fmt.Sprintf(format, args...)
	return v
}

func (v Verdict) allow() Verdict {
	v.Allowed = true
	return v
}

func (v Verdict) allowWith(reason, format string, args ...any) Verdict {
	v.Allowed, v.Reason, v.Message = true, reason, fmt.Sprintf(format, args...)
	return v
}

// lost refuses what members have to agree on, when they cannot. Removing members without agreement is a restore, which
// is not judged here: a person asks for it.
func (v Verdict) lost() Verdict {
	const restore = "Bring back the hosts of members that do not answer, unless etcd is electing a leader, which takes " +
		"seconds; if they are gone for good, restore the cluster from one survivor or from a snapshot"
	if v.Before.Quorate() {
		return v.refuse(ReasonQuorumLost, restore, "etcd did not confirm its list of members, so it agrees on no change now")
	}
	return v.refuse(ReasonQuorumLost, restore, "etcd has no quorum to agree on it: %d of %d voters are healthy, and %d "+
		"are needed",
		v.Before.Healthy, v.Before.Voters, Majority(v.Before.Voters))
}
