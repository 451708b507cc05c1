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

// A rollout begins by itself when the window opens, whoever runs then. How long Machines take is remembered in the
// status, and the next one waits for a window that is long enough.
func TestAWindowOpensByItself(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Windows = []quoinv1.RolloutWindow{{Start: "10:00", DurationMinutes: ptr.To[int32](10),
			TimeZone: "Europe/Vienna"}}
	})
	w.Expect(w.reconcile().RequeueAfter).To(Equal(time.Hour))
	w.Expect(w.admitted("new-0")).To(BeFalse())
	w.Expect(w.policy().Status.MachineDeployments[0]).To(And(HaveField("Reason", "WindowClosed"),
		HaveField("Message", ContainSubstring("Mon 2026-11-23 10:00 CET"))))

	w.restart()
	w.clock.Step(time.Hour)
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())

	w.clock.Step(5 * time.Minute)
	w.joins("new-0")
	w.reconcile()
	w.clock.Step(time.Minute)
	w.Expect(w.reconcile().RequeueAfter).To(Equal(4 * time.Minute))
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
	w.Expect(w.policy().Status.MachineDeployments[0].RecentMachineSeconds).To(HaveExactElements(BeEquivalentTo(300)))
	w.Expect(w.admitted("new-1")).To(BeFalse())
	w.Expect(w.policy().Status.MachineDeployments[0]).To(And(HaveField("Reason", "WillNotFit"),
		HaveField("Message", ContainSubstring("a Machine takes 6m0s here"))))

	w.restart()
	w.clock.Step(24*time.Hour - 6*time.Minute)
	w.reconcile()
	w.Expect(w.admitted("new-1")).To(BeTrue())
}

// What is on its way when a window closes counts when the next one opens.
func TestNothingCountsOutsideOfAWindow(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Windows = []quoinv1.RolloutWindow{{Start: "08:00", DurationMinutes: ptr.To[int32](1)}}
	})
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.joins("new-0")
	w.clock.Step(time.Minute)
	w.Expect(w.reconcile().RequeueAfter).To(Equal(24*time.Hour - time.Minute))
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.clock.Step(24*time.Hour - time.Minute)
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
}
