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
