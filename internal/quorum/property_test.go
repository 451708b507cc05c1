// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// anyMembership draws one of up to nine members in any state.
func anyMembership(t *rapid.T) Membership {
	m := Membership{Known: rapid.IntRange(0, 19).Draw(t, "known") > 0,
		Age: time.Duration(rapid.IntRange(0, 100).Draw(t, "age")) * time.Second}
	for i := range rapid.IntRange(0, 9).Draw(t, "members") {
		member := Member{
			ID: uint64(i + 1), Machine: string(rune('a' + i)), Learner: rapid.IntRange(0, 5).Draw(t, "learner") == 0,
			Healthy: rapid.IntRange(0, 3).Draw(t, "healthy") > 0, Lag: rapid.SampledFrom([]uint64{0, 0, 0, 20, 5000}).
					Draw(t, "lag"),
			FailureDomain: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "domain"), Departing: rapid.IntRange(0, 4).
					Draw(t, "departing") == 0,
		}
		if !member.Healthy {
			member.Full, member.Unasked = rapid.Bool().Draw(t, "full"), rapid.Bool().Draw(t, "unasked")
			member.Silent = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "silent")
		}
		member.Held = member.Departing && rapid.Bool().Draw(t, "held")
		if member.Healthy || rapid.Bool().Draw(t, "started") {
			member.Name = "n-" + member.Machine
		}
		m.Members = append(m.Members, member)
	}
	// Members that are not healthy may agree all the same: those whose database is full do, and a reading may miss some.
	m.Agreed = m.Known && rapid.IntRange(0, 9).Draw(t, "agreed") > map[bool]int{true: 0, false: 6}[m.Count().Quorate()]
	return m
}

func anyOperation(t *rapid.T, m Membership) Operation {
	op := Operation{Kind: rapid.SampledFrom([]Kind{AddLearner, Remove, Remove, Depart, Depart}).Draw(t, "kind")}
	if len(m.Members) == 0 || op.Kind == AddLearner {
		return op
	}
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "how many") {
		if id := rapid.SampledFrom(m.Members).Draw(t, "which").ID; !slices.Contains(op.Members, id) {
			op.Members = append(op.Members, id)
		}
	}
	return op
}

func anyTerms(t *rapid.T) Terms {
	return Terms{Desired: rapid.SampledFrom([]int{0, 1, 3, 3, 5}).Draw(t, "desired"), Spare: rapid.Bool().Draw(t, "spare"),
		Lowered: rapid.Bool().Draw(t, "lowered"), MaxAge: rapid.SampledFrom([]time.Duration{0, 0, time.Minute}).
				Draw(t, "max age"), All: rapid.Bool().Draw(t, "all"),
		MaxLag:            rapid.SampledFrom([]uint64{0, 0, 10}).Draw(t, "max lag"),
		DeadMemberTimeout: rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Minute}).Draw(t, "dead after")}
}

// takesHealthyVoter reports whether an operation costs a vote that is cast now.
func takesHealthyVoter(m Membership, op Operation) bool {
	return slices.ContainsFunc(m.Members, func(member Member) bool {
		return slices.Contains(op.Members, member.ID) && !member.Learner && member.Healthy
	})
}

// missing says what is missing once members have left, counted here without the words of what is tested; empty when
// nothing is.
func missing(m Membership, op Operation, terms Terms) string {
	felt, limit := false, terms.MaxLag
	if limit == 0 {
		limit = DefaultMaxLag
	}
	var voters, healthy, sound, staying, soundStaying int
	for _, member := range m.Members {
		switch leaves := slices.Contains(op.Members, member.ID); {
		case member.Learner:
		case leaves:
			dead := !member.Healthy && !member.Full && !member.Unasked && member.Silent >= terms.DeadMemberTimeout
			felt = felt || !dead
		default:
			good := member.Healthy && member.Lag <= limit
			voters++
			if member.Healthy {
				healthy++
			}
			if good {
				sound++
			}
			if op.Kind == Depart && member.Departing && !member.Held {
				continue
			}
			staying++
			if good {
				soundStaying++
			}
		}
	}
	tolerated := (terms.Desired - 1) / 2
	if terms.Lowered {
		tolerated--
	}
	switch {
	case !m.Agreed:
		return "nobody agreed"
	case !felt:
		// Nothing is taken from the quorum, so one that is behind is as good as before.
		if 2*healthy <= voters {
			return fmt.Sprintf("%d of %d are left", healthy, voters)
		}
	case 2*sound <= voters || 2*soundStaying <= staying:
		return fmt.Sprintf("%d of %d are left, or %d of %d", sound, voters, soundStaying, staying)
	case terms.Desired == 0:
	case sound-voters/2-1 < tolerated || soundStaying-staying/2-1 < tolerated:
		return fmt.Sprintf("%d of %d are left, or %d of %d, and fewer than %d may fail", sound, voters, soundStaying, staying,
			tolerated)
	case !terms.Lowered && staying < terms.Desired, staying < terms.Desired-1:
		return fmt.Sprintf("%d voters are left of %d", staying, terms.Desired)
	}
	return ""
}

// What is allowed leaves a quorum, whatever else was asked, and what cannot be known is refused.
func TestWhatIsAllowedLeavesAQuorum(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		m := anyMembership(t)
		op, terms := anyOperation(t, m), anyTerms(t)
		v := Judge(m, op, terms)
		if !v.Allowed {
			if v.Reason == "" || v.Message == "" || v.WayOut == "" {
				t.Fatalf("a refusal without reason, message or way out: %+v", v)
			}
			return
		}
		if !m.Known || terms.MaxAge > 0 && m.Age > terms.MaxAge {
			t.Fatalf("allowed by what is not known: %+v", v)
		}
		concerns := slices.ContainsFunc(m.Members, func(member Member) bool { return slices.Contains(op.Members, member.ID) })
		switch op.Kind {
		case Remove, Depart:
			if !concerns {
				return
			}
			if problem := missing(m, op, terms); problem != "" {
				t.Fatalf("%s: %+v", problem, v)
			}
		case AddLearner:
			// The worst that a newcomer can do is to get a vote and never cast it.
			before := m.Count()
			worst := Count{Voters: before.Voters + 1, Healthy: before.Healthy}
			if !m.Agreed || !worst.Quorate() && before != (Count{Voters: 1, Healthy: 1, Learners: before.Learners}) {
				t.Fatalf("a newcomer that fails leaves %v", worst)
			}
			if terms.Desired > 0 && worst.Voters > terms.Desired+1 {
				t.Fatalf("%d voters where %d are wanted", worst.Voters, terms.Desired)
			}
		}
	})
}

// Departures that were allowed one after another are as safe as when they end at the same time.
func TestDeparturesDoNotMeet(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		m, terms := anyMembership(t), anyTerms(t)
		terms.Desired = rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "wanted")
		for i := range m.Members {
			m.Members[i].Departing, m.Members[i].Held = false, false
		}
		var gone []uint64
		healthy, dead := false, 0
		for range 4 {
			if len(m.Members) == 0 {
				return
			}
			member := rapid.SampledFrom(m.Members).Draw(t, "next")
			op := Operation{Kind: Depart, Members: []uint64{member.ID}}
			if member.Departing || !Judge(m, op, terms).Allowed {
				continue
			}
			gone = append(gone, member.ID)
			if takesHealthyVoter(m, op) {
				healthy = true
			} else if !member.Learner {
				dead++
			}
			for i := range m.Members {
				m.Members[i].Departing = m.Members[i].Departing || m.Members[i].ID == member.ID
			}
		}
		left := m.After(Operation{Kind: Remove, Members: gone}).Count()
		if healthy && !left.Quorate() {
			t.Fatalf("%v is left of %v", left, m.Count())
		}
		// What was dead is no loss, so it is not counted as one.
		if healthy && left.Voters+dead < terms.Desired-1 {
			t.Fatalf("%v is left of %d wanted voters, and %d were dead", left, terms.Desired, dead)
		}
	})
}

// A voter that stays and gets well never makes a departure unsafe.
func TestBetterSurvivorsNeverForbid(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		m, terms := anyMembership(t), anyTerms(t)
		op := anyOperation(t, m)
		if op.Kind != Remove && op.Kind != Depart || !Judge(m, op, terms).Allowed {
			return
		}
		better := m
		better.Members = slices.Clone(m.Members)
		for i := range better.Members {
			if member := &better.Members[i]; !slices.Contains(op.Members, member.ID) && rapid.Bool().Draw(t, "better") {
				member.Healthy, member.Lag, member.Name = true, 0, "n"
			}
		}
		if v := Judge(better, op, terms); !v.Allowed {
			t.Fatalf("refused when others are better: %+v", v)
		}
	})
}

// Neither the order of members nor a second look changes a verdict.
func TestVerdictDependsOnNothingElse(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		m := anyMembership(t)
		op, terms := anyOperation(t, m), anyTerms(t)
		first := Judge(m, op, terms)
		shuffled := m
		shuffled.Members = rapid.Permutation(slices.Clone(m.Members)).Draw(t, "order")
		if again := Judge(shuffled, op, terms); again.Allowed != first.Allowed || again.Reason != first.Reason &&
			len(m.Members) < 2 {
			t.Fatalf("%+v and then %+v", first, again)
		}
	})
}

// Majorities meet: that is all that keeps what was acknowledged.
func TestMajoritiesMeet(t *testing.T) {
	for n := 1; n <= 9; n++ {
		if 2*Majority(n) <= n || Tolerance(n) != n-Majority(n) {
			t.Errorf("two majorities of %d need not meet", n)
		}
		// Nor may a majority of n and one of n+1, of which one has all members of the other.
		if Majority(n)+Majority(n+1) <= n+1 {
			t.Errorf("a majority of %d and one of %d need not meet", n, n+1)
		}
	}
}
