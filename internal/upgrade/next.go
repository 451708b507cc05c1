// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// unwatched is after how long to look again at what a person is asked to mend and nobody watches: a QuoinCluster, a
// ClusterClass, a control plane of another provider.
const unwatched = time.Minute

// mostListed and mostDone bound how many steps of a plan a status lists at a time, and how many that are done.
const mostListed, mostDone = 1000, 500

// Kind of a change.
type Kind string

const (
	// Begin writes ClusterUpgradeBegunAnnotation.
	Begin Kind = "Begin"
	// MakeCheck makes a PreflightCheck.
	MakeCheck Kind = "MakeCheck"
	// DeleteCheck deletes one that is long done.
	DeleteCheck Kind = "DeleteCheck"
	// SetVersion writes a version into the spec of an object.
	SetVersion Kind = "SetVersion"
	// RecordVersion writes the version into the status of the QuoinCluster.
	RecordVersion Kind = "RecordVersion"
	// Complete writes ClusterUpgradeCompletedAnnotation.
	Complete Kind = "Complete"
)

// Change is one write.
type Change struct {
	Kind Kind
	// Check to make, or the name of the one to delete.
	Check Check
	// Object whose version is set, as the World names it, and that version.
	Object, Version string
}

// Decision is what comes next.
type Decision struct {
	// Change is what to write; nil when nothing is.
	Change *Change
	// Status that the ClusterUpgrade gets once the change is made.
	Status quoinv1.ClusterUpgradeStatus
	// Stage are free hosts that are to be asked for something ahead. It is advice: what cannot be written is left.
	Stage []StageRequest
	// Live asks to decide again by what was read anew, which has the owners of fields.
	Live bool
	// Again is after how long to look again, though nothing changed; zero is never.
	Again time.Duration
}

// deliberation is one decision in the making.
type deliberation struct {
	World
	*Decision
	upgrade *quoinv1.ClusterUpgrade
	spec    quoinv1.ClusterUpgradeSpec
	now     time.Time
	// unlisted are how many steps follow those that the status lists.
	unlisted int
}

// Next decides what comes next for an upgrade.
func Next(w World, upgrade *quoinv1.ClusterUpgrade, now time.Time) Decision {
	d := Decision{Status: *upgrade.Status.DeepCopy()}
	t := deliberation{World: w, Decision: &d, upgrade: upgrade, spec: upgrade.Spec, now: now.Truncate(time.Second)}
	t.index()
	t.count()
	t.pause()
	switch {
	case Completed(upgrade):
		t.completed()
	case t.paused():
		t.wait(quoinv1.PausedReason, "nothing is written while the Cluster or the ClusterUpgrade is paused")
	case w.Cluster == nil:
		t.wait(quoinv1.ClusterNotFoundReason, fmt.Sprintf("there is no Cluster %s in namespace %s: make it, or delete this "+
			"ClusterUpgrade", t.spec.ClusterName, upgrade.Namespace))
	case w.Cluster.Deleting:
		t.wait(quoinv1.ClusterDeletingReason, "the Cluster is being deleted, so nothing is written any more")
	case !w.Cluster.Initialized:
		t.wait(quoinv1.WaitingForControlPlaneInitializedReason,
			"nothing runs yet that could be upgraded: the control plane is not initialized")
	case w.First != "":
		t.wait(quoinv1.AnotherUpgradeReason, fmt.Sprintf("ClusterUpgrade %s comes first: wait for its end, or delete it, "+
			"which undoes nothing", w.First))
	case t.replan():
		t.carryOut()
	}
	t.show()
	t.stage()
	t.deadline()
	return d
}

// count notes what runs (S0-54, S0-58). What comes after the end is another upgrade's.
func (t *deliberation) count() {
	ended := Completed(t.upgrade)
	if t.Cluster != nil && (!ended || t.Status.Versions == nil) {
		t.Status.ControlPlaneVersions, t.Status.Versions = counted(t.ControlPlane.Runs), counted(t.nodes())
	}
}

// Pauses says what keeps everything of the upgrade from being written; empty when nothing does.
func (w World) Pauses(of *quoinv1.ClusterUpgrade) string {
	switch _, annotated := of.Annotations[clusterv1.PausedAnnotation]; {
	case w.Cluster != nil && w.Cluster.Paused:
		return "Cluster spec.paused is set to true"
	case ptr.Deref(of.Spec.Paused, false):
		return "spec.paused is set to true"
	case annotated:
		return "ClusterUpgrade has the " + clusterv1.PausedAnnotation + " annotation"
	}
	return ""
}

func (t *deliberation) pause() {
	status, reason, message := metav1.ConditionFalse, quoinv1.NotPausedReason, t.Pauses(t.upgrade)
	if message != "" {
		status, reason = metav1.ConditionTrue, quoinv1.PausedReason
	}
	t.set(quoinv1.ClusterUpgradePausedCondition, status, reason, message)
}

func (t *deliberation) paused() bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, quoinv1.ClusterUpgradePausedCondition)
}

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
		t.unlisted = max(0, len(left)-len(listed)) + 1 // the look at the end
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
	return slices.DeleteFunc(begun, func(s quoinv1.UpgradeStep) bool {
		drop := surplus > 0 && s.Type == quoinv1.UpgradeStepWorkers && s.State == quoinv1.UpgradeStepDone
		if drop {
			surplus--
		}
		return drop
	}), left
}

// estimate says how long steps will take, by what they took before.
func (t *deliberation) estimate(steps []quoinv1.UpgradeStep) {
	for i := range steps {
		if took, known := t.Took[StepKey(steps[i])]; known {
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
	if !t.begun() {
		t.do(Change{Kind: Begin})
		t.Status.StartTime = metav1.NewTime(t.now)
		t.runs(step, "the preflight passed, and the upgrade begins")
		return false
	}
	if at, marked := markedAt(t.upgrade, quoinv1.ClusterUpgradeBegunAnnotation); marked {
		t.Status.StartTime = metav1.NewTime(at)
	}
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

// Mark is the value of an annotation that remembers when something was done for the upgrade. It names the upgrade:
// annotations go along when a manifest is copied, and then nothing was done for what it became.
func Mark(of *quoinv1.ClusterUpgrade, at time.Time) string {
	return at.UTC().Format(time.RFC3339) + " " + of.Name + "/" + of.Spec.Version
}

// markedAt is when the annotation was written, and whether it was for this upgrade.
func markedAt(of *quoinv1.ClusterUpgrade, annotation string) (time.Time, bool) {
	value, _, _ := strings.Cut(of.Annotations[annotation], " ")
	at, err := time.Parse(time.RFC3339, value)
	return at, err == nil && of.Annotations[annotation] == Mark(of, at)
}

// Begun reports whether something may have been touched for the upgrade.
func Begun(of *quoinv1.ClusterUpgrade) bool {
	_, marked := markedAt(of, quoinv1.ClusterUpgradeBegunAnnotation)
	return marked
}

// Order compares two upgrades of one Cluster by which is carried out first: what began first, then what was made first.
func Order(a, b *quoinv1.ClusterUpgrade) int {
	switch begun := Begun(a); {
	case begun == Begun(b):
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	case begun:
		return -1
	}
	return 1
}

// Settled reports whether nothing is left to write for the upgrade, also not of what a move dropped.
func Settled(of *quoinv1.ClusterUpgrade) bool {
	return Completed(of) && of.Status.Versions != nil &&
		!meta.IsStatusConditionTrue(of.Status.Conditions, quoinv1.ClusterUpgradePausedCondition)
}

// Completed reports whether everything was done for the upgrade.
func Completed(of *quoinv1.ClusterUpgrade) bool {
	return !CompletedAt(of).IsZero()
}

// CompletedAt is when everything was done for the upgrade, also where a move made the object anew; zero before that.
func CompletedAt(of *quoinv1.ClusterUpgrade) time.Time {
	at, marked := markedAt(of, quoinv1.ClusterUpgradeCompletedAnnotation)
	if !marked {
		return time.Time{}
	}
	return at
}

func (t *deliberation) do(change Change) { t.Change, t.Live = &change, true }
