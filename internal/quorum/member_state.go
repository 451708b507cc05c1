// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"math"
	"time"
)

// MemberState is what a Machine is worth to etcd. Whether a member counts, works or is dead is asked here alone, so
// that nobody takes for dead what somebody else counts on.
type MemberState string

// The states of a Machine, from nothing to a vote.
const (
	// MemberNone: it has no member, and none is on its way.
	MemberNone MemberState = "None"
	// MemberUnknown: it may have a member. Etcd was not read, or a member is in the list that no Machine is known to run.
	MemberUnknown MemberState = "Unknown"
	// MemberJoining: it has no member, and its bootstrap, which may add one, runs.
	MemberJoining MemberState = "Joining"
	// MemberLearner: its member does not vote yet.
	MemberLearner MemberState = "Learner"
	// MemberHealthy: its member votes and works.
	MemberHealthy MemberState = "Healthy"
	// MemberFull: its member votes, and its database takes no writes. That is the same in a new one.
	MemberFull MemberState = "Full"
	// MemberUnasked: nobody could tell whether its voter works.
	MemberUnasked MemberState = "Unasked"
	// MemberSlow: its voter hangs, and its disk comes further: it may be slow for ever without being dead.
	MemberSlow MemberState = "Slow"
	// MemberWavering: its voter was healthy a moment ago, and may be back as soon.
	MemberWavering MemberState = "Wavering"
	// MemberDead: its voter has not been healthy for so long that nobody counts on it any more.
	MemberDead MemberState = "Dead"
)

// Votes reports whether there is a vote, cast or not.
func (s MemberState) Votes() bool { return s.Counts() || s == MemberDead }

// Counts reports whether the loss of the vote would be felt: somebody counts on it, or has to.
func (s MemberState) Counts() bool { return s.Works() || s == MemberWavering }

// Works reports whether the vote is cast, or may be: nothing is wrong with the member that would pass by itself.
func (s MemberState) Works() bool {
	switch s {
	case MemberHealthy, MemberFull, MemberUnasked, MemberSlow:
		return true
	}
	return false
}

// State of a member, where a voter is dead that has been silent for so long.
func (m Member) State(deadAfter time.Duration) MemberState {
	switch {
	case m.Learner:
		return MemberLearner
	case m.Healthy:
		return MemberHealthy
	case m.Full:
		return MemberFull
	case m.Unasked:
		return MemberUnasked
	case m.Silent >= deadAfter:
		return MemberDead
	case m.Progress > 0:
		return MemberSlow
	}
	return MemberWavering
}

// Forever is longer than anybody waits for a member: a voter is dead after it if that was said, and not by any time
// that passes.
const Forever = time.Duration(math.MaxInt64)

// As is the member as one that was found in this state, where nobody tells why; State with Forever says it again. A
// learner says itself that it is one, and a healthy one that it is healthy. Without a state a voter wavers that is not
// healthy: since when is not known.
func (m Member) As(state MemberState) Member {
	switch state {
	case MemberFull:
		m.Full = true
	case MemberUnasked:
		m.Unasked = true
	case MemberSlow:
		m.Progress = 1
	case MemberDead:
		m.Silent = Forever
	}
	return m
}

// Failing reports whether the member does not work, and for a reason of its own: its silence counts.
func (m Member) Failing() bool { return !m.Healthy && !m.Full && !m.Unasked }

// Shortcoming says, after the member's name, why it is no voter that works; empty when it is one.
func (m Member) Shortcoming() string {
	switch {
	case m.Learner:
		return "is a learner that still copies the data"
	case !m.Healthy:
		return "is not healthy: " + m.Problem
	}
	return ""
}

// Holder is a Machine as far as the membership goes.
type Holder struct {
	Name, FailureDomain string
	// Deleting: it is being deleted. Held: but its drain was not approved, so that meanwhile its member is as good as any.
	Deleting, Held bool
}

// HeldBy is the membership with what is known of its Machines. A member departs with its Machine; without one, when a
// person has given it up.
func (m Membership) HeldBy(holders []Holder, givenUp []uint64) Membership {
	byName := map[string]Holder{}
	for _, holder := range holders {
		byName[holder.Name] = holder
	}
	held := m
	held.Members = make([]Member, 0, len(m.Members))
	for _, member := range m.Members {
		holder, known := byName[member.Machine]
		switch {
		case known:
			member.Departing, member.Held = holder.Deleting, holder.Held
			member.FailureDomain = orElse(holder.FailureDomain, member.FailureDomain)
		case member.Machine != "":
			// The Machine is gone, and the member goes next.
			member.Departing, member.Held = true, false
		default:
			member.Departing, member.Held = false, false
			for _, id := range givenUp {
				member.Departing = member.Departing || id == member.ID
			}
		}
		held.Members = append(held.Members, member)
	}
	return held
}
