// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Hooked reports whether the Machine carries a deletion hook of rollouts.
func Hooked(machine *clusterv1.Machine) bool {
	return has(machine, quoinv1.RolloutPreDrainHookAnnotation) || has(machine, quoinv1.RolloutPreTerminateHookAnnotation)
}

// SetHooks puts both deletion hooks of rollouts on the Machine, which has to be before its deletion.
func SetHooks(machine *clusterv1.Machine) {
	for _, hook := range []string{quoinv1.RolloutPreDrainHookAnnotation, quoinv1.RolloutPreTerminateHookAnnotation} {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, hook, "")
	}
	ForgetTaint(machine) // the hooks remember the taint
}

// DropHooks takes both deletion hooks of rollouts off the Machine.
func DropHooks(machine *clusterv1.Machine) {
	delete(machine.Annotations, quoinv1.RolloutPreDrainHookAnnotation)
	delete(machine.Annotations, quoinv1.RolloutPreTerminateHookAnnotation)
}

// RememberTaint has it remembered that the taint of rollouts is to be taken off the Machine's Node.
func RememberTaint(machine *clusterv1.Machine, now time.Time) {
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, quoinv1.RolloutUntaintAnnotation, Admission(machine, now))
}

// TaintSince is since when the taint of rollouts is to be taken off the Machine's Node; zero when it is not. It names
// its Machine, so that one in a template says nothing.
func TaintSince(machine *clusterv1.Machine) time.Time {
	return since(machine, quoinv1.RolloutUntaintAnnotation)
}

// ForgetTaint takes that back.
func ForgetTaint(machine *clusterv1.Machine) {
	delete(machine.Annotations, quoinv1.RolloutUntaintAnnotation)
}

// SkipDrain has Cluster API wait neither for pods nor for volumes of the Machine any more.
func SkipDrain(machine *clusterv1.Machine) {
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, "")
}

// LeaveOf is what the Machine itself says about how it leaves.
func LeaveOf(machine *clusterv1.Machine) Leave {
	leave := Leave{PreDrain: has(machine, quoinv1.RolloutPreDrainHookAnnotation),
		PreTerminate: has(machine, quoinv1.RolloutPreTerminateHookAnnotation),
		Excluded:     has(machine, clusterv1.ExcludeNodeDrainingAnnotation),
		NodeName:     machine.Status.NodeRef.Name,

		VolumesExcluded: has(machine, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation)}
	for _, condition := range machine.Status.Conditions {
		switch condition.Type {
		case clusterv1.MachineOwnerRemediatedCondition:
			// Before that a health check has only asked for it. What a rollout takes away Cluster API does not remediate.
			leave.Remediated = condition.Status == metav1.ConditionFalse &&
				condition.Reason == clusterv1.MachineSetMachineRemediationMachineDeletingReason
		case clusterv1.MachineDeletingCondition:
			if condition.Status == metav1.ConditionTrue {
				leave.Says = condition.Message
			}
		}
	}
	if deletion := machine.Status.Deletion; deletion != nil {
		leave.Held = deletion.WaitForPreDrainHookStartTime.Time
		leave.Began = deletion.NodeDrainStartTime.Time
		leave.Passed = deletion.WaitForPreTerminateHookStartTime.Time
	}
	if !leave.Passed.IsZero() {
		leave.Says = "" // it says no more than that it waits
	}
	return leave
}

func has(machine *clusterv1.Machine, annotation string) bool {
	_, is := machine.Annotations[annotation]
	return is
}
