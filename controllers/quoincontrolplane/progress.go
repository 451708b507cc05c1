// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// flickerTime is how long a new Machine may be without the condition that the next reconcile sets.
const flickerTime = 10 * time.Second

// setProgress tells what goes on: RollingOut, ScalingUp and ScalingDown, each with what is done or awaited now.
func (s *summary) setProgress(failure error) {
	doing := s.outcome.Message
	if failure != nil {
		doing = failure.Error()
	}
	s.setRollingOut(doing, failure != nil)
	s.setScaling(doing)
}

// setRollingOut also tells a failure when nothing is rolled out: people look here for what is awaited.
func (s *summary) setRollingOut(doing string, failed bool) {
	const condition = controlplanev1.ControlPlaneRollingOutCondition
	outdated := 0
	var reasons []string
	for name := range s.parts() {
		if len(s.Outdated[name]) > 0 {
			outdated++
			reasons = append(reasons, s.Outdated[name]...)
		}
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	// The version first: it is why most rollouts happen.
	slices.SortStableFunc(reasons, func(a, b string) int {
		return boolRank(strings.HasPrefix(b, "Version")) - boolRank(strings.HasPrefix(a, "Version"))
	})
	text := ""
	if failed || s.outcome.Kind == controlplane.Refuse {
		text = sentence(doing)
	}
	if outdated == 0 || s.Deleting() {
		s.set(condition, metav1.ConditionFalse, clusterv1.NotRollingOutReason, text)
		return
	}
	if s.outcome.Reason == controlplane.ReasonVersionSkew {
		s.set(condition, metav1.ConditionFalse, controlplanev1.VersionSkewReason, text)
		return
	}
	text = fmt.Sprintf("Rolling out %d not up-to-date replicas", outdated)
	for _, reason := range reasons {
		text += "\n* " + reason
	}
	if doing != "" {
		text += "\n* " + sentence(doing)
	}
	s.set(condition, metav1.ConditionTrue, clusterv1.RollingOutReason, text)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *summary) setScaling(doing string) {
	wanted, have := s.Replicas(), len(s.parts())
	if s.Deleting() {
		wanted = 0
	}
	up, down := "", ""
	if s.TemplateProblem != "" {
		up = "Scaling up would be blocked because " + s.TemplateProblem
		if doing == "" {
			doing = s.TemplateProblem
		}
	}
	if have < wanted {
		s.set(controlplanev1.ControlPlaneScalingUpCondition, metav1.ConditionTrue, clusterv1.ScalingUpReason,
			fmt.Sprintf("Scaling up from %d to %d replicas", have, wanted)+detail(doing))
	} else {
		s.set(controlplanev1.ControlPlaneScalingUpCondition, metav1.ConditionFalse, clusterv1.NotScalingUpReason, up)
	}
	if have > wanted {
		s.set(controlplanev1.ControlPlaneScalingDownCondition, metav1.ConditionTrue, clusterv1.ScalingDownReason,
			fmt.Sprintf("Scaling down from %d to %d replicas", have, wanted)+detail(doing))
	} else {
		s.set(controlplanev1.ControlPlaneScalingDownCondition, metav1.ConditionFalse, clusterv1.NotScalingDownReason, down)
	}
}

func detail(doing string) string {
	if doing == "" {
		return ""
	}
	return "\n* " + sentence(doing)
}

func (s *summary) setDeleting() {
	const condition = controlplanev1.ControlPlaneDeletingCondition
	if s.controlPlane.DeletionTimestamp.IsZero() {
		s.set(condition, metav1.ConditionFalse, clusterv1.NotDeletingReason, "")
		return
	}
	reason := orElse(s.outcome.Reason, clusterv1.DeletingReason)
	text := sentence(s.outcome.Message)
	var stages []string
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if said := conditions.GetMessage(machine, clusterv1.MachineDeletingCondition); !machine.DeletionTimestamp.IsZero() &&
			said != "" {
			stages = append(stages, fmt.Sprintf("* Machine %s: %s", machine.Name, said))
		}
	}
	if len(stages) > 0 {
		text += "\n" + strings.Join(stages, "\n")
	}
	if s.outcome.Kind == controlplane.RemoveFinalizer {
		reason = clusterv1.DeletionCompletedReason
	}
	s.set(condition, metav1.ConditionTrue, reason, text)
}

// setAggregates merges the Machines' Ready and UpToDate conditions.
func (s *summary) setAggregates(ctx context.Context) {
	parts := s.parts()
	s.aggregate(ctx, parts.UnsortedList(), clusterv1.MachineReadyCondition,
		controlplanev1.ControlPlaneMachinesReadyCondition,
		clusterv1.NotReadyReason, clusterv1.ReadyUnknownReason, clusterv1.ReadyReason)
	// A Machine that was just made gets its UpToDate condition at the next look.
	told := parts.Filter(func(m *clusterv1.Machine) bool {
		return conditions.Has(m, clusterv1.MachineUpToDateCondition) || s.now.Sub(m.CreationTimestamp.Time) > flickerTime
	})
	s.aggregate(ctx, told.UnsortedList(), clusterv1.MachineUpToDateCondition,
		controlplanev1.ControlPlaneMachinesUpToDateCondition,
		clusterv1.NotUpToDateReason, clusterv1.UpToDateUnknownReason, clusterv1.UpToDateReason)
}

func (s *summary) aggregate(
	ctx context.Context, machines []*clusterv1.Machine, source, target, issue, unknown, well string,
) {
	if len(machines) == 0 {
		s.set(target, metav1.ConditionTrue, clusterv1.NoReplicasReason, "")
		return
	}
	merged, err := conditions.NewAggregateCondition(machines, source, conditions.TargetConditionType(target),
		conditions.CustomMergeStrategy{MergeStrategy: conditions.DefaultMergeStrategy(
			conditions.ComputeReasonFunc(conditions.GetDefaultComputeMergeReasonFunc(issue, unknown, well)))})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Machines' conditions could not be merged", "condition", source)
		s.set(target, metav1.ConditionUnknown, clusterv1.InternalErrorReason, err.Error())
		return
	}
	conditions.Set(s.controlPlane, *merged)
}
