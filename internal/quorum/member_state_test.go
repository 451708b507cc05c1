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
		"hangs, and wrote once":       {Member{Progress: 1}, MemberSlow, true, true, true},
		"hangs, and its disk goes on": {Member{Progress: 7, Silent: bound - 1}, MemberSlow, true, true, true},
		"hung where it is":            {Member{Progress: 7, Silent: bound}, MemberDead, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := test.member.State(bound)
			g.Expect(state).To(Equal(test.state))
			g.Expect([]bool{state.Votes(), state.Counts(), state.Works()}).To(
				Equal([]bool{test.votes, test.counts, test.works}), "votes, counts, works")
			found := Member{Learner: test.member.Learner, Healthy: test.member.Healthy}.As(state)
			g.Expect(found.State(Forever)).To(Equal(state), "as somebody found it")
		})
	}
	g := NewWithT(t)
	g.Expect(Member{}.As("").State(Forever)).To(Equal(MemberWavering))
	g.Expect(Member{Healthy: true}.As("").State(Forever)).To(Equal(MemberHealthy))
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

func TestShortcoming(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Member{Healthy: true}.Shortcoming()).To(BeEmpty())
	g.Expect(Member{Problem: "it hangs"}.Shortcoming()).To(Equal("is not healthy: it hangs"))
	for _, learner := range []Member{{Learner: true}, {Learner: true, Healthy: true}} {
		g.Expect(learner.Shortcoming()).To(Equal("is a learner that still copies the data"))
	}
}

// What each purpose comes to, with three wanted and three that work, of which one goes.
func TestTermsByPurpose(t *testing.T) {
	g := NewWithT(t)
	g.Expect(ToJoin(3)).To(Equal(Terms{Desired: 3, All: true}))
	g.Expect(ToLeave(3, true, bound)).To(Equal(Terms{Desired: 3, Spare: true, DeadMemberTimeout: bound}))
	g.Expect(ToLeaveFirst(3, bound)).To(Equal(Terms{Desired: 3, Lowered: true, DeadMemberTimeout: bound}))
	g.Expect(ToBeDeleted(3, bound)).To(Equal(Terms{Desired: 3, Lowered: true, MaxAge: bound, DeadMemberTimeout: Forever}))
	g.Expect(ByQuorumAlone(bound)).To(Equal(Terms{Lowered: true, DeadMemberTimeout: bound}))
	m := threeHealthy()
	one := Operation{Kind: Remove, Members: []uint64{1}}
	g.Expect(Judge(m, one, ToLeave(3, true, bound)).Reason).To(Equal(ReasonReplacementFirst))
	g.Expect(Judge(m, one, ToLeave(3, false, bound)).Reason).To(Equal(ReasonNoSpareHost))
	g.Expect(Judge(m, one, ToLeaveFirst(3, bound)).Allowed).To(BeTrue())
	g.Expect(Judge(m, one, ToLeaveFirst(5, bound)).Allowed).To(BeFalse(), "one member less, and no more")
	g.Expect(Judge(m, one, ByQuorumAlone(bound)).Allowed).To(BeTrue())
}
