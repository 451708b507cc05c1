// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

var (
	info = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quoin_upgrade_info", Help: "1 for each ClusterUpgrade that is not completed, with the type of its step.",
	}, []string{"namespace", "name", "cluster", "version", "step"})
	stalled = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quoin_upgrade_stalled", Help: "1 for each ClusterUpgrade that takes longer than its deadline, else 0.",
	}, []string{"namespace", "name"})
	stepSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quoin_upgrade_step_duration_seconds", Help: "How long steps of ClusterUpgrades took, by type.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 10), // 1 s to 3 days
	}, []string{"type"})
)

func init() { metrics.Registry.MustRegister(info, stalled, stepSeconds) }

// measure notes how far an upgrade is.
func measure(of *quoinv1.ClusterUpgrade) {
	forgetMetrics(client.ObjectKeyFromObject(of))
	if upgrade.Ended(of) {
		return
	}
	step := ""
	for i := range of.Status.Steps {
		if of.Status.Steps[i].State != quoinv1.UpgradeStepDone {
			step = string(of.Status.Steps[i].Type)
			break
		}
	}
	info.WithLabelValues(of.Namespace, of.Name, of.Spec.ClusterName, of.Spec.Version, step).Set(1)
	late := 0.0
	if meta.IsStatusConditionTrue(of.Status.Conditions, quoinv1.ClusterUpgradeStalledCondition) {
		late = 1
	}
	stalled.WithLabelValues(of.Namespace, of.Name).Set(late)
}

func forgetMetrics(key types.NamespacedName) {
	of := prometheus.Labels{"namespace": key.Namespace, "name": key.Name}
	info.DeletePartialMatch(of)
	stalled.DeletePartialMatch(of)
}

// action is what events say that is done.
const action = "Upgrade"

// entry is one event of the story.
type entry struct{ kind, reason, action, message string }

// story is what people read of a change of the status.
func story(before, after quoinv1.ClusterUpgradeStatus) []entry {
	var events []entry
	note := func(reason, format string, args ...any) {
		events = append(events, entry{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)})
	}
	replanned := after.Plan != nil && (before.Plan == nil || before.Plan.ID != after.Plan.ID)
	switch {
	case replanned && before.Plan != nil:
		note("Replanned", "plan %s takes the place of %s: %s", after.Plan.ID, before.Plan.ID,
			after.Plan.Changed)
	case replanned:
		planned := meta.FindStatusCondition(after.Conditions, quoinv1.ClusterUpgradePlannedCondition)
		note(quoinv1.PlannedReason, "plan %s: %s", after.Plan.ID, planned.Message)
	}
	if before.StartTime.IsZero() && !after.StartTime.IsZero() {
		note("Begun", "the preflight passed, and the upgrade begins")
	}
	for _, step := range finished(before, after) {
		note("StepDone", "%s took %s", nameOf(step), step.CompletionTime.Sub(step.StartTime.Time))
	}
	started := timesOf(before)
	for _, step := range after.Steps {
		if !step.StartTime.IsZero() && !started[nameOf(step)] && step.State != quoinv1.UpgradeStepDone {
			note("StepStarted", "%s: %s", nameOf(step), step.Message)
		}
	}
	return append(events, waits(before, after)...)
}

// nameOf is a step for people.
func nameOf(step quoinv1.UpgradeStep) string {
	if step.Object == "" {
		return fmt.Sprintf("%s -> %s", step.Type, step.To)
	}
	return fmt.Sprintf("%s %s -> %s", step.Type, step.Object, step.To)
}

// timesOf are the steps that were begun.
func timesOf(status quoinv1.ClusterUpgradeStatus) map[string]bool {
	begun := map[string]bool{}
	for _, step := range status.Steps {
		begun[nameOf(step)] = !step.StartTime.IsZero()
	}
	return begun
}

// waits are the events of conditions that ask for somebody, and of the end.
func waits(before, after quoinv1.ClusterUpgradeStatus) []entry {
	var events []entry
	of := func(status quoinv1.ClusterUpgradeStatus, condition string) metav1.Condition {
		return ptr.Deref(meta.FindStatusCondition(status.Conditions, condition), metav1.Condition{})
	}
	was, late := of(before, quoinv1.ClusterUpgradeProgressingCondition), of(after, quoinv1.ClusterUpgradeStalledCondition)
	progress := of(after, quoinv1.ClusterUpgradeProgressingCondition)
	switch {
	case progress.Status != metav1.ConditionFalse || progress.Reason == was.Reason:
	case progress.Reason == quoinv1.CompletedReason:
		events = append(events, entry{corev1.EventTypeNormal, progress.Reason, action, progress.Message})
	case progress.Reason != quoinv1.PlannedReason:
		events = append(events, entry{corev1.EventTypeWarning, progress.Reason, action, progress.Message})
	}
	if late.Status == metav1.ConditionTrue && of(before, late.Type).Status != late.Status {
		events = append(events, entry{corev1.EventTypeWarning, late.Reason, action, late.Message})
	}
	return events
}

// finished are the steps that are done since then.
func finished(before, after quoinv1.ClusterUpgradeStatus) []quoinv1.UpgradeStep {
	done := map[string]bool{}
	for _, step := range before.Steps {
		done[nameOf(step)] = step.State == quoinv1.UpgradeStepDone
	}
	var steps []quoinv1.UpgradeStep
	for _, step := range after.Steps {
		if step.State == quoinv1.UpgradeStepDone && !done[nameOf(step)] {
			steps = append(steps, step)
		}
	}
	return steps
}
