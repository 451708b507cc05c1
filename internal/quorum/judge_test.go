// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func threeHealthy() Membership {
	return Membership{Known: true, Agreed: true,
		Members: []Member{{ID: 1, Healthy: true}, {ID: 2, Healthy: true}, {ID: 3, Healthy: true}}}
}

// A verdict by an old reading is worth less than none; where nobody says what is old, nothing is.
func TestAnOldReadingIsNotJudged(t *testing.T) {
	g := NewWithT(t)
	m := threeHealthy()
	for _, test := range []struct {
		age, limit time.Duration
		outdated   bool
	}{
		{time.Hour, 0, false}, {2, 1, true}, {1, 1, false},
		{time.Minute, time.Minute, false}, {time.Minute + 1, time.Minute, true},
	} {
		m.Age = test.age
		verdict := Judge(m, Operation{Kind: Remove, Members: []uint64{1}}, Terms{MaxAge: test.limit})
		g.Expect(verdict.Reason == ReasonOutdated).To(Equal(test.outdated), "%s of %s", test.age, test.limit)
		g.Expect(verdict.Allowed).To(Equal(!test.outdated))
	}
}

func TestWhatIsNoOperationIsRefused(t *testing.T) {
	g := NewWithT(t)
	verdict := Judge(threeHealthy(), Operation{Kind: "Move"}, Terms{})
	g.Expect(verdict.Allowed).To(BeFalse())
	g.Expect(verdict.Message).To(Equal(`"Move" is no operation`))
	g.Expect(verdict.Before).To(Equal(Count{Voters: 3, Healthy: 3}))
}

func TestMembership(t *testing.T) {
	g := NewWithT(t)
	m := Membership{Known: true, Agreed: true, Members: []Member{{ID: 1, Name: "n", Machine: "m", Healthy: true},
		{ID: 2, Name: "o", Healthy: true}, {ID: 0x2a}}}
	for i, name := range []string{"m", "o", "member 2a"} {
		g.Expect(m.Members[i].String()).To(Equal(name))
	}
	member, found := m.Member(2)
	g.Expect(found).To(BeTrue())
	g.Expect(member.Name).To(Equal("o"))
	_, found = m.Member(3)
	g.Expect(found).To(BeFalse())
	g.Expect(Count{}.Tolerates()).To(Equal(-1), "nobody is no quorum")

	added := m.After(Operation{Kind: AddLearner, Members: []uint64{7}})
	g.Expect(added.Members[3]).To(Equal(Member{ID: 7, Learner: true, Problem: "it has not started"}))
	g.Expect(added.Agreed).To(BeTrue())
	g.Expect(m.After(Operation{Kind: AddLearner}).Members[3].ID).To(BeZero(), "nobody knows its number yet")
	g.Expect(m.After(Operation{Kind: Remove, Members: []uint64{1}}).Agreed).To(BeFalse(), "one of two is left")
	m.Agreed = false
	g.Expect(m.After(Operation{Kind: Remove, Members: []uint64{0x2a}}).Agreed).To(BeFalse(), "nobody agrees meanwhile")
}

// Of a Machine whose member is not known any member without a Machine may be the one that goes.
func TestAMemberThatIsOneOfSeveralIsJudgedAsEach(t *testing.T) {
	g := NewWithT(t)
	m := threeHealthy()
	m.Members = append(m.Members, Member{ID: 4}, Member{ID: 5, Healthy: true})
	terms := ToLeaveFirst(5, time.Minute)
	dead := terms
	dead.DeadMemberTimeout = 0
	for name, test := range map[string]struct {
		members []uint64
		leaving int
		terms   Terms
		reason  string
		allowed bool
	}{
		"nobody":                         {nil, 0, terms, "", true},
		"one that is dead":               {[]uint64{4}, 0, dead, ReasonToleranceLowered, true},
		"the dead one, or a healthy one": {[]uint64{4, 5}, 0, dead, ReasonQuorumAtRisk, false},
		"a healthy one, or the dead one": {[]uint64{5, 4}, 0, dead, ReasonQuorumAtRisk, false},
	} {
		verdict := JudgeOneOf(m, test.members, test.leaving, test.terms)
		g.Expect(verdict.Allowed).To(Equal(test.allowed), "%s: %s", name, verdict.Message)
		g.Expect(verdict.Reason).To(Equal(test.reason), name)
	}

	m.Members[3].Healthy = true
	g.Expect(JudgeOneOf(m, []uint64{4, 5}, 0, terms).Reason).To(Equal(ReasonToleranceLowered))
	g.Expect(JudgeOneOf(m, []uint64{4, 5}, 1, terms).Reason).To(Equal(ReasonOneAtATime))
	g.Expect(JudgeOneOf(Membership{}, nil, 0, terms).Reason).To(Equal(ReasonUnknown), "nobody knows that there is none")
	// What is lost meanwhile is said whichever goes.
	m.Members = append(m.Members, Member{ID: 6, Learner: true})
	for _, members := range [][]uint64{{5, 6}, {6, 5}} {
		g.Expect(JudgeOneOf(m, members, 0, terms).Reason).To(Equal(ReasonToleranceLowered))
	}
}
