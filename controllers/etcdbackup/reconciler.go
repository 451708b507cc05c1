// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdbackup takes the snapshots of control planes' etcd: by a schedule, and when a rollout asks for one; and
// it brings the one that a recovery names to the host that it names. It is a controller of its own beside the one that
// runs the control plane, which reads no more of it than status.backup.
package etcdbackup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

const (
	// maxConcurrent bounds how many snapshots of different clusters are under way: each may take its size on the spool's
	// disk.
	maxConcurrent = 4
	// snapshotTimeout bounds one snapshot, which also ends when nothing moves for backup.StallTimeout.
	snapshotTimeout = 3 * time.Hour
	// listTimeout bounds looking into a store.
	listTimeout = 5 * time.Minute
)

// Reconciler takes snapshots. Its workers never wait for hosts or stores: what is slow runs beside them.
type Reconciler struct {
	// Client reads from the cache and writes; Secrets should not be cached.
	Client client.Client
	// APIReader reads hosts, which may live in namespaces that the cache does not cover.
	APIReader client.Reader
	// Hosts reach the etcd members.
	Hosts Hosts
	// Etcd is the members over the network when nil.
	Etcd EtcdClient
	// Directory of volume stores; none when empty. Spool holds one snapshot at a time; the system's for temporary files
	// when empty.
	Directory, Spool string
	// Egress rules which object stores are connected to.
	Egress *egress.Rules
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string
	// Clock is the system's when nil, which sees when it is set forward.
	Clock clock.PassiveClock

	calls *async.Calls
	mu    sync.Mutex
	known map[types.NamespacedName]*memory
	// protection of the Secrets that control planes refer to.
	protection *secretprotection.Protection
}

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines;quoinhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.Hosts == nil {
		return errors.New("fields Client, APIReader and Hosts must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("etcdbackup-controller")
	}
	r.prepare()
	if err := mgr.Add(r.calls); err != nil {
		return fmt.Errorf("register the end of snapshots: %w", err)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "etcdbackup")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("etcdbackup").
		For(&controlplanev1.QuoinControlPlane{}, builder.WithPredicates(ofInterest())).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(controlPlaneOfCluster),
			builder.WithPredicates(predicates.ClusterPausedTransitions(mgr.GetScheme(), log))).
		WatchesRawSource(source.Channel(r.calls.Events(), &handler.EnqueueRequestForObject{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the etcd backup controller: %w", err)
	}
	return nil
}

// prepare makes what Reconcile keeps, and removes what a process before this one left in the clear.
func (r *Reconciler) prepare() {
	backup.SweepSpool(r.Spool)
	if r.Clock == nil {
		r.Clock = steady.New()
	}
	r.calls = async.New(async.Options{MaxConcurrent: maxConcurrent})
	r.known = map[types.NamespacedName]*memory{}
	r.protection = &secretprotection.Protection{Client: r.Client, Reader: r.APIReader,
		Finalizer: controlplanev1.BackupSecretFinalizer, Now: r.Clock.Now}
}

// memory is what is known of a control plane's snapshots besides its status. It is lost with the process, and nothing
// but time is lost with it.
type memory struct {
	uid        types.UID
	generation int64
	// running is the call under way.
	running string
	// of says which store was looked into, and for which cluster; empty before.
	of string
	// looked is when what it has was read last, by a look or after a new snapshot.
	looked time.Time
	// newest is nil when the store has no good snapshot; count of them.
	newest *backup.Metadata
	count  int32
	// store is what status.backup.store becomes; missing the last good snapshot of status when only older ones are there.
	store   string
	missing *controlplanev1.BackupRecord
	// unsigned: no key of today has signed the newest one, so that another is taken at once.
	unsigned bool
	// attempted is when this process began the last snapshot, or has it wait for a slot.
	attempted time.Time
	// failures in a row since the last success, the time and what the last one says.
	failures int
	failedAt time.Time
	failure  *failure
	// delivery of the snapshot that spec.recovery names.
	delivery delivery
}

func (r *Reconciler) recall(controlPlane *controlplanev1.QuoinControlPlane) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(controlPlane)
	m := r.known[key]
	if m == nil || m.uid != controlPlane.UID {
		m = &memory{uid: controlPlane.UID, generation: controlPlane.Generation}
		missing := conditions.GetReason(controlPlane, controlplanev1.ControlPlaneBackupHealthyCondition) ==
			controlplanev1.SnapshotMissingReason
		if status := controlPlane.Status.Backup; missing && status != nil {
			// A store that does not answer now may still lack it.
			m.missing = status.LastGood
		}
		r.known[key] = m
	}
	if m.generation != controlPlane.Generation {
		// Somebody may have mended it: no need to wait as long as before.
		m.generation, m.failures, m.delivery.failures = controlPlane.Generation, 0, 0
		m.delivery.undiscarded = nil
	}
	return m
}

// forget ends what runs for a control plane.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.calls.Cancel(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, key)
	r.protection.Forget(key)
	forgetMetrics(key)
}

// Reconcile looks whether a snapshot of a control plane's etcd is due, and starts it or takes its result.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	controlPlane := &controlplanev1.QuoinControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, controlPlane); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, moving := controlPlane.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, controlPlane.ObjectMeta)
	if !controlPlane.DeletionTimestamp.IsZero() {
		r.forget(req.NamespacedName)
		if client.IgnoreNotFound(err) != nil || cluster != nil && annotations.IsPaused(cluster, controlPlane) {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		return ctrl.Result{}, r.releaseSecrets(ctx, controlPlane)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster that owns QuoinControlPlane %s: %w",
			klog.KObj(controlPlane), err)
	}
	if cluster == nil || annotations.IsPaused(cluster, controlPlane) || !cluster.DeletionTimestamp.IsZero() {
		// Also in the middle of a snapshot: a paused Cluster may be about to be moved, and waits for its end.
		r.forget(req.NamespacedName)
		return ctrl.Result{}, r.reportQuiet(ctx, controlPlane)
	}
	kept := r.keepSecrets(ctx, controlPlane)
	if status := controlPlane.Status.Backup; controlPlane.Spec.Backup == nil && (status == nil || status.Restore == nil) {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, errors.Join(kept, r.clear(ctx, controlPlane))
	}
	s := &reconciliation{cluster: cluster, controlPlane: controlPlane, known: r.recall(controlPlane), now: r.Clock.Now()}
	result, err := r.reconcile(ctx, s)
	return result, errors.Join(kept, err)
}

// reconciliation is one pass over a control plane.
type reconciliation struct {
	cluster      *clusterv1.Cluster
	controlPlane *controlplanev1.QuoinControlPlane
	known        *memory
	now          time.Time
	// waiting says what a first snapshot waits for.
	waiting string
	// restoring is what status.backup.restore becomes; nil when it stays.
	restoring **controlplanev1.EtcdRestoreStatus
}

// reconcile takes the result of what ran, looks into the store where that is not done yet, starts a snapshot when one
// is due, and tells.
func (r *Reconciler) reconcile(ctx context.Context, s *reconciliation) (ctrl.Result, error) {
	r.collect(ctx, s)
	wait := r.advance(ctx, s)
	if err := r.report(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// advance starts what comes next. It returns how long to wait until something is due; nothing is while something runs,
// whose end sends an event.
func (r *Reconciler) advance(ctx context.Context, s *reconciliation) time.Duration {
	switch {
	case s.known.running != "" || r.busy(client.ObjectKeyFromObject(s.controlPlane)):
		return 0
	case s.controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined():
		s.failWith(failed(controlplanev1.BackupSpecInvalidReason,
			errors.New("etcd is external, so it is not backed up here: remove spec.backup")))
		return 0
	}
	// Also where status is lost and no API server answers that could say it anew.
	wait, handled := r.restore(ctx, s)
	switch {
	case handled:
		return wait
	case s.controlPlane.Spec.Backup == nil:
		return time.Minute // what was brought to a host may still be used, and only the status says where it is
	}
	if !initialized(s.controlPlane) {
		s.waiting = "the control plane is not initialized yet"
		return 0
	}
	if retry := s.retry(); s.known.failures > 0 && s.now.Before(retry) && !s.asked() {
		return retry.Sub(s.now)
	}
	target, problem := r.target(ctx, s)
	if problem != nil {
		s.failWith(problem)
		return s.retry().Sub(s.now)
	}
	if s.known.of != target.fingerprint {
		r.look(s, target)
		return 0
	}
	due, err := whenDue(s.controlPlane.Spec.Backup, s.controlPlane.Status.Backup, s.known.newest, s.now)
	if err != nil {
		s.failWith(failed(controlplanev1.BackupSpecInvalidReason, fmt.Errorf("spec.backup.schedule: %w", err)))
		return 0
	}
	if s.known.missing != nil || s.known.unsigned {
		due = s.now
	}
	if due.IsZero() || s.now.Before(due) {
		return r.idle(s, target, due)
	}
	members, problem := r.members(ctx, s)
	if problem != nil {
		s.failWith(problem)
		return s.retry().Sub(s.now)
	}
	r.take(s, target, members)
	return 0
}

// idle looks into the store at intervals while nothing is to be stored. It returns how long to wait for what comes
// first, that or the next snapshot; due is zero when none is.
func (r *Reconciler) idle(s *reconciliation, t *target, due time.Time) time.Duration {
	if due.IsZero() {
		s.waiting = "one is taken before the next rollout"
	}
	look := s.known.looked.Add(lookInterval)
	if !s.now.Before(look) {
		r.look(s, t) // what failed before may be this
		return 0
	}
	// What failed on the way here is mended, and nothing else can: no attempt would tell before the next one is due.
	s.known.failures, s.known.failure = 0, nil
	if due.IsZero() || look.Before(due) {
		due = look
	}
	return max(due.Sub(s.now), time.Second)
}
