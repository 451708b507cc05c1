// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const bound = 10 * time.Minute

func TestMemberState(t *testing.T) {
	for name, test := range map[string]struct {
		member               Member
		state                MemberState
		votes, counts, works bool
	}{
		"learner":                     {Member{Learner: true}, MemberLearner, false, false, false},
		"learner that works":          {Member{Learner: true, Healthy: true}, MemberLearner, false, false, false},
		"learner, silent for long":    {Member{Learner: true, Silent: time.Hour}, MemberLearner, false, false, false},
		"voter that works":            {Member{Healthy: true}, MemberHealthy, true, true, true},
		"works since a moment":        {Member{Healthy: true, Silent: time.Hour}, MemberHealthy, true, true, true},
		"full":                        {Member{Full: true, Silent: time.Hour}, MemberFull, true, true, true},
		"asked by nobody":             {Member{Unasked: true, Silent: time.Hour}, MemberUnasked, true, true, true},
		"missed by one reading":       {Member{}, MemberWavering, true, true, false},
		"silent for a bit less":       {Member{Silent: bound - 1}, MemberWavering, true, true, false},
		"silent for as long":          {Member{Silent: bound}, MemberDead, true, false, false},
		"hangs, and its disk goes on": {Member{Progress: 7, Silent: bound - 1}, MemberSlow, true, true, true},
		"hung where it is":            {Member{Progress: 7, Silent: bound}, MemberDead, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := test.member.State(bound)
			g.Expect(state).To(Equal(test.state))
			g.Expect([]bool{state.Votes(), state.Counts(), state.Works()}).To(
				Equal([]bool{test.votes, test.counts, test.works}), "votes, counts, works")
		})
	}
	g := NewWithT(t)
	for _, without := range []MemberState{MemberNone, MemberUnknown, MemberJoining} {
		g.Expect([]bool{without.Votes(), without.Counts(), without.Works()}).To(HaveEach(BeFalse()), "%s", without)
	}
}

// Silence counts only of who fails by itself: a full database and an unasked host are no death.
func TestFailing(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Member{}.Failing()).To(BeTrue())
	g.Expect(Member{Learner: true}.Failing()).To(BeTrue())
	for _, member := range []Member{{Healthy: true}, {Full: true}, {Unasked: true}} {
		g.Expect(member.Failing()).To(BeFalse(), "%+v", member)
	}
}

func TestHeldBy(t *testing.T) {
	g := NewWithT(t)
	read := Membership{Known: true, Members: []Member{
		{ID: 1, Machine: "stays", FailureDomain: "x", Departing: true, Held: true},
		{ID: 2, Machine: "kept"}, {ID: 3, Machine: "leaves"}, {ID: 4, Machine: "gone", Held: true},
		{ID: 5}, {ID: 6, Departing: true}}}
	held := read.HeldBy([]Holder{{Name: "stays"}, {Name: "kept", FailureDomain: "y", Deleting: true, Held: true},
		{Name: "leaves", Deleting: true}}, []uint64{5})
	g.Expect(held.Members).To(Equal([]Member{
		{ID: 1, Machine: "stays", FailureDomain: "x"},
		{ID: 2, Machine: "kept", FailureDomain: "y", Departing: true, Held: true},
		{ID: 3, Machine: "leaves", Departing: true},
		{ID: 4, Machine: "gone", Departing: true},
		{ID: 5, Departing: true}, {ID: 6}}))
	g.Expect(held.Known).To(BeTrue())
	g.Expect(read.Members[1].Departing).To(BeFalse(), "what was read stays as it is")
}
