// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// mostText bounds a message, as the API does.
	mostText = 4096
	// mostAdvice and mostAdvised bound what a plan advises, as the API does.
	mostAdvice, mostAdvised = 32, 1024
	// defaultDeadline is that of the API.
	defaultDeadline = 86400
)

func short(message string) string { return text.Shorten(message, mostText) }

func bounded(advice []string) []string {
	advice = advice[:min(len(advice), mostAdvice)]
	for i := range advice {
		advice[i] = text.Shorten(advice[i], mostAdvised)
	}
	return advice
}

func orSomebody(owner string) string { return cmp.Or(owner, "somebody") }

func orNothing(version string) string { return cmp.Or(version, "nothing") }

func (t *deliberation) set(condition string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: reason,
		Message: short(message), ObservedGeneration: t.upgrade.Generation, LastTransitionTime: metav1.NewTime(t.now)})
}

func (t *deliberation) progress(status metav1.ConditionStatus, reason, message string) {
	t.set(quoinv1.ClusterUpgradeProgressingCondition, status, reason, message)
}

// wait tells that nothing goes on, for a reason that is no step's.
func (t *deliberation) wait(reason, message string) {
	t.progress(metav1.ConditionFalse, reason, message)
	t.incomplete(reason, message)
}

// runs tells that a step is carried out.
func (t *deliberation) runs(step *quoinv1.UpgradeStep, message string) {
	step.State, step.Message = quoinv1.UpgradeStepRunning, short(message)
	t.progress(metav1.ConditionTrue, string(step.Type), t.at(message))
	t.incomplete(string(step.Type), t.at(message))
}

// holds tells that a step waits for somebody.
func (t *deliberation) holds(step *quoinv1.UpgradeStep, reason, message string) {
	step.State, step.Message = quoinv1.UpgradeStepWaiting, short(message)
	t.wait(reason, t.at(message))
}

func (t *deliberation) at(message string) string {
	return fmt.Sprintf("step %s: %s", t.Status.Step, message)
}

func (t *deliberation) incomplete(reason, message string) {
	t.set(quoinv1.ClusterUpgradeCompletedCondition, metav1.ConditionFalse, reason, message)
}

// again asks for another look, the soonest of those that were asked for.
func (t *deliberation) again(after time.Duration) {
	if t.Again == 0 || after < t.Again {
		t.Again = after
	}
}

// Late is the status of an upgrade of which nothing could be decided or written, with whether it takes longer than it
// may.
func Late(
	of *quoinv1.ClusterUpgrade, policy *quoinv1.RolloutPolicy, now time.Time, steps steady.Steps,
) quoinv1.ClusterUpgradeStatus {
	t := deliberation{World: World{Policy: policy, Steps: steps}, Decision: &Decision{Status: *of.Status.DeepCopy()},
		upgrade: of, spec: of.Spec, now: now.Truncate(time.Second)}
	t.deadline()
	return t.Status
}

// closed says when Machines may be replaced again, and has that looked at; empty when they may.
func (t *deliberation) closed() string {
	message, until, err := rollout.ClosedUntil(t.windows(), t.now)
	if err != nil || message == "" {
		return "" // the RolloutPolicy says what is wrong with it
	}
	t.again(until.Sub(t.now))
	return "; " + message
}

// deadline tells of an upgrade that takes longer than it may, to begin or to end (C16). It goes on all the same. One
// that is paused before it begins waits for its time, and one that was begun for windows, whose closed time is none.
func (t *deliberation) deadline() {
	allowed := time.Duration(ptr.Deref(t.spec.DeadlineSeconds, defaultDeadline)) * time.Second
	since, begun := markedAt(t.upgrade, quoinv1.ClusterUpgradeBegunAnnotation)
	until, windows := "end", t.windows()
	if !begun {
		since, until, windows = t.upgrade.CreationTimestamp.Time, "begin", nil
	}
	since = t.Steps.Shift(since)
	waits := Completed(t.upgrade) || since.IsZero() || !begun && t.paused()
	left := since.Add(allowed + rollout.ClosedFor(windows, since, t.now)).Sub(t.now)
	if waits || left > 0 {
		t.set(quoinv1.ClusterUpgradeStalledCondition, metav1.ConditionFalse, quoinv1.OnTimeReason, "")
		if !waits {
			t.again(left)
		}
		return
	}
	message := fmt.Sprintf("it was to %s within %s and goes on as soon as it can", until, allowed)
	if now := meta.FindStatusCondition(t.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition); now != nil {
		message += "; " + now.Message
	}
	t.set(quoinv1.ClusterUpgradeStalledCondition, metav1.ConditionTrue, quoinv1.DeadlineExceededReason, message)
}
