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
	for _, minutes := range []time.Duration{9, 9, 4, 300, 5, 6, 7} {
		pace = pace.With(minutes*time.Minute + time.Millisecond)
	}
	g.Expect(pace).To(Equal(Pace{4 * time.Minute, 300 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute}))
	g.Expect(pace.Last()).To(Equal(7 * time.Minute))
	g.Expect(pace.Median()).To(Equal(6 * time.Minute))
	g.Expect(pace.With(-time.Second).Last()).To(BeZero(), "a clock that was set back measures nothing below nothing")
}

// What is measured is from the admission to the count, without the night that a person slept over it.
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
