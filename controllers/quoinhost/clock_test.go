// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// What was put off by a clock that is set back then is not put off for as long.
func TestNoAttemptWaitsForAClockThatWasSetBack(t *testing.T) {
	g := NewWithT(t)
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r := &reconciliation{host: &infrav1.QuoinHost{}, now: noon,
		controller: &Reconciler{Timings: DefaultTimings(), jitter: func() float64 { return 0 }}}
	g.Expect(r.backOff()).To(BeZero())
	for range 10 {
		wait := r.tryLater()
		g.Expect(r.backOff()).To(And(BeNumerically(">", 0), Equal(wait.requeueAfter)))
	}
	g.Expect(r.backOff()).To(Equal(r.timings().RetryLast))
	r.now = noon.Add(-time.Minute)
	g.Expect(r.backOff()).To(BeZero())
	r.now = noon.Add(-3 * time.Hour)
	g.Expect(r.backOff()).To(BeZero())
	r.tryLater()
	g.Expect(r.backOff()).To(Equal(r.timings().RetryLast), "it is put off anew")
	r.controller.Timings.RetryLast, r.controller.Timings.Inspect = time.Second, time.Second
	r.host.Status.NextAttempt = &metav1.Time{Time: r.now.Add(bootTime / 10)}
	g.Expect(r.backOff()).To(Equal(bootTime/10), "a host boots as long on quicker ones")
}

// A clock that is set forward by a day, or a manager that was frozen for one, makes no silent host dead, and ends no
// boot: nobody looked in that day.
func TestAStepOfTheClockMakesNoHostDead(t *testing.T) {
	g := NewWithT(t)
	wall, elapsed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), time.Duration(0)
	r := &reconciliation{host: &infrav1.QuoinHost{}, controller: &Reconciler{
		Clock: steady.From(func() time.Time { return wall }, func() time.Duration { return elapsed })}}
	r.host.Spec.BMC = &infrav1.BMC{}
	r.host.Status.UnreachableSince = &metav1.Time{Time: wall}
	meets := func(passes, step time.Duration, meet death) {
		t.Helper()
		wall, elapsed = wall.Add(passes+step), elapsed+passes
		r.now = r.controller.Clock.Now()
		g.Expect(r.unreachability(true, false).judge(r.now)).To(Equal(meet))
	}
	meets(time.Minute, 0, notYet)
	meets(time.Minute, 24*time.Hour, notYet)
	meets(defaultUnreachableTimeout, 0, cycle)
	r.host.Status.Power = &infrav1.HostPower{CycledAt: &metav1.Time{Time: wall}}
	meets(time.Minute, 24*time.Hour, booting)
	meets(bootTime, 0, fence)
}
