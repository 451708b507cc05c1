// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// What Machines took is in the status, and what was measured before is not lost.
func TestWhatMachinesTakeIsInTheStatus(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	w.reconcile()
	for i, name := range []string{"new-0", "new-1"} {
		w.clock.Step(time.Duration(i+1) * time.Minute)
		w.joins(name)
		w.clock.Step(time.Minute)
		w.reconcile()
	}
	blue := w.policy().Status.MachineDeployments[0]
	w.Expect(blue.RecentMachineSeconds).To(Equal([]int32{60, 120}))
	w.Expect(blue.LastMachineSeconds).To(HaveValue(BeEquivalentTo(120)))
	w.Expect(blue.MedianMachineSeconds).To(HaveValue(BeEquivalentTo(120)))
}

// Since when something is its reason is of each reason, however its message changes and whatever process looks.
//
// Proves: C16
func TestAReasonHasItsOwnBeginning(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	looks := func(later time.Duration, reason rollout.Reason, since time.Duration) {
		t.Helper()
		w.clock.Step(later)
		w.restart()
		w.reconcile()
		blue := w.policy().Status.MachineDeployments[0]
		w.Expect(blue.Reason).To(Equal(string(reason)), blue.Message)
		w.Expect(w.clock.Since(blue.Since.Time)).To(Equal(since), blue.Message)
	}
	looks(time.Minute, rollout.RollingOut, 0)
	w.joins("new-0")
	looks(10*time.Second, rollout.RollingOut, 10*time.Second)
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.PauseAfter = quoinv1.RolloutPauseCanary })
	looks(time.Minute, rollout.Paused, 0)
	looks(time.Hour, rollout.Paused, time.Hour)
	blue := w.blue()
	w.adjust(blue, func() { blue.Spec.Paused = ptr.To(true) })
	looks(time.Minute, rollout.Suspended, 0)
	w.adjust(blue, func() { blue.Spec.Paused = nil })
	looks(time.Minute, rollout.Paused, 0)
}

// While it is paused a policy says so, since when and by what, in its column, of each MachineDeployment and by its
// metrics, whatever it said before, and expects no end. It says it once, and goes on where it was.
func TestAPausedPolicySaysSo(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	policy, cluster := w.policy(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	for by, pause := range map[string]func(paused bool){
		"Cluster spec.paused is set to true": func(paused bool) {
			w.adjust(cluster, func() { cluster.Spec.Paused = ptr.To(paused) })
		},
		"RolloutPolicy has the cluster.x-k8s.io/paused annotation": func(paused bool) {
			w.adjust(policy, func() {
				policy.Annotations = nil
				if paused {
					policy.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
				}
			})
		},
	} {
		w.reconcile()
		w.Expect(w.row()).To(ContainSubstring(" RollingOut "))
		going := w.policy()
		going.Status.ExpectedEnd = ptr.To(metav1.NewTime(w.clock.Now()))
		going.Status.MachineDeployments[0].ExpectedEnd = going.Status.ExpectedEnd
		w.Expect(w.client.Status().Update(t.Context(), going)).To(Succeed())
		w.recorded()
		pause(true)
		w.reconcile()
		said, since := w.policy(), conditions.GetLastTransitionTime(w.policy(), quoinv1.RolloutPolicyPausedCondition)
		why := fmt.Sprintf("paused since %s: %s; take that back to go on", since.UTC().Format(time.RFC3339), by)
		w.Expect(w.row()).To(Equal("workers c1 0/3 1 0 - Paused - False"))
		w.Expect(w.message(quoinv1.RolloutPolicyProgressingCondition)).To(Equal(why))
		w.Expect(w.recorded()).To(ConsistOf("Normal Paused " + why))
		blue := said.Status.MachineDeployments[0]
		w.Expect([]string{blue.Reason, blue.Message}).To(Equal([]string{"Paused", why}))
		w.Expect(blue.Since.Time).To(BeTemporally("==", since.Time))
		w.Expect(blue.ExpectedEnd).To(BeNil())
		w.Expect(testutil.ToFloat64(info.WithLabelValues(namespace, "c1", "blue", "Paused"))).To(BeEquivalentTo(1))
		w.clock.Step(time.Hour)
		w.restart()
		w.reconcile()
		w.Expect(w.policy().ResourceVersion).To(Equal(said.ResourceVersion))
		pause(false)
		w.reconcile()
		w.Expect(w.row()).To(ContainSubstring(" RollingOut "))
		w.Expect(w.policy().Status.MachineDeployments[0].Reason).To(Equal("RollingOut"))
	}
}

// pauses and resumes a policy, by what is paused.
var pauses = map[string]func(w *world, paused bool){
	"the Cluster": func(w *world, paused bool) {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
		w.adjust(cluster, func() { cluster.Spec.Paused = ptr.To(paused) })
	},
	"the policy": func(w *world, paused bool) {
		policy := w.policy()
		w.adjust(policy, func() {
			policy.Annotations = nil
			if paused {
				policy.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			}
		})
	},
}

// isPausedFor so long, and resumed; nobody looked since. Cluster API's condition knows no clock of a test.
func (w *world) isPausedFor(long time.Duration, pause func(w *world, paused bool)) {
	w.t.Helper()
	changes := func(status metav1.ConditionStatus, reason string) {
		policy := w.policy()
		for i := range policy.Status.Conditions {
			if c := &policy.Status.Conditions[i]; c.Type == quoinv1.RolloutPolicyPausedCondition {
				c.Status, c.Reason, c.LastTransitionTime = status, reason, metav1.NewTime(w.clock.Now())
				c.Message = map[bool]string{true: c.Message}[status == metav1.ConditionTrue]
			}
		}
		w.Expect(w.client.Status().Update(w.t.Context(), policy)).To(Succeed())
	}
	pause(w, true)
	w.reconcile()
	changes(metav1.ConditionTrue, clusterv1.PausedReason)
	w.reconcile()
	w.clock.Step(long)
	w.reconcile()
	pause(w, false)
	changes(metav1.ConditionFalse, clusterv1.NotPausedReason)
}

// What is remembered of times ends later by a pause, which is over; nothing does that was not paused, or by a clock
// that is behind.
func TestWhatIsRememberedIsLaterByAPause(t *testing.T) {
	g, began := NewWithT(t), metav1.NewTime(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
	before := func(minutes int) metav1.Time { return metav1.NewTime(began.Add(-time.Duration(minutes) * time.Minute)) }
	former := func(reason string, trial, lost metav1.Time) quoinv1.RolloutProgress {
		return quoinv1.RolloutProgress{Name: "blue", Reason: reason, Since: began, RolloutRecord: quoinv1.RolloutRecord{
			Trial:  quoinv1.RolloutTrial{MachineSet: "v2", Since: trial},
			Proved: []quoinv1.RolloutProvedMachine{{Name: "a", Since: before(9), Lost: lost}, {Name: "b", Since: before(9)}}}}
	}
	record := func(since metav1.Time) *quoinv1.RolloutValidationStatus {
		return &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Since: since}
	}
	const paused = quoinv1.PausedReason
	for name, c := range map[string]struct {
		reason      string
		after       time.Duration
		trial, lost metav1.Time
		looks       metav1.Time
	}{
		"it was paused":              {paused, time.Hour + time.Millisecond, before(8 - 60), before(2 - 60), before(1 - 60)},
		"it was not":                 {"Held", time.Hour, before(8), before(2), before(1)},
		"a clock is behind the rest": {paused, -time.Hour, before(8), before(2), before(1)},
	} {
		was, now := former(c.reason, before(8), before(2)), began.Add(c.after)
		is := resumed(was, now)
		g.Expect(is.Trial).To(Equal(former("", c.trial, c.lost).Trial), name)
		g.Expect(is.Proved).To(Equal(former("", c.trial, c.lost).Proved), name)
		g.Expect(was).To(Equal(former(c.reason, before(8), before(2))), "%s: the cache's own is left as it is", name)
		policy := &quoinv1.RolloutPolicy{Status: quoinv1.RolloutPolicyStatus{Validation: record(before(1)),
			MachineDeployments: []quoinv1.RolloutProgress{was}}}
		g.Expect(validationOf(policy, now).Since.Time).To(BeTemporally("==", c.looks.Time), name)
		g.Expect(policy.Status.Validation).To(Equal(record(before(1))), name)
	}
	none := resumed(quoinv1.RolloutProgress{Reason: paused, Since: began}, began.Add(time.Hour))
	g.Expect(none.Trial.Since.Time).To(BeZero())
	policy := &quoinv1.RolloutPolicy{}
	g.Expect(validationOf(policy, began.Time)).To(BeNil())
	policy.Status.Validation = record(metav1.Time{})
	policy.Status.MachineDeployments = []quoinv1.RolloutProgress{former(paused, began, began)}
	g.Expect(validationOf(policy, began.Add(time.Hour)).Since.IsZero()).To(BeTrue())
	policy.Status.Validation = record(before(-50))
	g.Expect(validationOf(policy, began.Add(time.Hour)).Since.Time).To(BeTemporally("==", began.Add(time.Hour)))
}

// Whether a pool was begun is known by its reason, which a pause takes nothing of: none loses its place to another one,
// and none gains one.
//
// Proves: S3-6
func TestAPauseForgetsNoReason(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	cluster := &clusterv1.Cluster{}
	w.read(cluster, "c1")
	w.reconcile()
	for _, said := range []rollout.Reason{rollout.RollingOut, rollout.Previous, rollout.Refused} {
		for by, pause := range pauses {
			policy := w.policy()
			policy.Status.MachineDeployments[0].Reason = string(said)
			w.Expect(w.client.Status().Update(t.Context(), policy)).To(Succeed())
			w.isPausedFor(time.Hour, pause)
			w.restart()
			seen, err := w.r.observe(t.Context(), w.client, w.policy(), cluster)
			w.Expect(err).NotTo(HaveOccurred())
			pool := seen.state.Pools[0]
			w.Expect(pool.Said).To(Equal(said), by)
			w.Expect(pool.Refused).To(Equal(said == rollout.Refused), by)
			w.Expect(pool.Since).To(BeTemporally("==", w.clock.Now()), "what it waits for takes its time again")
			w.reconcile()
			w.Expect(w.policy().Status.MachineDeployments[0].ReasonBeforePause).To(BeEmpty())
		}
	}
}

// So it is through a suspension, and a pause in the middle of it.
//
// Proves: S3-6
func TestASuspensionForgetsNoReason(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	cluster, blue := &clusterv1.Cluster{}, w.blue()
	w.read(cluster, "c1")
	suspended := func(is bool) { w.adjust(blue, func() { blue.Spec.Paused = ptr.To(is) }) }
	known := func() rollout.Pool {
		w.restart()
		seen, err := w.r.observe(t.Context(), w.client, w.policy(), cluster)
		w.Expect(err).NotTo(HaveOccurred())
		return seen.state.Pools[0]
	}
	is := func() quoinv1.RolloutProgress { return w.policy().Status.MachineDeployments[0] }
	suspended(true)
	w.reconcile()
	w.Expect([]string{is().Reason, is().ReasonBeforePause}).To(Equal([]string{"Suspended", ""}))
	w.Expect(known().Said).To(BeEmpty())
	for _, said := range []rollout.Reason{rollout.RollingOut, rollout.Previous} {
		for by, pause := range pauses {
			policy := w.policy()
			of := &policy.Status.MachineDeployments[0]
			of.Reason, of.ReasonBeforePause = string(said), ""
			w.Expect(w.client.Status().Update(t.Context(), policy)).To(Succeed())
			w.reconcile()
			w.Expect(is().Reason).To(Equal("Suspended"))
			since := is().Since
			w.Expect(known().Said).To(Equal(said))
			w.isPausedFor(time.Hour, pause)
			w.Expect(known().Said).To(Equal(said), by)
			w.reconcile()
			w.Expect(is().Reason).To(Equal("Suspended"))
			w.Expect(is().Since.Time).To(BeTemporally(">", since.Time))
			w.clock.Step(time.Hour)
			w.Expect(known()).To(And(HaveField("Said", said), HaveField("Since", BeTemporally("==", w.clock.Now()))),
				"what it waits for takes its time again")
		}
	}
	suspended(false)
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.Expect(is().ReasonBeforePause).To(BeEmpty())
}

// Each group has the totals of its MachineDeployments, and the policy those of all.
func TestGroupsHaveTotals(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	w.green()
	group := func(name string, pools ...string) quoinv1.RolloutGroup {
		return quoinv1.RolloutGroup{Name: name, MachineDeployments: quoinv1.RolloutSelector{Names: pools}}
	}
	of := func(total, done, inFlight, held int) quoinv1.RolloutTotals {
		return *(&totals{total: total, done: done, inFlight: inFlight, held: held}).shown()
	}
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.Groups = []quoinv1.RolloutGroup{group("one", "green"), group("two", "blue")} })
	w.reconcile()
	w.Expect(w.policy().Status.Groups).To(Equal([]quoinv1.RolloutGroupProgress{
		{Name: "one", RolloutTotals: of(2, 0, 1, 0)}, {Name: "two", RolloutTotals: of(2, 0, 0, 2)}}))
	w.Expect(w.policy().Status.Totals).To(HaveValue(Equal(of(4, 0, 1, 2))))
	w.Expect(w.row()).To(Equal("workers c1 0/4 1 2 - RollingOut - False"))
	w.Expect(w.message(quoinv1.RolloutPolicyProgressingCondition)).To(HaveSuffix(
		"\ngroup one: 0 of 2 done, 1 in flight, 0 held\ngroup two: 0 of 2 done, 0 in flight, 2 held"))

	w.joins("green-new-0")
	w.clock.Step(time.Minute)
	w.adjust(policy, func() {
		policy.Spec.Groups = []quoinv1.RolloutGroup{group("both", "green", "blue"), group("none", "x")}
	})
	w.reconcile()
	w.Expect(w.policy().Status.Groups).To(Equal([]quoinv1.RolloutGroupProgress{
		{Name: "both", RolloutTotals: of(4, 1, 0, 2)}}))

	w.adjust(policy, func() { policy.Spec.Groups = nil })
	w.reconcile()
	w.Expect(w.policy().Status.Groups).To(BeNil())
}
