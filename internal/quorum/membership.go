// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quorum judges what may be done to an etcd membership. It is pure: what was observed and what is to be done go
// in, a verdict on the membership after it comes out. One function answers for rollout, scale, remediation, admission,
// a person's delete and the release of a host, so none of them can be more careless than another.
package quorum

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Membership is an etcd cluster as last read.
type Membership struct {
	// Known: some member told the list. Agreed: a quorum confirmed it, so it can agree on a change now.
	Known, Agreed bool
	// Problem says why it is not known. Contradicts: because members speak for different clusters, of which one has a
	// quorum.
	Problem     string
	Contradicts bool
	// Alarm says which alarm keeps etcd from taking writes that is of no member in the list; empty when none does.
	Alarm string
	// Age of the reading; a verdict by an old one is worth less than none.
	Age     time.Duration
	Members []Member
}

// Member of etcd.
type Member struct {
	ID uint64
	// Name is that of the member's node; empty while the member has not started.
	Name string
	// Machine that it runs on; empty when none is known.
	Machine string
	// FailureDomain of the Machine; empty when it has none.
	FailureDomain string
	// Learner does not vote yet. Leader leads.
	Learner, Leader bool
	// Healthy: it answers, sees a leader and raises no alarm. Problem says what is wrong.
	Healthy bool
	Problem string
	// Full: its database has reached its quota, so it takes no writes. That is healthy for nobody, and the same in a new
	// member.
	Full bool
	// Unasked: nobody could tell whether it works, so it is no loss to be taken lightly.
	Unasked bool
	// Hearsay: its host is asked by nobody, and what is known of it other members tell: it works, but leadership cannot be
	// moved away from it, and how far behind it is nobody knows.
	Hearsay bool
	// Silent is how long it has not been healthy, as far as that is known, while others agreed.
	Silent time.Duration
	// Recalled is how much longer it has been silent by what another process has seen, which does not count before this
	// one has seen it for as long as makes a voter dead.
	Recalled time.Duration
	// Progress is how often one that hangs has written to its disk: as long as that grows it is slow, and not dead.
	Progress uint64
	// Lag is how many entries it has not applied that the furthest member has.
	Lag uint64
	// Size of its database in bytes.
	Size int64
	// Departing: its Machine is being deleted or gone, or a person has given it up. Held: but it has not been let go, and
	// stays until a verdict of its own. HeldBy says both.
	Departing, Held bool
}

// Started reports whether the member has run: etcd knows an added member's name only from itself.
func (m Member) Started() bool { return m.Name != "" }

// String names the member as a person would look for it.
func (m Member) String() string {
	switch {
	case m.Machine != "":
		return m.Machine
	case m.Name != "":
		return m.Name
	}
	return fmt.Sprintf("member %x", m.ID)
}

// leaving: it was let go, so it is no survivor of another departure.
func (m Member) leaving() bool { return m.Departing && !m.Held }

// Majority is the quorum of n voters: any two of that size have a member in common, so what one agreed on the next
// knows.
func Majority(voters int) int { return voters/2 + 1 }

// Tolerance is how many of n voters may fail while a quorum stays; negative of none, so that any quorum is enough where
// nobody wants a number.
func Tolerance(voters int) int { return voters - Majority(voters) }

// Count is a membership in numbers.
type Count struct {
	// Voters, those of them that are healthy, and learners.
	Voters, Healthy, Learners int
}

// Quorate reports whether the healthy voters are a quorum.
func (c Count) Quorate() bool { return c.Tolerates() >= 0 }

// Tolerates is how many more voters may fail while a quorum stays; negative without one.
func (c Count) Tolerates() int {
	return c.Healthy - Majority(c.Voters)
}

// String is like "3/4+1": healthy voters of all, and learners.
func (c Count) String() string {
	text := fmt.Sprintf("%d/%d", c.Healthy, c.Voters)
	if c.Learners > 0 {
		text += fmt.Sprintf("+%d", c.Learners)
	}
	return text
}

// Count counts.
func (m Membership) Count() Count {
	return m.count(func(member Member) bool { return member.Healthy })
}

func (m Membership) count(healthy func(Member) bool) Count {
	var c Count
	for _, member := range m.Members {
		switch {
		case member.Learner:
			c.Learners++
		default:
			c.Voters++
			if healthy(member) {
				c.Healthy++
			}
		}
	}
	return c
}

// StandsWithout reports whether a quorum confirmed the list and still stays when the host of this Machine is off, with
// its member in the list. Whether that is healthy says little: one that cannot be reached may vote. Unless it is dead,
// others that were let go are no survivors, because their hosts may be off next. Where no member is known to be the
// Machine's, those that no Machine is known to run may be.
func (m Membership) StandsWithout(machine string) bool {
	if !slices.ContainsFunc(m.Members, func(member Member) bool { return member.Machine == machine }) {
		machine = ""
	}
	dead := !slices.ContainsFunc(m.Members, func(member Member) bool {
		return member.Machine == machine && member.State(Forever) != MemberDead
	})
	others := m.count(func(member Member) bool {
		return member.Healthy && member.Machine != machine && (dead || !member.leaving())
	})
	return m.Agreed && others.Quorate()
}

// Member with an ID.
func (m Membership) Member(id uint64) (Member, bool) {
	for _, member := range m.Members {
		if member.ID == id {
			return member, true
		}
	}
	return Member{}, false
}

// After is the membership when an operation is done: a member that was added has not started.
func (m Membership) After(op Operation) Membership {
	after := m
	after.Members = slices.Clone(m.Members)
	switch op.Kind {
	case AddLearner:
		added := Member{Learner: true, Problem: "it has not started"}
		if len(op.Members) > 0 {
			added.ID = op.Members[0]
		}
		after.Members = append(after.Members, added)
	case Remove, Depart:
		after.Members = slices.DeleteFunc(after.Members, func(member Member) bool {
			return slices.Contains(op.Members, member.ID)
		})
	}
	after.Agreed = m.Agreed && after.Count().Quorate()
	return after
}

// names of the members that a condition holds for.
func (m Membership) names(which func(Member) bool) []string {
	var names []string
	for _, member := range m.Members {
		if which(member) {
			names = append(names, member.String())
		}
	}
	return names
}

// sick names the voters that are not healthy.
func (m Membership) sick() []string {
	return m.names(func(member Member) bool { return !member.Learner && !member.Healthy })
}

// mend is the way out when voters are not healthy. A database that is full comes first: until there is room nothing can
// be written, so no replacement helps, and none can join.
func (m Membership) mend(fallback string) string {
	full := m.names(func(member Member) bool { return !member.Learner && !member.Healthy && member.Full })
	switch {
	case len(full) == 0:
		return fallback
	case len(full) < len(m.sick()):
		return "First make room in the database of " + list(full) + ": " + MakeRoom + ". Then: " + fallback
	}
	return "Make room in the database of " + list(full) + ": " + MakeRoom
}

// MakeRoom is what ends the alarm NOSPACE.
const MakeRoom = "compact etcd, defragment each member, then disarm the alarm (etcdctl compact, defrag, alarm disarm)"

// CheckData is what ends the alarm CORRUPT of no member in the list. A newcomer copies the data of the leader, and a
// recovery needs etcd's manifest on the one host, and is refused while there is a quorum.
const CheckData = "compare the data of all members (etcdctl endpoint hashkv --cluster), and once they are the same, " +
	"disarm the alarm (etcdctl alarm disarm). If one goes on to differ from the others, move the lead off it (etcdctl " +
	"move-leader), disarm the alarm, and have its Machine replaced: annotate it with cluster.x-k8s.io/remediate-machine." +
	" If nobody knows whose are whole, stop etcd on all hosts but one, and recover that one from a snapshot " +
	"(docs/disaster-recovery.md)"

// list joins names for a sentence.
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func orElse(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
