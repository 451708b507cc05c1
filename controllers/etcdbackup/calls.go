// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// The calls that run beside the workers.
const (
	opLook = "look"
	opTake = "take"
)

// found is what a store holds, after a look into it or a new snapshot.
type found struct {
	store, fingerprint string
	newest             *backup.Metadata
	count              int32
	// missing is the last good snapshot of status when only older ones are there.
	missing *controlplanev1.BackupRecord
	// unsigned: no key of today has signed the newest one.
	unsigned bool
	// began is when a new snapshot was begun, also one that failed, took how long it took, and where says where it went;
	// retention says what of old ones could not be deleted.
	began     time.Time
	took      time.Duration
	where     string
	retention error
	// delivered are the data of a recovery's snapshot that are on a host now, and stored the digest of the snapshot.
	delivered recovery.Snapshot
	stored    string
}

// look reads from the store which snapshots there are: after a start, a move, a change of the store, and at intervals.
func (r *Reconciler) look(s *reconciliation, t *target) {
	last := s.lastGood(t)
	r.start(s, opLook, listTimeout, func(ctx context.Context) (found, error) {
		store, done, err := t.open()
		if err != nil {
			return found{}, fmt.Errorf("%w: %w", backup.ErrStore, err)
		}
		defer done()
		good, err := backup.Good(ctx, store, t.directory, t.authority, t.signing)
		if err != nil {
			return found{}, fmt.Errorf("%w: %w", backup.ErrStore, err)
		}
		result := seen(t, good, r.Clock.Now())
		if len(t.signing) == 0 {
			// Whoever can write to the store can make those that are newer than what was taken note of.
			result.newest = newestOf(takenBy(good, last), r.Clock.Now())
		}
		if last == nil || result.newest != nil && result.newest.Time.After(last.Time.Time) {
			return result, nil
		}
		// Also one that the keys of today have not signed is there.
		all, err := backup.Good(ctx, store, t.directory, t.authority, nil)
		if err != nil {
			return found{}, fmt.Errorf("%w: %w", backup.ErrStore, err)
		}
		of := func(m backup.Metadata) bool { return isRecord(m, last) }
		switch at := slices.IndexFunc(all, of); {
		case at < 0:
			result.missing = last
		case result.newest == nil || !all[at].Time.After(r.Clock.Now()):
			result.newest, result.unsigned = &all[at], !slices.ContainsFunc(good, of)
		}
		return result, nil
	})
}

// lastGood is the last good snapshot that is recorded of a store; nil when none is, or that of another one.
func (s *reconciliation) lastGood(t *target) *controlplanev1.BackupRecord {
	var last *controlplanev1.BackupRecord
	if status := s.controlPlane.Status.Backup; status != nil && status.Store == t.store {
		last = status.LastGood
	}
	var c carried
	// What cannot be read is as good as none.
	_ = json.Unmarshal([]byte(s.controlPlane.Annotations[controlplanev1.LastGoodSnapshotAnnotation]), &c)
	if c.LastGood != nil && c.Store == t.store && (last == nil || last.Time.Before(&c.LastGood.Time)) {
		last = c.LastGood
	}
	return last
}

// carried is what goes along with a control plane that is moved to another management cluster.
type carried struct {
	Store    string                       `json:"store"`
	LastGood *controlplanev1.BackupRecord `json:"lastGood"`
}

// carry has the last good snapshot go along; nothing when there is none.
func (s *reconciliation) carry(store string, last *controlplanev1.BackupRecord) {
	if last == nil {
		delete(s.controlPlane.Annotations, controlplanev1.LastGoodSnapshotAnnotation)
		return
	}
	raw, _ := json.Marshal(carried{Store: store, LastGood: last}) // none of it can fail
	annotations.AddAnnotations(s.controlPlane, map[string]string{controlplanev1.LastGoodSnapshotAnnotation: string(raw)})
}

// isRecord reports whether a snapshot is the one of a record, and not another one under its name.
func isRecord(m backup.Metadata, record *controlplanev1.BackupRecord) bool {
	return m.Name == record.Name && m.SHA256 == record.SHA256
}

// takenBy leaves out the snapshots that are newer than a record; all of them when there is none.
func takenBy(good []backup.Metadata, last *controlplanev1.BackupRecord) []backup.Metadata {
	return slices.DeleteFunc(slices.Clone(good), func(m backup.Metadata) bool {
		return last == nil || m.Time.After(last.Time.Time)
	})
}

func seen(t *target, good []backup.Metadata, now time.Time) found {
	result := found{store: t.store, fingerprint: t.fingerprint, where: t.where}
	result.count = int32(len(good)) //nolint:gosec // there are not so many
	result.newest = newestOf(good, now)
	return result
}

// newestOf is the first of the good snapshots, the newest first, that is not dated ahead, by which nothing can be
// judged; one that is when there is no other, and nil when there is none.
func newestOf(good []backup.Metadata, now time.Time) *backup.Metadata {
	if len(good) == 0 {
		return nil
	}
	return &good[max(0, slices.IndexFunc(good, func(m backup.Metadata) bool { return !m.Time.After(now) }))]
}

// take takes a snapshot, and then deletes what is older than the spec keeps. It begins when it has a slot, for which it
// may wait as long as the snapshots of others take: what is written meanwhile is in it.
func (r *Reconciler) take(s *reconciliation, t *target, endpoints []etcd.Endpoint) {
	s.known.attempted = s.now
	key := client.ObjectKeyFromObject(s.controlPlane)
	r.start(s, opTake, snapshotTimeout, func(ctx context.Context) (found, error) {
		began := r.Clock.Now()
		store, done, err := t.open()
		if err != nil {
			return found{began: began}, fmt.Errorf("%w: %w", backup.ErrStore, err)
		}
		defer done()
		metadata, err := backup.Take(ctx, backup.Job{Store: store, Directory: t.directory, Authority: t.authority,
			Source: func(ctx context.Context) (backup.Stream, error) {
				return open(ctx, r.etcd(), endpoints, r.credentials(t))
			},
			Recipients: t.recipients, Signing: t.signing, Spool: r.Spool, Began: began})
		if !errors.Is(ctx.Err(), context.Canceled) {
			// Else the control plane was forgotten, and its metrics with it.
			observe(key, r.Clock.Now().Sub(began), err)
		}
		if err != nil {
			return found{began: began}, err
		}
		good, err := backup.Prune(ctx, store, t.directory, metadata, t.keep, t.signing, r.Clock.Now())
		result := seen(t, good, r.Clock.Now())
		if result.newest == nil {
			result.count = 1
		}
		result.newest, result.began, result.took, result.retention = &metadata, began, r.Clock.Now().Sub(began), err
		return result, nil
	})
}

// start begins a call. Its function is given nothing that must be closed: it may never run.
func (r *Reconciler) start(
	s *reconciliation, op string, timeout time.Duration, fn func(context.Context) (found, error),
) {
	s.known.running = op
	_, _, _ = async.Do(r.calls, client.ObjectKeyFromObject(s.controlPlane), op, timeout, fn)
}

// errGone is the result of a call that is not known any more.
var errGone = errors.New("the call is not known any more")

// collect takes the result of what ran.
func (r *Reconciler) collect(ctx context.Context, s *reconciliation) {
	op := s.known.running
	if op == "" {
		return
	}
	result, done, err := async.Do(r.calls, client.ObjectKeyFromObject(s.controlPlane), op, 0,
		func(context.Context) (found, error) { return found{}, errGone })
	if !done {
		return
	}
	s.known.running = ""
	if op == opDeliver || op == opDiscard {
		r.collectDelivery(ctx, s, op, result, err)
		return
	}
	if s.controlPlane.Spec.Backup == nil {
		return // it was about a store that nobody names any more
	}
	if !result.began.IsZero() {
		s.known.attempted = result.began
	}
	log := ctrl.LoggerFrom(ctx).WithValues("call", op)
	switch {
	case errors.Is(err, errGone) || errors.Is(err, context.Canceled) && !errors.Is(err, backup.ErrStalled):
		// What stalled was canceled as well, by its own watchdog: that is a failure of the store or of etcd.
		return
	case err != nil:
		log.Error(err, "A call about snapshots of etcd failed")
		s.failWith(classify(err))
		if op == opTake {
			r.event(s, corev1.EventTypeWarning, "BackupFailed", "No snapshot of etcd: "+s.known.failure.message)
		}
		return
	}
	s.known.of, s.known.newest, s.known.count = result.fingerprint, result.newest, result.count
	s.known.looked = s.now
	if result.missing != nil && s.known.missing == nil {
		r.event(s, corev1.EventTypeWarning, "SnapshotMissing", missed(result.missing, result.newest))
	}
	s.known.store, s.known.missing, s.known.unsigned = result.store, result.missing, result.unsigned
	observeNewest(client.ObjectKeyFromObject(s.controlPlane), result.newest)
	if op == opLook {
		// The one that failed before this process began is not tried again at once: it may be why this process began.
		if status := s.controlPlane.Status.Backup; s.known.failures == 0 && status != nil &&
			status.LastAttemptTime.After(s.last()) {
			// A clock that was ahead must not put off the next one.
			s.known.failures, s.known.failedAt = 1, earlier(status.LastAttemptTime.Time, s.now)
		} else if s.known.missing == nil {
			s.known.failure = nil
		}
		return
	}
	s.known.failures, s.known.failure = 0, nil
	m := result.newest
	log.Info("Took a snapshot of etcd", "name", m.Name, "revision", m.Revision, "size", m.Size, "node", m.Node, "took",
		result.took)
	r.event(s, corev1.EventTypeNormal, "BackupSucceeded",
		fmt.Sprintf("Snapshot %s of revision %d (%.1f MiB, from node %s) is verified in %s; %d are kept",
			m.Name, m.Revision, float64(m.Size)/(1<<20), m.Node, result.where, result.count))
	if result.retention != nil {
		log.Error(result.retention, "Old snapshots could not be deleted")
		r.event(s, corev1.EventTypeWarning, "BackupRetentionFailed", result.retention.Error())
	}
}

// last is when the last good snapshot was begun, which the store may have lost; zero when there is none.
func (s *reconciliation) last() time.Time {
	switch {
	case s.known.missing != nil:
		return s.known.missing.Time.Time
	case s.known.newest == nil:
		return time.Time{}
	}
	return s.known.newest.Time
}

// asked reports whether somebody wants a snapshot who did not when the last attempt began.
func (s *reconciliation) asked() bool {
	return s.controlPlane.Status.Backup.Requested(s.now).After(s.attempted()) &&
		!s.now.Before(s.known.failedAt.Add(firstRetry))
}

// retry is when what failed is tried again: a snapshot that was not due yet as it failed does not wait for longer than
// until it is.
func (s *reconciliation) retry() time.Time {
	retry := s.known.failedAt.Add(backoff(s.known.failures))
	if s.known.newest == nil {
		return retry
	}
	due, err := whenDue(s.controlPlane.Spec.Backup, nil, s.known.newest, s.now)
	if err != nil || !due.After(s.known.failedAt) {
		return retry
	}
	return earlier(retry, due)
}

func (s *reconciliation) attempted() time.Time {
	if !s.known.attempted.IsZero() {
		return s.known.attempted
	}
	if s.controlPlane.Status.Backup != nil {
		return earlier(s.controlPlane.Status.Backup.LastAttemptTime.Time, s.now)
	}
	return time.Time{}
}

// failure is why there is no new snapshot.
type failure struct{ reason, message string }

func failed(reason string, err error) *failure { return &failure{reason: reason, message: err.Error()} }

func (s *reconciliation) failWith(f *failure) {
	if s.known.missing != nil {
		// Somebody may put it back.
		s.known.of = ""
	}
	s.known.failures++
	s.known.failedAt, s.known.failure = s.now, f
}

// classify finds the reason of a failed call.
func classify(err error) *failure {
	var noRoom *backup.NoRoomError
	switch {
	case errors.As(err, &noRoom):
		return failed(controlplanev1.NoRoomReason, err)
	case errors.Is(err, backup.ErrDamaged):
		return failed(controlplanev1.SnapshotDamagedReason, err)
	case errors.Is(err, errEtcd):
		return failed(controlplanev1.EtcdUnavailableReason, err)
	case errors.Is(err, backup.ErrStore):
		return failed(controlplanev1.BackupStoreUnavailableReason, err)
	}
	return failed(controlplanev1.SnapshotFailedReason, err)
}

func (r *Reconciler) event(s *reconciliation, kind, reason, message string) {
	r.Recorder.Eventf(s.controlPlane, nil, kind, reason, reason, "%s", message)
}

// busy reports whether a call, which may be one that was canceled, has not ended.
func (r *Reconciler) busy(key types.NamespacedName) bool {
	_, _, busy := r.calls.Running(key)
	return busy
}
