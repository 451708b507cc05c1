// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// The latest five are kept, and one that took for ever does not decide what is expected of the next.
func TestPace(t *testing.T) {
	g := NewWithT(t)
	var pace Pace
	g.Expect(pace.Last()).To(BeZero())
	g.Expect(pace.Median()).To(BeZero())
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	after := func(took time.Duration) Machine { return Machine{Admitted: at, Since: at.Add(took)} }
	for _, minutes := range []int{9, 9, 4, 300, 5, 6, 7} {
		pace = pace.With(after(time.Duration(minutes)*time.Minute+time.Millisecond), 0)
	}
	g.Expect(pace).To(Equal(Pace{4 * time.Minute, 300 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute}))
	g.Expect(pace.Last()).To(Equal(7 * time.Minute))
	g.Expect(pace.Median()).To(Equal(6 * time.Minute))
	g.Expect(Pace{}.With(after(0), 0)).To(Equal(Pace{0}), "it was healthy when it was admitted")
	g.Expect(Pace{}.With(after(time.Hour), time.Hour)).To(Equal(Pace{time.Hour}))
	g.Expect(pace.With(after(-1), 0)).To(Equal(pace), "a clock that was set back measures nothing")
	g.Expect(pace.With(after(16*time.Hour), time.Hour)).To(Equal(pace), "it waited for somebody")
	g.Expect(pace.With(Machine{Since: at}, 0)).To(Equal(pace), "it was there before the policy")
}

// What is measured is from the admission until it is healthy, without the night that a person slept over it.
func TestHowLongAMachineTakesIsMeasured(t *testing.T) {
	for name, night := range map[string]time.Duration{"nobody asked": 0, "a person asked": 8 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFleet()
			blue := &deployment{name: "blue", replicas: 2, surge: 1, template: 1}
			blue.whole(f.now)
			blue.template++
			f.pools = []*deployment{blue}
			if night > 0 {
				f.policy.PauseAfter = quoinv1.RolloutPauseCanary
			}
			f.tell(3 * time.Minute)
			f.now = f.now.Add(night)
			f.policy.ContinueAfter = f.result.PausedAfter
			f.tell(time.Hour)
			g.Expect(blue.pace).To(HaveLen(2))
			for _, took := range blue.pace {
				g.Expect(took).To(BeNumerically("~", joinTakes, tick))
			}
		})
	}
}

// What is expected at each look of a rollout in which nothing goes wrong is what happens, and it is said steadily.
func TestWhenARolloutEndsIsExpected(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	for i, name := range []string{"blue", "green"} {
		d := &deployment{name: name, replicas: 4, surge: 2, template: 1 + 100*i}
		d.whole(f.now)
		d.template++
		f.pools = append(f.pools, d)
	}
	var said []time.Time
	end := time.Time{}
	for !f.settled() && len(said) < 1000 {
		f.decide()
		_, all := f.result.Expect(f.now)
		if f.pools[0].pace == nil {
			g.Expect(all).To(BeZero(), "nothing was measured yet")
		} else if len(f.result.Progress) > 0 && !f.settled() && !all.IsZero() {
			if next := Steady(end, all, f.now); !next.Equal(end) {
				said, end = append(said, next), next
			}
		}
		f.moves()
		f.now = f.now.Add(tick)
	}
	g.Expect(said).NotTo(BeEmpty())
	g.Expect(len(said)).To(BeNumerically("<", 12), "it is not said anew at each look: %v", said)
	// A Machine that is deleted leaves its host in half a minute, and one that is healthy counts at the next look, for
	// which nobody measures anything.
	g.Expect(said[0]).To(BeTemporally("~", f.now, 10*leaveTakes))
	g.Expect(said[len(said)-1]).To(BeTemporally("~", f.now, 2*leaveTakes))
}

// Nothing is expected where somebody is waited for, or what is on its way is late.
func TestNothingIsExpectedOfWhatWaits(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	blue := Progress{Pool: "blue", Reason: RollingOut, Pace: Pace{10 * time.Minute}, InFlight: 1,
		Left: Left{Machines: 4, AtOnce: 1, Latest: now.Add(-4 * time.Minute)}}
	green := Progress{Pool: "green", Reason: Previous, Left: Left{Machines: 3, AtOnce: 2, Alone: true}}
	ends, all := Result{Progress: []Progress{green, blue}}.Expect(now)
	g.Expect(ends).To(Equal(map[string]time.Time{"blue": now.Add(36 * time.Minute), "green": now.Add(56 * time.Minute)}))
	g.Expect(all).To(Equal(now.Add(56 * time.Minute)))
	late := func(by time.Duration) (time.Time, time.Time) {
		blue := blue
		blue.Pace = Pace{15 * time.Minute, 10 * time.Minute, 9 * time.Minute}
		ends, all := Result{Progress: []Progress{blue}}.Expect(now.Add(by))
		return ends["blue"], all
	}
	by, all := late(7 * time.Minute)
	g.Expect(by).To(Equal(now.Add(-4*time.Minute+16*time.Minute+30*time.Minute)), "the slowest of late and a minute")
	still, _ := late(9 * time.Minute)
	g.Expect(still).To(Equal(by), "an end does not move at each look")
	g.Expect(all).To(Equal(by))
	gone, all := late(12 * time.Minute)
	g.Expect(gone).To(BeZero(), "it takes longer than any did of late")
	g.Expect(all).To(BeZero())

	green.Reason = Suspended
	ends, all = Result{Progress: []Progress{green, blue}}.Expect(now)
	g.Expect(ends).To(Equal(map[string]time.Time{"blue": now.Add(36 * time.Minute)}))
	g.Expect(all).To(BeZero())
	_, all = Result{Progress: []Progress{blue}, Stalled: "Machine blue-4"}.Expect(now)
	g.Expect(all).To(BeZero())
	_, all = Result{}.Expect(now)
	g.Expect(all).To(BeZero())
}

// What a Machine took that counts now is without what a person took to look at it, and not known where nobody knows
// since when it was on its way.
func TestWhatAMachineTookWithoutAPerson(t *testing.T) {
	g := NewWithT(t)
	admitted := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	pool := Pool{Name: "blue", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
		Machines: []Machine{{Name: "old", Outdated: true, Hosted: true, Joined: true}, {Name: "new", Admitted: admitted,
			Hosted: true, Joined: true, Gated: true, Since: admitted.Add(3 * time.Minute)}}}
	policy := &quoinv1.RolloutPolicySpec{SoakSeconds: ptr.To[int32](60)}
	took := func() time.Duration {
		result := Plan(State{Pools: []Pool{pool}}, policy, admitted.Add(time.Hour))
		g.Expect(result.Decisions[0]).To(And(HaveField("Machine", "new"), HaveField("Action", Count)))
		return result.Decisions[0].Took
	}
	g.Expect(took()).To(Equal(time.Hour))
	policy.ContinueAfter = "old"
	g.Expect(took()).To(Equal(time.Hour))
	policy.ContinueAfter = "new"
	g.Expect(took()).To(Equal(4 * time.Minute))
	pool.Machines[1].Admitted = time.Time{}
	g.Expect(took()).To(BeZero(), "nobody knows since when it was on its way")
}

// What is left of a pool are the Machines that do not count, as many at once as its limits say.
func TestWhatIsLeftOfAPool(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	old := Machine{Outdated: true, Hosted: true, Joined: true}
	done := Machine{Hosted: true, Joined: true, Admitted: now}
	going := func(since time.Duration) Machine {
		return Machine{Hosted: true, Gated: true, Admitted: now.Add(-since)}
	}
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutPolicySpec)
		want   Left
	}{
		"nothing counts yet": {nil, Left{Machines: 3, AtOnce: 2, Alone: true}},
		"nothing is replaced": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines, p.Completed = nil, "2"
		}, Left{}},
		"a person deletes what is old": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.OnDelete = true }, Left{}},
		"each Machine soaks": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) { policy.SoakSeconds = ptr.To[int32](9) },
			Left{Machines: 3, AtOnce: 2, Alone: true, Soak: 9 * time.Second}},
		"some count": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Machines = append(p.Machines, done, done) },
			Left{Machines: 1, AtOnce: 2}},
		"a person looks at each": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			p.Machines, policy.PauseAfter = append(p.Machines, done), quoinv1.RolloutPauseEachMachine
		}, Left{Machines: 2, AtOnce: 1}},
		"a person looked at the first": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			p.Machines, policy.PauseAfter = append(p.Machines, done), quoinv1.RolloutPauseCanary
		}, Left{Machines: 2, AtOnce: 2}},
		"two are on their way": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, going(time.Hour), going(time.Minute), done)
		}, Left{Machines: 2, AtOnce: 2, Latest: now.Add(-time.Minute)}},
		"more are on their way than are missing": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, going(time.Minute), going(time.Hour), done, done)
		}, Left{Machines: 2, AtOnce: 2, Latest: now.Add(-time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Completed: "1", Stock: Limits{Surge: 1, Unavailable: 1},
				Machines: []Machine{old, old, old}}
			policy := &quoinv1.RolloutPolicySpec{}
			if c.change != nil {
				c.change(&pool, policy)
			}
			result := Plan(State{Pools: []Pool{pool}}, policy, now)
			NewWithT(t).Expect(result.Progress[0].Left).To(Equal(c.want))
		})
	}
}

// The first of a template goes alone and the rest in rounds, each of which takes as long as a Machine and its soak.
func TestHowLongTheRestTakes(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		left     Left
		inFlight int
		pace     Pace
		takes    time.Duration
	}{
		"two rounds":               {left: Left{Machines: 4, AtOnce: 2}, takes: 20 * time.Minute},
		"a round that is not full": {left: Left{Machines: 5, AtOnce: 2}, takes: 30 * time.Minute},
		"the first alone":          {left: Left{Machines: 4, AtOnce: 2, Alone: true}, takes: 30 * time.Minute},
		"the first is on its way": {left: Left{Machines: 4, AtOnce: 2, Alone: true, Latest: now}, inFlight: 1,
			takes: 30 * time.Minute},
		"others are on their way": {left: Left{Machines: 4, AtOnce: 2, Latest: now}, inFlight: 2, takes: 20 * time.Minute},
		"each soaks":              {left: Left{Machines: 4, AtOnce: 2, Soak: time.Minute}, takes: 22 * time.Minute},
		"it took as long as most": {left: Left{Machines: 1, AtOnce: 2, Latest: ago(10)}, inFlight: 1, takes: time.Minute},
		"it is slower than most": {left: Left{Machines: 1, AtOnce: 2, Latest: ago(12)}, inFlight: 1,
			pace: Pace{14 * time.Minute, 10 * time.Minute, 9 * time.Minute}, takes: 3 * time.Minute},
		"it soaks": {left: Left{Machines: 1, AtOnce: 2, Soak: time.Minute, Latest: ago(11)}, inFlight: 1,
			takes: time.Minute},
		"it is late": {left: Left{Machines: 1, AtOnce: 2, Latest: ago(11)}, inFlight: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if c.pace == nil {
				c.pace = Pace{10 * time.Minute}
			}
			first := Progress{Pool: "green", Reason: RollingOut, Pace: Pace{time.Hour}, Left: Left{Machines: 1, AtOnce: 1}}
			p := Progress{Pool: "blue", Reason: Previous, Pace: c.pace, InFlight: c.inFlight, Left: c.left}
			want := map[string]time.Time{"green": now.Add(time.Hour)}
			if c.takes > 0 {
				want["blue"] = now.Add(time.Hour + c.takes)
			}
			ends, all := Result{Progress: []Progress{p, first}}.Expect(now)
			g.Expect(ends).To(Equal(want))
			g.Expect(all).To(Equal(want["blue"]))
		})
	}
}

// The end that was said is said again until another one is a minute from it, or a tenth of the time that is left.
func TestAnEndIsSaidSteadily(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	steady := func(said, end time.Duration) time.Duration { return Steady(now.Add(said), now.Add(end), now).Sub(now) }
	g.Expect(steady(5*time.Minute, 6*time.Minute)).To(Equal(5 * time.Minute))
	g.Expect(steady(5*time.Minute, 6*time.Minute+time.Second)).To(Equal(6*time.Minute + time.Second))
	g.Expect(steady(90*time.Minute, 100*time.Minute)).To(Equal(90 * time.Minute))
	g.Expect(steady(110*time.Minute, 100*time.Minute)).To(Equal(110 * time.Minute))
	g.Expect(steady(100*time.Minute-time.Second-10*time.Minute, 100*time.Minute)).To(Equal(100 * time.Minute))
	g.Expect(steady(time.Hour, 2*time.Hour+time.Millisecond)).To(Equal(2 * time.Hour))
	g.Expect(steady(-time.Second, 0)).To(BeZero())
	g.Expect(Steady(now, time.Time{}, now)).To(BeZero())
}
