// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	clog "sigs.k8s.io/cluster-api/util/log"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// flickerTime is how long a new Machine may be without the condition that the next reconcile sets.
const flickerTime = 10 * time.Second

// setProgress shows what goes on: RollingOut, ScalingUp and ScalingDown, each with what is done or awaited now.
func (s *summary) setProgress(failure error) {
	activity := s.outcome.Message
	if failure != nil {
		activity = failure.Error()
	}
	s.setRollingOut(activity, failure != nil)
	s.setScaling(activity)
}

// setRollingOut also shows a failure when nothing is rolled out: people look here for what is awaited.
func (s *summary) setRollingOut(activity string, failed bool) {
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
		text = sentence(activity)
	}
	if outdated == 0 || s.Deleting() {
		s.set(condition, metav1.ConditionFalse, clusterv1.NotRollingOutReason, text)
		return
	}
	reason := clusterv1.RollingOutReason
	switch s.outcome.Reason {
	case controlplane.ReasonVersionSkew:
		reason = controlplanev1.VersionSkewReason
	case controlplane.ReasonWindowClosed:
		reason = controlplanev1.WindowClosedReason
	}
	text = fmt.Sprintf("Rolling out %d not up-to-date replicas", outdated)
	for _, reason := range reasons {
		text += "\n* " + reason
	}
	if activity != "" {
		text += "\n* " + sentence(activity)
	}
	s.set(condition, metav1.ConditionTrue, reason, text)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *summary) setScaling(activity string) {
	wanted, have := s.Replicas(), len(s.parts())
	if s.Deleting() {
		wanted = 0
	}
	up := ""
	if s.TemplateProblem != "" {
		up = "Scaling up would be blocked because " + s.TemplateProblem
		if activity == "" {
			activity = s.TemplateProblem
		}
	}
	if have < wanted {
		s.set(controlplanev1.ControlPlaneScalingUpCondition, metav1.ConditionTrue, clusterv1.ScalingUpReason,
			fmt.Sprintf("Scaling up from %d to %d replicas", have, wanted)+detail(activity))
	} else {
		s.set(controlplanev1.ControlPlaneScalingUpCondition, metav1.ConditionFalse, clusterv1.NotScalingUpReason, up)
	}
	if have > wanted {
		s.set(controlplanev1.ControlPlaneScalingDownCondition, metav1.ConditionTrue, clusterv1.ScalingDownReason,
			fmt.Sprintf("Scaling down from %d to %d replicas", have, wanted)+detail(activity))
	} else {
		s.set(controlplanev1.ControlPlaneScalingDownCondition, metav1.ConditionFalse, clusterv1.NotScalingDownReason, "")
	}
}

func detail(activity string) string {
	if activity == "" {
		return ""
	}
	return "\n* " + sentence(activity)
}

func (s *summary) setDeleting() {
	const condition = controlplanev1.ControlPlaneDeletingCondition
	if s.controlPlane.DeletionTimestamp.IsZero() {
		s.set(condition, metav1.ConditionFalse, clusterv1.NotDeletingReason, "")
		return
	}
	reason := cmp.Or(s.outcome.Reason, clusterv1.DeletingReason)
	text := sentence(s.outcome.Message)
	var stages []string
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if said := conditions.GetMessage(machine, clusterv1.MachineDeletingCondition); !machine.DeletionTimestamp.IsZero() &&
			said != "" {
			stages = append(stages, fmt.Sprintf("* Machine %s: %s", machine.Name, said))
		}
	}
	if s.outcome.Reason == controlplane.ReasonWorkersFirst {
		stages = append([]string{"* Machines: " + clog.StringListToString(s.Workers)}, stages...)
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
	// A Machine that was just made gets its UpToDate condition at the next reconcile.
	judged := parts.Filter(func(m *clusterv1.Machine) bool {
		return conditions.Has(m, clusterv1.MachineUpToDateCondition) || s.now.Sub(m.CreationTimestamp.Time) > flickerTime
	})
	s.aggregate(ctx, judged.UnsortedList(), clusterv1.MachineUpToDateCondition,
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
