// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// carryOut goes on at the first step that is not done.
func (t *deliberation) carryOut() {
	total := len(t.Status.Steps) + t.unlisted
	for i := range t.Status.Steps {
		step := &t.Status.Steps[i]
		if step.State == quoinv1.UpgradeStepDone && t.kept(*step) {
			continue
		}
		t.Status.Step = fmt.Sprintf("%d/%d %s", i+1, total, step.Type)
		if step.Type != quoinv1.UpgradeStepPreflight && !t.mayTouch(step) {
			return
		}
		if !t.run(step) {
			if t.ControlPlane.Unwatched {
				t.again(unwatched)
			}
			return
		}
		t.finish(step)
	}
	t.complete()
}

// finish marks a step as done, also one that somebody else did.
func (t *deliberation) finish(step *quoinv1.UpgradeStep) {
	step.State, step.Message = quoinv1.UpgradeStepDone, ""
	t.start(step)
	if step.CompletionTime.IsZero() {
		step.CompletionTime = metav1.NewTime(t.now)
	}
	if step.Type == quoinv1.UpgradeStepAddons {
		t.Status.AddonsVersion = step.To
	}
}

func (t *deliberation) start(step *quoinv1.UpgradeStep) {
	if step.StartTime.IsZero() {
		step.StartTime = metav1.NewTime(t.now)
	}
}

// run does what a step needs next, and reports whether it is done.
func (t *deliberation) run(step *quoinv1.UpgradeStep) bool {
	switch step.Type {
	case quoinv1.UpgradeStepPreflight:
		return t.preflight(step)
	case quoinv1.UpgradeStepHealth:
		return t.health(step)
	case quoinv1.UpgradeStepAddons:
		if t.satisfied(*step) {
			return true
		}
		t.start(step)
		if t.proxyWaits() {
			// The pools that it waits for come before, so what is left is of no pool, and a person's.
			t.holds(step, quoinv1.AddonsHeldReason, t.ControlPlane.Addons)
			return false
		}
		t.runs(step, t.ControlPlane.Addons)
		return false
	}
	return t.write(step)
}

// begun reports whether something may have been touched already.
func (t *deliberation) begun() bool {
	return Begun(t.upgrade)
}

// approved reports whether the plan may be carried out.
func (t *deliberation) approved() bool {
	return t.spec.Approve != quoinv1.UpgradeApprovalManual || t.spec.ApprovedPlan == t.Status.Plan.ID
}

// mayTouch reports whether the plan is approved and the upgrade has begun, and begins it when it has not.
func (t *deliberation) mayTouch(step *quoinv1.UpgradeStep) bool {
	set := func(status metav1.ConditionStatus, reason, message string) {
		t.set(quoinv1.ClusterUpgradeApprovedCondition, status, reason, message)
	}
	switch {
	case !t.approved():
		message := fmt.Sprintf("read status.plan and status.steps, and set spec.approvedPlan to %s", t.Status.Plan.ID)
		set(metav1.ConditionFalse, quoinv1.ApprovalRequiredReason, message)
		t.holds(step, quoinv1.ApprovalRequiredReason, message)
		return false
	case t.spec.Approve == quoinv1.UpgradeApprovalManual:
		set(metav1.ConditionTrue, quoinv1.ApprovedReason, "spec.approvedPlan is the plan")
	default:
		set(metav1.ConditionTrue, quoinv1.AutomaticReason, "spec.approve asks for no person's approval")
	}
	at, begun := markedAt(t.upgrade, quoinv1.ClusterUpgradeBegunAnnotation)
	if !begun {
		t.do(Change{Kind: Begin})
		t.Status.StartTime = metav1.NewTime(t.now)
		t.runs(step, "the preflight passed, and the upgrade begins")
		return false
	}
	t.Status.StartTime = metav1.NewTime(at)
	return true
}

// field is the version that somebody has to set for a step.
func (t *deliberation) field(step *quoinv1.UpgradeStep) (field Field, to string) {
	switch {
	case step.Type == quoinv1.UpgradeStepSpecVersion:
		return t.Infrastructure.Field, step.To
	case t.Cluster.Topology != nil:
		return t.Cluster.Topology.Field, t.spec.Version
	case step.Type == quoinv1.UpgradeStepWorkers:
		return t.pool(step.Object).Field, step.To
	}
	return t.ControlPlane.Field, step.To
}

// write sets a version once, and waits until it runs. One that was written and is gone was set back by somebody, who is
// not fought.
func (t *deliberation) write(step *quoinv1.UpgradeStep) bool {
	if t.satisfied(*step) {
		return true
	}
	field, to := t.field(step)
	record := step.Type == quoinv1.UpgradeStepSpecVersion
	switch {
	case field.Value == to:
		t.start(step)
		t.runs(step, t.unsettled(step)+t.closed())
	case !record && skew.Older(to, field.Value):
		t.Live = field.Owner == ""
		t.holds(step, quoinv1.AheadReason, fmt.Sprintf("%s has %s, set by %s, which is later than %s, and no version is "+
			"ever lowered here: set it to %s while no Node runs a later one, or delete this ClusterUpgrade and make one to "+
			"that version", field.Object, field.Value, orSomebody(field.Owner), to, to))
		t.again(unwatched)
	case t.written(step):
		t.Live = field.Owner == ""
		t.holds(step, quoinv1.RevertedReason, fmt.Sprintf("%s was set back from %s to %s by %s: have that write %s, or "+
			"delete this ClusterUpgrade", field.Object, to, orNothing(field.Value), orSomebody(field.Owner), to))
		t.again(unwatched)
	case !record && t.unfinished(step) != "":
		t.runs(step, t.unfinished(step)+t.closed())
	default:
		t.do(Change{Kind: SetVersion, Object: field.Object, Version: to})
		t.start(step)
		t.runs(step, fmt.Sprintf("%s is set to %s", field.Object, to))
	}
	return false
}

// written reports whether the version was set already. A topology has one for all of its steps.
func (t *deliberation) written(step *quoinv1.UpgradeStep) bool {
	if t.Cluster.Topology == nil || step.Type == quoinv1.UpgradeStepSpecVersion {
		return !step.StartTime.IsZero()
	}
	return slices.ContainsFunc(t.Status.Steps, func(s quoinv1.UpgradeStep) bool {
		raises := s.Type == quoinv1.UpgradeStepControlPlane || s.Type == quoinv1.UpgradeStepWorkers
		// One that was done as soon as it was looked at proves nothing: somebody else did it.
		return raises && !s.StartTime.IsZero() && !s.StartTime.Equal(&s.CompletionTime)
	})
}

// unfinished is what has to end before another version is set: whatever the control plane is about. Add-ons that are
// held until the kubelets are newer keep no workers from that.
func (t *deliberation) unfinished(step *quoinv1.UpgradeStep) string {
	if t.ControlPlane.Unsettled != "" || t.ControlPlane.AddonsHeld && step.Type == quoinv1.UpgradeStepWorkers {
		return t.ControlPlane.Unsettled
	}
	return t.ControlPlane.Addons
}

func (t *deliberation) unsettled(step *quoinv1.UpgradeStep) string {
	if pool := t.pool(step.Object); step.Type == quoinv1.UpgradeStepWorkers && pool.Unsettled != "" {
		return pool.Unsettled
	}
	if step.Type == quoinv1.UpgradeStepControlPlane && t.ControlPlane.Unsettled != "" {
		return t.ControlPlane.Unsettled
	}
	return fmt.Sprintf("%s is not everywhere at %s yet", step.Object, step.To)
}

// complete records that all is done, one place after another (S0-3).
func (t *deliberation) complete() {
	t.Status.Step = fmt.Sprintf("%d/%d", len(t.Status.Steps), len(t.Status.Steps))
	switch infra := t.Infrastructure; {
	case infra != nil && infra.Reached != t.spec.Version:
		t.do(Change{Kind: RecordVersion, Object: infra.Object, Version: t.spec.Version})
	default:
		t.do(Change{Kind: Complete})
	}
	t.progress(metav1.ConditionTrue, string(quoinv1.UpgradeStepHealth), "all steps are done, and that is written down")
}

// completed tells of an upgrade that is done, and restores what a move dropped.
func (t *deliberation) completed() {
	if at, marked := markedAt(t.upgrade, quoinv1.ClusterUpgradeCompletedAnnotation); marked {
		t.Status.CompletionTime = metav1.NewTime(at)
	}
	t.Status.Version = t.spec.Version
	message := t.ended()
	t.set(quoinv1.ClusterUpgradeCompletedCondition, metav1.ConditionTrue, quoinv1.CompletedReason, message)
	t.progress(metav1.ConditionFalse, quoinv1.CompletedReason, message)
	infra := t.Infrastructure
	if infra != nil && !t.paused() && infra.Reached == "" && infra.Value == t.spec.Version {
		t.do(Change{Kind: RecordVersion, Object: infra.Object, Version: t.spec.Version})
	}
}
