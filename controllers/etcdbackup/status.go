// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// longestMessage of a condition.
const longestMessage = 2000

// ownedCondition is set here and by nobody else; of the rest of status only the fields of status.backup that are not
// requestedTime.
const ownedCondition = controlplanev1.ControlPlaneBackupHealthyCondition

// report writes status, if something of it changed.
func (r *Reconciler) report(ctx context.Context, s *reconciliation) error {
	helper, err := objectpatch.New(s.controlPlane, r.Client)
	if err != nil {
		return err
	}
	s.setStatus()
	s.setCondition()
	conditions.Delete(s.controlPlane, controlplanev1.ControlPlaneBackupQuietCondition)
	return apierr.IgnoreGone(helper.Patch(ctx, s.controlPlane, ownedCondition,
		controlplanev1.ControlPlaneBackupQuietCondition))
}

// reportQuiet reports of a paused control plane whether what was canceled has ended. Its end sends an event.
func (r *Reconciler) reportQuiet(ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane) error {
	if controlPlane.Spec.Backup == nil {
		return nil
	}
	helper, err := objectpatch.New(controlPlane, r.Client)
	if err != nil {
		return err
	}
	condition := metav1.Condition{
		Type: controlplanev1.ControlPlaneBackupQuietCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason,
		ObservedGeneration: controlPlane.Generation,
	}
	if r.busy(client.ObjectKeyFromObject(controlPlane)) {
		condition.Status, condition.Message = metav1.ConditionFalse,
			"a snapshot of etcd, or its way to a host, is being given up"
	}
	conditions.Set(controlPlane, condition)
	return apierr.IgnoreGone(helper.Patch(ctx, controlPlane, controlplanev1.ControlPlaneBackupQuietCondition))
}

func (s *reconciliation) setStatus() {
	status := s.controlPlane.Status.Backup
	if status == nil {
		status = &controlplanev1.EtcdBackupStatus{}
	}
	if !s.known.attempted.IsZero() {
		status.LastAttemptTime = metav1.NewTime(s.known.attempted.Truncate(time.Second))
	}
	if s.known.of != "" {
		status.Count = ptr.To(s.known.count)
		status.Store, status.LastGood = s.known.store, record(s.known.newest)
		if s.known.missing != nil {
			status.LastGood = s.known.missing
		}
		s.carry(status.Store, status.LastGood)
	}
	status.NextTime = metav1.Time{}
	if spec := s.controlPlane.Spec.Backup; spec != nil && s.known.newest != nil {
		if schedule, err := backup.ParseSchedule(spec.Schedule); err == nil {
			status.NextTime = metav1.NewTime(schedule.Next(earlier(s.last(), s.now)))
		}
	}
	status.Restore = s.restored()
	if *status != (controlplanev1.EtcdBackupStatus{}) {
		s.controlPlane.Status.Backup = status
	}
}

// missed says which snapshot the store has lost, and what to do.
func missed(last *controlplanev1.BackupRecord, newest *backup.Metadata) string {
	left := "and has no newer one"
	if newest != nil {
		left = "and the newest that it has is " + newest.Name
	}
	return fmt.Sprintf("the store has lost the last good snapshot %s, with the SHA-256 %s, %s: somebody may want a "+
		"recovery to begin with an old one. Look who deletes there, and put it back if you can; a new one is taken at once",
		last.Name, last.SHA256, left)
}

func record(m *backup.Metadata) *controlplanev1.BackupRecord {
	if m == nil {
		return nil
	}
	return &controlplanev1.BackupRecord{Name: m.Name, Time: metav1.NewTime(m.Time), Revision: ptr.To(m.Revision),
		SizeBytes: ptr.To(m.Size), SHA256: m.SHA256, Encrypted: ptr.To(m.Encrypted())}
}

func (s *reconciliation) setCondition() {
	condition := metav1.Condition{Type: controlplanev1.ControlPlaneBackupHealthyCondition}
	switch {
	case s.known.of == "" && s.known.failure == nil && s.waiting == "" && conditions.Has(s.controlPlane, condition.Type):
		// The store was not looked into yet.
		return
	case s.known.missing != nil:
		condition.Status, condition.Reason = metav1.ConditionFalse, controlplanev1.SnapshotMissingReason
		condition.Message = missed(s.known.missing, s.known.newest)
		if s.known.failure != nil {
			condition.Message += ", which fails: " + s.known.failure.message
		}
	case s.known.failure != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, s.known.failure.reason,
			s.known.failure.message
	case s.known.failures > 0:
		// It failed before this process began: what was said then still holds.
		return
	case s.known.newest != nil:
		condition.Status, condition.Reason = metav1.ConditionTrue, controlplanev1.SnapshotVerifiedReason
	default:
		condition.Status, condition.Reason = metav1.ConditionUnknown, controlplanev1.NoSnapshotYetReason
		switch {
		case s.waiting != "":
			condition.Message = "No snapshot was taken yet: " + s.waiting
		case s.known.running == opTake:
			condition.Message = "The first snapshot is being taken"
		default:
			condition.Message = "The store is being looked into"
		}
	}
	condition.Message = text.Sentence(text.Shorten(condition.Message, longestMessage))
	conditions.Set(s.controlPlane, condition)
}

// clear takes away what was reported while a backup was configured.
func (r *Reconciler) clear(ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane) error {
	_, carries := controlPlane.Annotations[controlplanev1.LastGoodSnapshotAnnotation]
	if controlPlane.Status.Backup == nil && !carries &&
		!conditions.Has(controlPlane, controlplanev1.ControlPlaneBackupHealthyCondition) {
		return nil
	}
	helper, err := objectpatch.New(controlPlane, r.Client)
	if err != nil {
		return err
	}
	controlPlane.Status.Backup = nil
	delete(controlPlane.Annotations, controlplanev1.LastGoodSnapshotAnnotation)
	conditions.Delete(controlPlane, controlplanev1.ControlPlaneBackupHealthyCondition)
	return apierr.IgnoreGone(helper.Patch(ctx, controlPlane, ownedCondition))
}
