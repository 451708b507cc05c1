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

// deadline tells of an upgrade that takes longer than it may (C16). It goes on all the same.
func (t *deliberation) deadline() {
	allowed := time.Duration(ptr.Deref(t.spec.DeadlineSeconds, defaultDeadline)) * time.Second
	begun, marked := markedAt(t.upgrade, quoinv1.ClusterUpgradeBegunAnnotation)
	ended := Completed(t.upgrade)
	left := begun.Add(allowed).Sub(t.now)
	if !marked || ended || left > 0 {
		t.set(quoinv1.ClusterUpgradeStalledCondition, metav1.ConditionFalse, quoinv1.OnTimeReason, "")
		if marked && !ended {
			t.again(left)
		}
		return
	}
	waits := meta.FindStatusCondition(t.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition)
	message := fmt.Sprintf("it was to end within %s and goes on as soon as it can", allowed)
	if waits != nil {
		message += "; " + waits.Message
	}
	t.set(quoinv1.ClusterUpgradeStalledCondition, metav1.ConditionTrue, quoinv1.DeadlineExceededReason, message)
}
