// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// What a Machine says about itself names it, so that what a template or another Machine says is not true of it.
func TestAnnotationsNameTheirMachine(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	g.Expect(AdmittedAt(machine)).To(BeZero())
	g.Expect(TaintSince(machine)).To(BeZero())
	g.Expect(DeletedFor(machine)).To(BeEmpty())
	machine.Annotations = map[string]string{quoinv1.RolloutAdmittedAnnotation: Admission(machine, now),
		quoinv1.RolloutDeletedAnnotation: Deletion(machine, now, Decision{Reason: Next, Message: "its place: taken"})}
	RememberTaint(machine, now)
	g.Expect(AdmittedAt(machine)).To(Equal(now))
	g.Expect(TaintSince(machine)).To(Equal(now))
	g.Expect(DeletedFor(machine)).To(Equal(Next))
	g.Expect(DeletedSince(machine)).To(Equal(now))
	machine.UID = "2"
	g.Expect(AdmittedAt(machine)).To(BeZero())
	g.Expect(TaintSince(machine)).To(BeZero())
	g.Expect(DeletedFor(machine)).To(BeEmpty())
	g.Expect(DeletedSince(machine)).To(BeZero())
	machine.Annotations = map[string]string{quoinv1.RolloutAdmittedAnnotation: "today 2",
		quoinv1.RolloutDeletedAnnotation: "today 2"}
	g.Expect(AdmittedAt(machine)).To(BeZero())
	g.Expect(DeletedSince(machine)).To(BeZero())
	g.Expect(DeletedFor(machine)).To(BeEmpty())
	RememberTaint(machine, now)
	ForgetTaint(machine)
	g.Expect(TaintSince(machine)).To(BeZero())
}

// The gate of rollouts comes and goes beside others, and no empty list is left.
func TestTheGateOfRollouts(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	SetGate(machine, true)
	SetGate(machine, true)
	g.Expect(machine.Spec.ReadinessGates).To(HaveLen(1))
	g.Expect(Gated(machine)).To(BeTrue())
	g.Expect(Marked(machine)).To(BeTrue())
	SetGate(machine, false)
	g.Expect(machine.Spec.ReadinessGates).To(BeNil())
	g.Expect(Gated(machine)).To(BeFalse())
	g.Expect(Marked(machine)).To(BeFalse())
	other := clusterv1.MachineReadinessGate{ConditionType: "Other"}
	machine.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{other}
	g.Expect(Gated(machine)).To(BeFalse())
	SetGate(machine, true)
	g.Expect(machine.Spec.ReadinessGates).To(HaveLen(2))
	SetGate(machine, false)
	g.Expect(machine.Spec.ReadinessGates).To(ConsistOf(other))
}

// A mark is taken back with what was written down about the deletion, and that of anybody else stays.
func TestTheMarkOfRollouts(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	g.Expect(SetMark(machine, false)).To(BeFalse())
	g.Expect(SetMark(machine, true)).To(BeTrue())
	g.Expect(SetMark(machine, true)).To(BeFalse())
	machine.UID = "2" // by clusterctl move
	g.Expect(Marked(machine)).To(BeTrue())
	g.Expect(SetMark(machine, false)).To(BeTrue())
	g.Expect(machine.Annotations).To(BeEmpty())
	machine.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: "theirs"}
	g.Expect(SetMark(machine, true)).To(BeFalse())
	g.Expect(SetMark(machine, false)).To(BeFalse())
	g.Expect(machine.Annotations).To(HaveKeyWithValue(clusterv1.DeleteMachineAnnotation, "theirs"))
	machine.Annotations[quoinv1.RolloutDeletedAnnotation] = Deletion(machine, time.Now(), Decision{Reason: Next})
	g.Expect(SetMark(machine, false)).To(BeTrue())
	g.Expect(machine.Annotations).To(HaveLen(1))
}

// How a Machine leaves is read from its hooks, its conditions and its status.
func TestHowAMachineLeaves(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	g.Expect(Hooked(machine)).To(BeFalse())
	g.Expect(LeaveOf(machine)).To(Equal(Leave{}))
	RememberTaint(machine, time.Now())
	SetHooks(machine)
	g.Expect(TaintSince(machine)).To(BeZero())
	g.Expect(LeaveOf(machine)).To(Equal(Leave{PreDrain: true, PreTerminate: true}))
	delete(machine.Annotations, quoinv1.RolloutPreDrainHookAnnotation)
	g.Expect(Hooked(machine)).To(BeTrue())
	DropHooks(machine)
	g.Expect(Hooked(machine)).To(BeFalse())
	SetHooks(machine)
	DropHooks(machine)
	g.Expect(LeaveOf(machine)).To(Equal(Leave{}))
	SkipDrain(machine)
	held := metav1.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	began := metav1.NewTime(held.Add(time.Minute))
	machine.Status.Deletion = &clusterv1.MachineDeletionStatus{
		WaitForPreDrainHookStartTime: held, NodeDrainStartTime: began}
	machine.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineSetMachineRemediationMachineDeletingReason},
		{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Message: "draining"}}
	want := Leave{Excluded: true, VolumesExcluded: true, Remediated: true, Says: "draining",
		Held: held.Time, Began: began.Time}
	g.Expect(LeaveOf(machine)).To(Equal(want))
	machine.Status.Deletion.WaitForPreTerminateHookStartTime = began
	want.Says, want.Passed = "", began.Time
	g.Expect(LeaveOf(machine)).To(Equal(want))
	for _, reason := range []string{clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		clusterv1.MachineSetMachineCannotBeRemediatedReason, clusterv1.MachineSetMachineRemediationDeferredReason} {
		machine.Status.Conditions[0].Reason = reason
		g.Expect(LeaveOf(machine).Remediated).To(BeFalse(), reason)
	}
	machine.Status.Conditions[0].Reason = clusterv1.MachineSetMachineRemediationMachineDeletingReason
	machine.Status.Conditions[0].Status, machine.Status.Conditions[1].Status = metav1.ConditionTrue, metav1.ConditionFalse
	machine.Status.Deletion = nil
	g.Expect(LeaveOf(machine)).To(Equal(Leave{Excluded: true, VolumesExcluded: true}))
}
