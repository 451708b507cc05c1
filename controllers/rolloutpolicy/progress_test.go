// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

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
