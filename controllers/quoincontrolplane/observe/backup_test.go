// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A snapshot that a wrong clock, or who writes to the store, dated ahead lets no rollout go on.
func TestASnapshotFromTheFutureIsNotRecent(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for age, recent := range map[time.Duration]bool{2 * time.Hour: false, 30 * time.Minute: true, 0: true,
		-30 * time.Second: true, -2 * time.Minute: false, -24 * time.Hour: false, time.Hour: true, time.Hour + 1: false,
		-time.Minute: true, -time.Minute - 1: false} {
		o := &Observation{At: now}
		o.ControlPlane = &controlplanev1.QuoinControlPlane{}
		o.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{}
		o.ControlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{
			LastGood: &controlplanev1.BackupRecord{Name: "s", Time: metav1.NewTime(now.Add(-age))}}
		g.Expect(o.backup().Recent).To(Equal(recent), "%s old", age)
	}
}

// What was asked for by a clock that was ahead would come only when that time does.
func TestARequestFromTheFutureIsNone(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	good := &controlplanev1.BackupRecord{Name: "s", Time: metav1.NewTime(now.Add(-2 * time.Hour))}
	for _, last := range []*controlplanev1.BackupRecord{nil, good} {
		for age, requested := range map[time.Duration]bool{3 * time.Hour: last == nil, time.Minute: true, 0: true,
			-time.Minute: true, -2 * time.Minute: false, -24 * time.Hour: false} {
			o := &Observation{At: now}
			o.ControlPlane = &controlplanev1.QuoinControlPlane{}
			o.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{}
			o.ControlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{LastGood: last,
				RequestedTime: metav1.NewTime(now.Add(-age))}
			g.Expect(o.backup().Requested).To(Equal(requested), "%s ago, the last good one is %v", age, last)
		}
	}
}

// What the store has lost is nothing to go back to, however young it was.
func TestASnapshotThatTheStoreHasLostIsNotRecent(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	o := &Observation{At: now}
	o.ControlPlane = &controlplanev1.QuoinControlPlane{}
	o.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{}
	o.ControlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{
		LastGood: &controlplanev1.BackupRecord{Name: "s", Time: metav1.NewTime(now)}}
	g.Expect(o.backup().Recent).To(BeTrue())
	conditions.Set(o.ControlPlane, metav1.Condition{Type: controlplanev1.ControlPlaneBackupHealthyCondition,
		Status: metav1.ConditionFalse, Reason: controlplanev1.SnapshotMissingReason})
	g.Expect(o.backup()).To(And(HaveField("Recent", BeFalse()), HaveField("Last", ContainSubstring("lost"))))
}

// The limit is the spec's, and is said with the time of the last good one.
func TestHowOldASnapshotMayBe(t *testing.T) {
	g := NewWithT(t)
	o := &Observation{At: noon}
	o.ControlPlane = &controlplanev1.QuoinControlPlane{}
	g.Expect(o.backup()).To(BeZero())
	o.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{MaxAgeSeconds: ptr.To[int32](90)}
	for age, recent := range map[time.Duration]bool{90 * time.Second: true, 91 * time.Second: false} {
		o.ControlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{
			LastGood: &controlplanev1.BackupRecord{Name: "s", Time: metav1.NewTime(noon.Add(-age))}}
		g.Expect(o.backup()).To(Equal(controlplane.Backup{Wanted: true, Recent: recent, Last: "the last good one is of " +
			noon.Add(-age).Format(time.RFC3339) + ", and 1m30s is the limit"}))
	}
}

// A snapshot that took longer than it may be old goes for who waited for it, for as long after it came: another one
// would be no younger when it comes. It goes for nobody else.
func TestASnapshotThatTakesLongerThanItMayBeOldAnswersWhoWaitedForIt(t *testing.T) {
	g := NewWithT(t)
	past := history.Past{}
	observe := func(at time.Duration, status controlplanev1.EtcdBackupStatus) controlplane.Backup {
		o := atNoon()
		o.At = noon.Add(at)
		o.ControlPlane.Spec.Backup = &controlplanev1.EtcdBackup{}
		o.ControlPlane.Status.Backup = &status
		var built *Observation
		built, past = buildState(o, past, Delays{})
		return built.State.Backup
	}
	old := &controlplanev1.BackupRecord{Name: "old", Time: metav1.NewTime(noon.Add(-2 * time.Hour))}
	long := &controlplanev1.BackupRecord{Name: "long", Time: metav1.NewTime(noon.Add(time.Second))}
	recent, waiting := HaveField("Recent", BeTrue()), And(HaveField("Recent", BeFalse()), HaveField("Requested", BeTrue()))
	asksAnew := And(HaveField("Recent", BeFalse()), HaveField("Requested", BeFalse()))
	request := controlplanev1.EtcdBackupStatus{LastGood: old, RequestedTime: metav1.NewTime(noon)}
	answer := controlplanev1.EtcdBackupStatus{LastGood: long, RequestedTime: metav1.NewTime(noon)}
	g.Expect(observe(0, controlplanev1.EtcdBackupStatus{LastGood: old})).To(asksAnew)

	g.Expect(observe(time.Minute, request)).To(waiting)
	g.Expect(observe(3*time.Hour-1, request)).To(waiting)
	g.Expect(observe(3*time.Hour, answer)).To(recent)
	g.Expect(observe(4*time.Hour, answer)).To(recent)
	g.Expect(observe(4*time.Hour+1, answer)).To(asksAnew)
	g.Expect(past.Snapshot).To(BeZero(), "nothing is kept of what is over")
	g.Expect(observe(4*time.Hour, answer)).To(asksAnew)

	g.Expect(observe(time.Minute, request)).To(waiting)
	g.Expect(observe(3*time.Hour, answer)).To(recent)
	g.Expect(observe(3*time.Hour-1, answer)).To(asksAnew, "the clock was set back")

	past = history.Past{}
	g.Expect(observe(3*time.Hour, answer)).To(asksAnew, "nobody has seen the request wait")
	g.Expect(observe(3*time.Hour, answer)).To(asksAnew)

	g.Expect(observe(time.Minute, request)).To(waiting)
	ahead := &controlplanev1.BackupRecord{Name: "ahead", Time: metav1.NewTime(noon.Add(24 * time.Hour))}
	g.Expect(observe(time.Hour, controlplanev1.EtcdBackupStatus{LastGood: ahead, RequestedTime: metav1.NewTime(noon)})).
		To(HaveField("Recent", BeFalse()), "it is dated ahead")

	g.Expect(observe(time.Minute, request)).To(waiting)
	earlier := controlplanev1.EtcdBackupStatus{LastGood: old, RequestedTime: metav1.NewTime(noon.Add(-3 * time.Hour))}
	g.Expect(observe(time.Hour, earlier)).To(asksAnew, "it answers another request")
}
