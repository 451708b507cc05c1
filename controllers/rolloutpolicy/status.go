// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// mostMessage is what a message of the status holds here.
	mostMessage = 4096
	// mostResult is what the message of a check's result holds.
	mostResult = 1024
	// countsInterval lies between two statuses that differ in nothing but words and in counts of Machines.
	countsInterval = 5 * time.Second
)

// counts are the fields of the status by which nothing is decided, and which change with each step of each Machine.
var counts = []string{"progress", "outdated", "total", "held", "inFlight", "done", "expectedEnd"}

// statusOf is the status that a plan comes to.
func statusOf(policy *quoinv1.RolloutPolicy, plan rollout.Result, now time.Time) quoinv1.RolloutPolicyStatus {
	status := *policy.Status.DeepCopy()
	if plan.Problem != "" {
		progressing(&status, metav1.ConditionFalse, quoinv1.SelectorInvalidReason, plan.Problem)
		return status
	}
	status.Validation = plan.Validation
	status.PausedAfter, status.MachineDeployments, status.Progress, status.Totals = plan.PausedAfter, nil, "", nil
	var all totals
	var moving, held []string
	for _, p := range plan.Progress {
		all.add(p)
		status.MachineDeployments = append(status.MachineDeployments, progressOf(p, formerOf(policy, p.Pool), now))
		line := fmt.Sprintf("%s: %s", p.Pool, cmp.Or(p.Message, string(p.Reason)))
		switch p.Reason {
		case rollout.UpToDate:
		case rollout.RollingOut, rollout.ReplacementFirst, rollout.NoneMade:
			moving = append(moving, line)
		default:
			held = append(held, line)
		}
	}
	if all.total > 0 {
		status.Progress, status.Totals = fmt.Sprintf("%d/%d", all.done, all.total), all.shown()
	}
	status.Groups = groupsOf(plan)
	lines := append(slices.Concat(moving, held), linesOf(status.Groups)...)
	switch {
	case len(moving) > 0:
		progressing(&status, metav1.ConditionTrue, quoinv1.RollingOutReason, strings.Join(lines, "\n"))
	case len(held) > 0:
		progressing(&status, metav1.ConditionFalse, quoinv1.HeldReason, strings.Join(lines, "\n"))
	default:
		progressing(&status, metav1.ConditionFalse, quoinv1.UpToDateReason, "there is nothing to replace")
	}
	stalled := metav1.Condition{Type: quoinv1.RolloutPolicyStalledCondition, Status: metav1.ConditionFalse,
		Reason: quoinv1.OnTimeReason}
	switch {
	case plan.DrainFailed != "":
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, quoinv1.DrainFailedReason,
			text.Shorten(plan.DrainFailed, mostMessage)
	case plan.Stalled != "":
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, string(plan.Cause),
			text.Shorten(plan.Stalled, mostMessage)
	}
	meta.SetStatusCondition(&status.Conditions, stalled)
	conflict := metav1.Condition{Type: quoinv1.RolloutPolicyOrderConflictCondition, Status: metav1.ConditionFalse,
		Reason: quoinv1.NoConflictReason}
	if plan.Misordered != "" {
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, quoinv1.TopologyOrderReason,
			text.Shorten(plan.Misordered, mostMessage)
	}
	meta.SetStatusCondition(&status.Conditions, conflict)
	return status
}

func progressing(status *quoinv1.RolloutPolicyStatus, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: quoinv1.RolloutPolicyProgressingCondition,
		Status: is, Reason: reason, Message: text.Shorten(message, mostMessage)})
}

func progressOf(p rollout.Progress, former quoinv1.RolloutProgress, now time.Time) quoinv1.RolloutProgress {
	since := former.Since
	if former.Reason != string(p.Reason) || since.IsZero() {
		since = metav1.NewTime(now.Truncate(time.Second))
	}
	return quoinv1.RolloutProgress{Name: p.Pool, Group: p.Group, Outdated: number(p.Outdated), Held: number(p.Held),
		InFlight: number(p.InFlight), Done: number(p.Done), MaxSurge: number(p.Limits.Surge),
		MaxUnavailable: number(p.Limits.Unavailable), Completed: p.Completed, Selected: p.Selected,
		DoneOf: number(p.DoneOf), LastTermination: metav1.NewTime(p.LastTermination), Reason: string(p.Reason), Since: since,
		ReasonBeforePause: string(p.Before), RolloutPace: paceShown(p),
		RolloutRecord: quoinv1.RolloutRecord{
			Recorded: former.Recorded, Trial: trialShown(p.Trial), Proved: proofsShown(p.Proofs)},
		Message: text.Shorten(p.Message, mostMessage)}
}

// pausedStatus is the status of a policy that is paused, or its Cluster is: since when, and by what. Numbers stay as
// they were seen last, no end is expected, and nothing is late: nobody is to be called for what a person stops.
func pausedStatus(policy *quoinv1.RolloutPolicy) quoinv1.RolloutPolicyStatus {
	status := *policy.Status.DeepCopy()
	by := ptr.Deref(meta.FindStatusCondition(status.Conditions, quoinv1.RolloutPolicyPausedCondition), metav1.Condition{})
	why := fmt.Sprintf("paused since %s: %s; take that back to go on", by.LastTransitionTime.UTC().Format(time.RFC3339),
		by.Message)
	progressing(&status, metav1.ConditionFalse, quoinv1.PausedReason, why)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: quoinv1.RolloutPolicyStalledCondition,
		Status: metav1.ConditionFalse, Reason: quoinv1.PausedReason})
	status.ExpectedEnd = nil
	for i := range status.MachineDeployments {
		of := &status.MachineDeployments[i]
		if of.Reason != quoinv1.PausedReason {
			of.ReasonBeforePause = cmp.Or(of.ReasonBeforePause, of.Reason)
		}
		of.Reason, of.Since, of.Message, of.ExpectedEnd = quoinv1.PausedReason, by.LastTransitionTime, why, nil
	}
	return status
}

func number(n int) *int32 { return ptr.To(int32(n)) } //nolint:gosec // nobody has that many Machines

// notFound is the status of a policy whose Cluster is not there.
func notFound(policy *quoinv1.RolloutPolicy) quoinv1.RolloutPolicyStatus {
	status := *policy.Status.DeepCopy()
	progressing(&status, metav1.ConditionFalse, quoinv1.ClusterNotFoundReason, fmt.Sprintf(
		"there is no Cluster %s in namespace %s: make it, or delete this RolloutPolicy and make one for a Cluster that "+
			"there is", policy.Spec.ClusterName, policy.Namespace))
	return status
}

// supersede tells every other policy of the Cluster that it does not hold.
func (r *Reconciler) supersede(
	ctx context.Context, all []quoinv1.RolloutPolicy, holds *quoinv1.RolloutPolicy, cluster string,
) error {
	for i := range all {
		other := &all[i]
		if other.Spec.ClusterName != cluster || holds == nil || other.Name == holds.Name ||
			!other.DeletionTimestamp.IsZero() {
			continue
		}
		status := quoinv1.RolloutPolicyStatus{Conditions: other.DeepCopy().Status.Conditions}
		progressing(&status, metav1.ConditionFalse, quoinv1.AnotherPolicyReason, fmt.Sprintf(
			"RolloutPolicy %s of the Cluster is older and holds alone: put its groups into one of the two and delete the "+
				"other", holds.Name))
		if _, err := r.report(ctx, other, status); err != nil {
			return err
		}
	}
	return nil
}

// report patches the status when it changed, and only what was read; then it tells what people have to know. What it
// returns is when to do so, where nothing but counts and words changed and they were written a moment ago.
func (r *Reconciler) report(
	ctx context.Context, policy *quoinv1.RolloutPolicy, status quoinv1.RolloutPolicyStatus,
) (wait time.Duration, err error) {
	if equality.Semantic.DeepEqual(policy.Status, status) {
		return 0, nil
	}
	before := policy.DeepCopy()
	policy.Status = status
	if wait := r.words.Early(before, policy); wait > 0 {
		return wait, nil
	}
	if err := r.Client.Status().Patch(ctx, policy, objectpatch.OnlyOf(before)); err != nil {
		return 0, fmt.Errorf("patch the status of RolloutPolicy %s: %w", client.ObjectKeyFromObject(policy), err)
	}
	for _, condition := range status.Conditions {
		was := ptr.Deref(meta.FindStatusCondition(before.Status.Conditions, condition.Type), metav1.Condition{})
		kind := corev1.EventTypeNormal
		switch {
		case was.Reason == condition.Reason || was.Type == "" && condition.Reason == quoinv1.UpToDateReason,
			was.Type == "" && condition.Reason == quoinv1.NoConflictReason,
			condition.Reason == quoinv1.RolledBackReason || condition.Reason == quoinv1.NothingRolledBackReason,
			condition.Type == quoinv1.RolloutPolicyStalledCondition && condition.Status == metav1.ConditionFalse,
			condition.Type == quoinv1.RolloutPolicyPausedCondition:
			continue
		case condition.Type == quoinv1.RolloutPolicyStalledCondition, condition.Reason == quoinv1.HeldReason,
			condition.Reason == quoinv1.RollbackRefusedReason, condition.Reason == quoinv1.TopologyOrderReason,
			condition.Reason == quoinv1.SelectorInvalidReason, condition.Reason == quoinv1.AnotherPolicyReason:
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(policy, nil, kind, condition.Reason, "Rollout", "%s", condition.Message)
	}
	return 0, nil
}
