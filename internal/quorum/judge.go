// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import "time"

// Kind of an operation.
type Kind string

const (
	// AddLearner lets a new member join without a vote.
	AddLearner Kind = "AddLearner"
	// Promote gives a learner its vote.
	Promote Kind = "Promote"
	// Remove takes members out of the list.
	Remove Kind = "Remove"
	// Depart begins the way out of the Machines of members: drain, then Remove, then the host goes.
	Depart Kind = "Depart"
	// Restart stops members for a while; they come back with their data.
	Restart Kind = "Restart"
	// LoseFailureDomain asks what would be left without all members of a failure domain.
	LoseFailureDomain Kind = "LoseFailureDomain"
)

// Operation is what is to be done.
type Operation struct {
	Kind Kind
	// Members that it is about, by ID.
	Members []uint64
	// FailureDomain of LoseFailureDomain.
	FailureDomain string
}

// Terms are what a verdict depends on besides the membership.
type Terms struct {
	// Desired is the number of voters that the control plane wants.
	Desired int
	// Spare: a matching host is free, so that a replacement can be made before a departure.
	Spare bool
	// Lowered: for a departure, fewer failures may be tolerated afterwards than the desired number would tolerate, as long
	// as a quorum stays: there is no spare host, or the strategy removes first.
	Lowered bool
	// MaxLag is how many entries a replacement may be behind and still count as caught up; 1000 when 0.
	MaxLag uint64
	// MaxAge of the reading; unlimited when 0.
	MaxAge time.Duration
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
