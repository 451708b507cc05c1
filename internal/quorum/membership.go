// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quorum judges what may be done to an etcd membership. It is pure: what was observed and what is to be done go in,
// a verdict on the membership after it comes out. One function answers for rollout, scale, remediation, in-place work,
// admission, a person's delete and the release of a host, so none of them can be more careless than another.
package quorum

import "time"

// Membership is an etcd cluster as last read.
type Membership struct {
	// Known: some member told the list. Agreed: a quorum confirmed it, so it can agree on a change now.
	Known, Agreed bool
	// Problem says why it is not known.
	Problem string
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
	// Lag is how many entries it has not applied that the furthest member has.
	Lag uint64
	// Size of its database in bytes.
	Size int64
	// Departing: its Machine is being deleted, so it is no survivor of anything.
	Departing bool
}

// Started tells that the member has run: etcd knows an added member's name only from itself.
func (m Member) Started() bool { return m.Name != "" }

// Majority is the quorum of n voters.
func Majority(voters int) int { return voters/2 + 1 }

// Count is a membership in numbers.
type Count struct {
	// Voters, those of them that are healthy, and learners.
	Voters, Healthy, Learners int
}

// Tolerates is how many more voters may fail while a quorum stays; negative without one.
func (c Count) Tolerates() int {
	if c.Voters == 0 {
		return -1
	}
	return c.Healthy - Majority(c.Voters)
}

// Count counts.
func (m Membership) Count() Count {
	var c Count
	for _, member := range m.Members {
		switch {
		case member.Learner:
			c.Learners++
		default:
			c.Voters++
			if member.Healthy {
				c.Healthy++
			}
		}
	}
	return c
}
