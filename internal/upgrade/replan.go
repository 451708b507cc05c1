// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// replan makes a plan when there is none, or when the one that people were shown is no longer what is left to do, and
// reports whether there is one to carry out now. A new plan is shown before anything is done by it.
func (t *deliberation) replan() bool {
	fresh, unplanned := t.plan(t.spec)
	if unplanned != nil {
		t.set(quoinv1.ClusterUpgradePlannedCondition, metav1.ConditionFalse, unplanned.reason, unplanned.message)
		t.wait(unplanned.reason, unplanned.message)
		t.again(unwatched)
		return false
	}
	planned := t.stepsOf(fresh)
	t.planned(fresh.String())
	difference, same := t.compare(planned)
	if same {
		return true
	}
	plan := &quoinv1.UpgradePlan{Hops: fresh.Hops, Advice: bounded(fresh.Advice), Changed: short(difference)}
	more := len(planned) > mostListed
	all := t.around(t.spec.Version, planned[:min(len(planned), mostListed)], more)
	var begun []quoinv1.UpgradeStep
	if t.Status.Plan != nil {
		begun, all = t.keep(all)
	}
	t.estimate(all)
	t.Status.Steps = slices.Concat(begun, all)
	plan.ID = idOf(all)
	t.Status.Plan = plan
	t.wait(quoinv1.PlannedReason, "the plan is made: "+strings.TrimSpace(fresh.String()))
	return false
}

// compare says what is planned that the status does not list, and the other way round; the same is nothing of both. A
// status that does not list the end lists the next steps of a plan that is too long for it.
func (t *deliberation) compare(planned []quoinv1.UpgradeStep) (difference string, same bool) {
	if t.Status.Plan == nil {
		return "", false
	}
	listed, left := t.raises(t.Status.Steps), t.raises(planned)
	ends := slices.ContainsFunc(t.Status.Steps, func(s quoinv1.UpgradeStep) bool {
		return s.Type == quoinv1.UpgradeStepHealth
	})
	if !ends {
		if len(listed) == 0 {
			return fmt.Sprintf("what it listed is done, and %d more steps are left", len(left)), false
		}
		t.unlisted = len(left) - len(listed) + 1 // the look at the end
		left = left[:min(len(left), len(listed))]
	}
	difference = changed(listed, left)
	return difference, difference == ""
}

// keep parts the steps that were begun, and still are what they were for, from those of the new plan that are left. The
// Cluster is looked at anew at the end. Of the pools that are done the last stay.
func (t *deliberation) keep(all []quoinv1.UpgradeStep) (begun, left []quoinv1.UpgradeStep) {
	former := map[string]quoinv1.UpgradeStep{}
	for _, step := range t.Status.Steps {
		former[line(step)] = step
		if !step.StartTime.IsZero() && t.kept(step) {
			begun = append(begun, step)
		}
	}
	for _, step := range all {
		was, known := former[line(step)]
		switch {
		case known && !was.StartTime.IsZero() && t.kept(was):
			continue
		case known && step.Type != quoinv1.UpgradeStepHealth:
			step.StartTime, step.Change, step.Machines = was.StartTime, was.Change, was.Machines
		}
		left = append(left, step)
	}
	surplus := len(begun) - mostDone
	begun = slices.DeleteFunc(begun, func(s quoinv1.UpgradeStep) bool {
		drop := surplus > 0 && s.Type == quoinv1.UpgradeStepWorkers && s.State == quoinv1.UpgradeStepDone
		if drop {
			surplus--
		}
		return drop
	})
	return begun, left
}

// estimate says how long steps will take, by what they took before, or else by what such steps took elsewhere.
func (t *deliberation) estimate(steps []quoinv1.UpgradeStep) {
	for i := range steps {
		took, known := t.Took[StepKey(steps[i])]
		if !known {
			_, machines := t.changes(steps[i])
			took, known = t.PerMachine[StepKind{steps[i].Type, machines != nil}]
			if machines != nil {
				took *= time.Duration(*machines.Count)
			}
		}
		if known {
			steps[i].EstimatedSeconds = ptr.To(int32(min(took/time.Second, 1<<30)))
		}
	}
}

func (t *deliberation) planned(text string) {
	t.set(quoinv1.ClusterUpgradePlannedCondition, metav1.ConditionTrue, quoinv1.PlannedReason, strings.TrimSpace(text))
}

// kept reports whether a step that was done still is.
func (t *deliberation) kept(step quoinv1.UpgradeStep) bool {
	if step.Type == quoinv1.UpgradeStepPreflight {
		return t.begun()
	}
	return t.reached(step)
}
