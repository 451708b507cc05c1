// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Drain is how far the drain of a Machine's node came.
type Drain struct {
	// Done: the node was drained, or needs no drain.
	Done            bool
	Reason, Message string
}

// Skipped reports whether the node has still to be drained and Cluster API will not do it.
func (d Drain) Skipped() bool { return d.Reason == infrav1.MachineDrainSkippedReason }

// DrainOf a Machine, by what Cluster API and the control plane wrote down about it.
//
// Cluster API walks from the pre-drain hooks over the drain to the pre-terminate hooks, and once it has waited at those
// it never drains any more (isNodeDrainAllowed in core/reconcilers/machine). It goes there without a drain when the
// QuoinMachine is gone or being deleted, and when no control-plane Machine is left that is not being deleted.
//
// ago is how long ago a time is: a drain ends when it has lasted for its time, which a step of the clock is not.
func DrainOf(machine *clusterv1.Machine, ago func(time.Time) time.Duration) Drain {
	if machine.DeletionTimestamp.IsZero() {
		return Drain{Reason: infrav1.MachineNotDeletingReason}
	}
	_, excluded := machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
	_, ended := machine.Annotations[controlplanev1.EvictionEndedAnnotation]
	stage := deletingReason(machine)
	switch {
	case ended:
		return Drain{Done: true, Reason: infrav1.MachineDrainedReason}
	case excluded:
		return Drain{Done: true, Reason: infrav1.MachineDrainExcludedReason,
			Message: "the Machine has the annotation " + clusterv1.ExcludeNodeDrainingAnnotation}
	case !machine.Status.NodeRef.IsDefined():
		return Drain{Done: true, Reason: infrav1.MachineNoNodeReason, Message: "the Machine has no node"}
	case stage == clusterv1.MachineDeletingWaitingForPreDrainHookReason:
		return Drain{Reason: infrav1.MachineHooksHoldReason, Message: conditions.GetMessage(machine,
			clusterv1.MachineDeletingCondition)}
	case !slices.Contains(afterDrain, stage):
		return Drain{Reason: infrav1.MachineDrainingReason, Message: conditions.GetMessage(machine,
			clusterv1.MachineDeletingCondition)}
	}
	began, over := drainTimes(machine, ago)
	node := machine.Status.NodeRef.Name
	switch {
	case over:
		return Drain{Reason: infrav1.MachineDrainTimedOutReason, Message: fmt.Sprintf(
			"the drain of Node %s was given up %d s after %s, as nodeDrainTimeoutSeconds of the Machine says",
			node, *machine.Spec.Deletion.NodeDrainTimeoutSeconds, began.Format(time.RFC3339))}
	case drainedByCore(machine):
		return Drain{Done: true, Reason: infrav1.MachineDrainedReason}
	}
	message := fmt.Sprintf("Cluster API went on without a drain of Node %s and does not come back to it", node)
	if began != nil {
		message = fmt.Sprintf("Cluster API went on without the end of the drain of Node %s, begun at %s, and does not come "+
			"back to it",
			node, began.Format(time.RFC3339))
	}
	return Drain{Reason: infrav1.MachineDrainSkippedReason, Message: message}
}

// afterDrain are the reasons of a Machine's Deleting condition that come after its drain.
var afterDrain = append([]string{
	clusterv1.MachineDeletingWaitingForVolumeDetachReason,
	clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
}, afterHooks...)

// afterHooks are those that come after all hooks.
var afterHooks = []string{
	clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
	clusterv1.MachineDeletingWaitingForBootstrapDeletionReason,
	clusterv1.MachineDeletingDeletingNodeReason,
	clusterv1.MachineDeletingDeletionCompletedReason,
}

func deletingReason(machine *clusterv1.Machine) string {
	if !conditions.IsTrue(machine, clusterv1.MachineDeletingCondition) {
		return ""
	}
	return conditions.GetReason(machine, clusterv1.MachineDeletingCondition)
}

func pastDrain(machine *clusterv1.Machine) bool {
	return slices.Contains(afterDrain, deletingReason(machine))
}

// drainTimes are when the drain began, nil when it did not, and whether its time is over. What began with Cluster API
// goes on under its clock.
func drainTimes(
	machine *clusterv1.Machine, ago func(time.Time) time.Duration,
) (began *time.Time, over bool) {
	if deletion := machine.Status.Deletion; deletion != nil && !deletion.NodeDrainStartTime.IsZero() {
		began = &deletion.NodeDrainStartTime.Time
	} else if started, err := time.Parse(time.RFC3339,
		machine.Annotations[controlplanev1.EvictionStartedAnnotation]); err == nil {
		began = &started
	}
	if began == nil {
		return nil, false
	}
	limit := ptr.Deref(machine.Spec.Deletion.NodeDrainTimeoutSeconds, 0)
	lasted := ago(*began)
	if drainedByCore(machine) && !machine.Status.Deletion.WaitForNodeVolumeDetachStartTime.IsZero() {
		lasted = machine.Status.Deletion.WaitForNodeVolumeDetachStartTime.Sub(*began)
	}
	return began, limit > 0 && lasted >= time.Duration(limit)*time.Second
}

// drainedByCore reports whether Cluster API came to the end of a drain: only then does it wait for volumes.
func drainedByCore(machine *clusterv1.Machine) bool {
	deletion := machine.Status.Deletion
	if deletion == nil {
		return false
	}
	if _, unwaited := machine.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]; unwaited {
		return !deletion.NodeDrainStartTime.IsZero()
	}
	return !deletion.WaitForNodeVolumeDetachStartTime.IsZero()
}

// Conditions of a QuoinMachine that mirror the deletion of its Machine (S2-12..17): they are set from its creation on,
// so that everybody sees what will hold a deletion before it begins. The Machine is nil when there is none.
func Conditions(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine, now time.Time) []metav1.Condition {
	drained := metav1.Condition{Type: infrav1.MachineDrainedCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.MachineNotDeletingReason}
	if machine != nil {
		drain := DrainOf(machine, now.Sub)
		drained.Reason, drained.Message = drain.Reason, drain.Message
		if drain.Done {
			drained.Status = metav1.ConditionTrue
		}
	} else if !quoinMachine.DeletionTimestamp.IsZero() {
		drained.Status, drained.Reason, drained.Message = metav1.ConditionUnknown, infrav1.MachineNoNodeReason,
			"the Machine is gone"
	}
	return []metav1.Condition{
		hookCondition(infrav1.MachineDrainableCondition, PreDrain, quoinMachine, machine),
		drained,
		hookCondition(infrav1.MachineTerminableCondition, PreTerminate, quoinMachine, machine),
	}
}

// hookCondition is True when no hook is left at the point, else it names them and since when they are waited for. A
// time and no duration, which would change the condition each time it is looked at.
func hookCondition(
	kind string, point Point, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine,
) metav1.Condition {
	hooks := Hooks(point, quoinMachine, machine)
	if len(hooks) == 0 {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: infrav1.MachineNoHooksReason}
	}
	message := fmt.Sprintf("%s hooks: %s", point.word(), join(hooks))
	if since := waitsSince(point, machine); since != nil {
		message += ". Waited for since " + since.UTC().Format(time.RFC3339)
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: infrav1.MachineHooksHoldReason,
		Message: message}
}

// waitsSince is when the deletion came to the point; nil while it has not.
func waitsSince(point Point, machine *clusterv1.Machine) *time.Time {
	if machine == nil || machine.Status.Deletion == nil {
		return nil
	}
	since := machine.Status.Deletion.WaitForPreTerminateHookStartTime
	if point == PreDrain {
		since = machine.Status.Deletion.WaitForPreDrainHookStartTime
	}
	if since.IsZero() {
		return nil
	}
	return &since.Time
}
