// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import "time"

// Terms are what a verdict depends on besides the membership. They come from what somebody is about to do.
type Terms struct {
	// Desired is the number of voters that the control plane wants. When 0 nothing but the quorum counts.
	Desired int
	// Spare: a matching host is free, so that a replacement can be made before a departure. It decides what a refusal
	// advises.
	Spare bool
	// Lowered: for Depart and Remove, fewer failures may be tolerated afterwards than the desired number would tolerate,
	// as long as a quorum stays: there is no spare host, or the strategy removes first.
	Lowered bool
	// MaxLag is how many entries a voter may be behind and still count as caught up; DefaultMaxLag when 0.
	MaxLag uint64
	// MaxAge of the reading; unlimited when 0.
	MaxAge time.Duration
	// All: for AddLearner, each member must answer. kubeadm join asks every member in the list before it adds one
	// (check-etcd; up to v1.36 one that does not answer ends the join, however many do), so a dead one is removed first.
	All bool
	// DeadMemberTimeout is how long a voter must have been silent before its departure or removal counts as no loss. One
	// that restarts, or that one reading missed, is not dead.
	DeadMemberTimeout time.Duration
}

// DefaultMaxLag is how many entries behind the furthest member still is caught up. Members are not read at the same
// instant, so a busy cluster shows some lag that is none.
const DefaultMaxLag = 1000

// ToJoin are the terms of a join by kubeadm.
func ToJoin(desired int) Terms { return Terms{Desired: desired, All: true} }

// ToLeave are the terms of a departure after which nothing is missing: a replacement votes, or none is wanted. spare
// says that one can still be made.
func ToLeave(desired int, spare bool, deadAfter time.Duration) Terms {
	return Terms{Desired: desired, Spare: spare, DeadMemberTimeout: deadAfter}
}

// ToLeaveFirst are the terms of a departure before the replacement votes: one member less and one failure less, as long
// as a quorum stays.
func ToLeaveFirst(desired int, deadAfter time.Duration) Terms {
	return Terms{Desired: desired, Lowered: true, DeadMemberTimeout: deadAfter}
}

// ToBeDeleted are the terms of a deletion that a person asks for, by a reading that may be so old: no replacement votes
// yet, and which voter is dead the reading says itself (Member.As).
func ToBeDeleted(desired int, maxAge time.Duration) Terms {
	terms := ToLeaveFirst(desired, Forever)
	terms.MaxAge = maxAge
	return terms
}

// ByQuorumAlone are the terms of what has to go, however many are wanted: a quorum stays, and no more is asked.
func ByQuorumAlone(deadAfter time.Duration) Terms { return ToLeaveFirst(0, deadAfter) }
