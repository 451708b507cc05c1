// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
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

func (t *deliberation) do(change Change) { t.Change, t.Live = &change, true }
