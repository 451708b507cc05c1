// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

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
	g.Expect(pace.With(after(-time.Second), 0)).To(Equal(pace), "a clock that was set back measures nothing")
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

	g.Expect(Steady(now.Add(time.Hour), now.Add(time.Hour+5*time.Minute), now)).To(Equal(now.Add(time.Hour)))
	g.Expect(Steady(now.Add(time.Hour), now.Add(time.Hour+8*time.Minute), now)).To(Equal(now.Add(time.Hour + 8*time.Minute)))
	g.Expect(Steady(now.Add(-time.Second), now, now)).To(Equal(now))
	g.Expect(Steady(now, time.Time{}, now)).To(BeZero())
}
