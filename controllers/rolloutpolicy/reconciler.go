// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rolloutpolicy leads the rollouts of workers as RolloutPolicies say: it reads what package rollout decides by,
// opens the gates of Machines that this comes to, and tells.
package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// cacheLag is how long a cache is given to catch up.
const cacheLag = time.Second

// Reconciler leads rollouts. It reconciles Clusters: what a RolloutPolicy that is gone left behind belongs to its
// Cluster, and of several policies one holds.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads Machines as they are now before one of them is changed.
	APIReader client.Reader
	// ClusterCache reaches workload clusters.
	ClusterCache clustercache.ClusterCache
	// Egress rules which addresses a policy's checks ask.
	Egress *egress.Rules
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// Clock is the system's when nil, which sees when it is set forward.
	Clock clock.PassiveClock
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string
	// remnants by the UID of a Machine.
	remnants sync.Map
	// held are, by the Cluster, the reasons that events gave why Machines in deletion are not drained yet, by their UIDs.
	held sync.Map
	// refusals are the []refusedLeave of a Cluster, by its key.
	refusals sync.Map
	// words of policies' statuses are kept apart; nil holds nothing back.
	words *objectpatch.Pace
	// rest of Clusters between two reconciles; nil lets them have none.
	rest       *rest
	controller controller.Controller
	looker     looker
}

// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies/status,verbs=get;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments;machinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedrainrules,verbs=list
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil {
		return errors.New("fields Client, APIReader and ClusterCache must be set")
	}
	if err := r.looker.endWith(mgr); err != nil {
		return err
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("rolloutpolicy-controller")
	}
	if r.Clock == nil {
		r.Clock = steady.New()
	}
	r.pace()
	if options.RateLimiter == nil {
		// A MachineDeployment whose writes fail must not have the soaks and drains of others wait for its backoff.
		options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			5*time.Millisecond, workloadRetry)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "rolloutpolicy")
	ofCluster := handler.EnqueueRequestsFromMapFunc(r.ofCluster)
	building := ctrl.NewControllerManagedBy(mgr).
		Named("rolloutpolicy").
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Watches(&quoinv1.RolloutPolicy{}, ofCluster).
		Watches(&clusterv1.Cluster{}, ofCluster).
		Watches(&clusterv1.MachineDeployment{}, ofCluster).
		Watches(&clusterv1.MachineSet{}, ofCluster).
		Watches(&clusterv1.Machine{}, ofCluster).
		Watches(&infrav1.QuoinMachine{}, ofCluster).
		Watches(&infrav1.QuoinHost{}, handler.EnqueueRequestsFromMapFunc(r.ofHost), builder.WithPredicates(markChanges())).
		WatchesRawSource(source.Channel(r.looker.begun().Events(), &handler.EnqueueRequestForObject{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("rolloutpolicy", r.ofCluster))
	var err error
	if r.controller, err = building.Build(r); err != nil {
		return fmt.Errorf("set up the controller of RolloutPolicies: %w", err)
	}
	return nil
}

// pace keeps apart what many Machines cause from now on.
func (r *Reconciler) pace() {
	r.words, r.rest = &objectpatch.Pace{Interval: countsInterval, Counts: counts, Now: r.Clock.Now}, &rest{}
}

// ofCluster is the Cluster that the object belongs to, or is, when a policy is or was for it.
func (r *Reconciler) ofCluster(ctx context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[clusterv1.ClusterNameLabel]}
	switch o := object.(type) {
	case *quoinv1.RolloutPolicy:
		key.Name = o.Spec.ClusterName
		return []reconcile.Request{{NamespacedName: key}}
	case *clusterv1.Cluster:
		key.Name = o.Name
	case *clusterv1.MachineDeployment:
		key.Name = o.Spec.ClusterName
	case *clusterv1.Machine:
		if held(o) {
			return []reconcile.Request{{NamespacedName: key}}
		}
	case *infrav1.QuoinMachine:
		if stray(o) {
			return []reconcile.Request{{NamespacedName: key}}
		}
	}
	policies := &quoinv1.RolloutPolicyList{}
	if err := r.Client.List(ctx, policies, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list RolloutPolicies")
		return nil
	}
	if rollout.Of(policies.Items, key.Name) == nil && !r.holdsBack(ctx, object) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// holdsBack reports whether the object is a Cluster of which Machines still carry what a policy put on them.
// Nothing was taken off while it was paused, and the policy may be gone when it is resumed.
func (r *Reconciler) holdsBack(ctx context.Context, object client.Object) bool {
	if _, is := object.(*clusterv1.Cluster); !is {
		return false
	}
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(object.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: object.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the Machines of a Cluster")
		return true
	}
	return slices.ContainsFunc(machines.Items, func(machine clusterv1.Machine) bool { return held(&machine) })
}

// held reports whether the Machine carries what only a policy puts on it.
func held(machine *clusterv1.Machine) bool {
	return rollout.Gated(machine) || rollout.Marked(machine) || remembers(machine)
}

// Reconcile opens the gates of a Cluster's Machines that may be opened, and tells what the others wait for.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if left := r.rest.left(req.NamespacedName, r.Clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	result, err := r.reconcile(ctx, req.NamespacedName)
	if conflicts(err) {
		return ctrl.Result{RequeueAfter: cacheLag}, nil // it was read before somebody wrote it, which is nobody's failure
	}
	return result, err
}

// conflicts reports whether an error is conflicts and nothing else.
func conflicts(err error) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return apierrors.IsConflict(err)
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !conflicts(err) })
}

func (r *Reconciler) reconcile(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	policies := &quoinv1.RolloutPolicyList{}
	if err := r.Client.List(ctx, policies, client.InNamespace(key.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	defer measureProblems(key, policies.Items) // with the conditions that they have by then
	cluster, err := util.GetClusterByName(ctx, r.Client, key.Namespace, key.Name)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	policy := rollout.Of(policies.Items, key.Name)
	if err := r.supersede(ctx, policies.Items, policy, key.Name); err != nil {
		return ctrl.Result{}, err
	}
	if policy == nil || cluster == nil || !cluster.DeletionTimestamp.IsZero() {
		forgetMetrics(key.Namespace, key.Name)
		machineSeconds.DeleteLabelValues(key.Namespace, key.Name)
		r.held.Delete(key)
		r.refusals.Delete(key)
		r.looker.begun().Cancel(key)
		r.forgetRemnants(key, nil)
	}
	switch {
	case policy == nil && cluster == nil:
		return ctrl.Result{}, nil
	case policy == nil:
		return r.release(ctx, cluster)
	}
	if _, moving := policy.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		return ctrl.Result{}, nil
	}
	// Before a pause of the policy: Cluster API waits for hooks of a Cluster that goes, and it takes the policy along only
	// afterwards.
	if cluster != nil && !cluster.DeletionTimestamp.IsZero() {
		return r.release(ctx, cluster)
	}
	isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, policy)
	switch {
	case err != nil || written:
		return ctrl.Result{}, err
	case isPaused:
		r.looker.begun().Cancel(key) // what it finds would be of before
		wait, err := r.report(ctx, policy, pausedStatus(policy))
		measure(policy)
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if cluster == nil {
		wait, err := r.report(ctx, policy, notFound(policy))
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if adopted, err := objectpatch.Adopt(ctx, r.Client, policy, cluster); adopted || err != nil {
		return ctrl.Result{}, err
	}
	return r.lead(ctx, policy, cluster)
}

// lead decides by the cache, and once more by Machines that are read anew before one is changed: a cache that is behind
// would have a second one admitted beside a canary.
func (r *Reconciler) lead(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster,
) (ctrl.Result, error) {
	seen, err := r.observe(ctx, r.Client, policy, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !seen.behind {
		r.forgetRemnants(client.ObjectKeyFromObject(cluster), seen.machines)
	}
	carried, failed := r.carryMarks(ctx, policy, seen)
	if carried {
		return ctrl.Result{RequeueAfter: cacheLag}, failed
	}
	nodes, unread := r.readNodes(ctx, policy, cluster, seen)
	if unread != nil {
		ctrl.LoggerFrom(ctx).Info("The Nodes of a workload cluster were not read", "reason", unread.Error())
	}
	seen.fill(nodes)
	plan, err := r.looks(ctx, policy, cluster, seen)
	if err != nil {
		return ctrl.Result{}, errors.Join(failed, err)
	}
	if changes(plan) {
		if seen, err = r.observe(ctx, r.APIReader, policy, cluster); err != nil {
			return ctrl.Result{}, errors.Join(failed, err)
		}
		seen.fill(nodes)
		plan = rollout.Plan(seen.state, &policy.Spec, r.Clock.Now())
	}
	if deletes(plan) || replaces(plan) {
		if is, err := r.current(ctx, seen, policy, cluster); err != nil || !is {
			return ctrl.Result{RequeueAfter: cacheLag}, errors.Join(failed, err)
		}
	}
	dead, err := r.execute(ctx, policy, cluster, seen, &plan)
	failed = errors.Join(failed, err)
	if dead {
		return ctrl.Result{RequeueAfter: cacheLag}, failed
	}
	// What is refused of a free one in the first pass of a process is not all that is refused.
	_, known := r.refusals.Load(client.ObjectKeyFromObject(cluster))
	failed = errors.Join(failed, r.unmark(ctx, seen, plan))
	r.recall(policy, cluster, seen, &plan, known)
	status := statusOf(policy, plan, r.Clock.Now())
	expect(policy, &status, plan, r.Clock.Now())
	failed = errors.Join(failed, r.record(ctx, seen, &status, plan),
		r.rollBack(ctx, policy, seen, plan.Failures, &status))
	unsaid, err := r.report(ctx, policy, status)
	if err != nil {
		return ctrl.Result{}, errors.Join(failed, err)
	}
	measure(policy)
	// After the status: what was terminated last is known before it is.
	more, unled := r.leave(ctx, policy, cluster, seen, plan.Leaves)
	kept, unfreed := r.free(ctx, cluster, seen.free)
	if err := errors.Join(failed, unled, r.discard(ctx, cluster, true), unfreed); err != nil {
		return ctrl.Result{}, err
	}
	again := r.again(cluster, plan)
	for _, other := range []struct {
		applies bool
		after   time.Duration
	}{{unread != nil || kept || seen.unseen, workloadRetry}, {seen.behind || more, cacheLag}, {unsaid > 0, unsaid}} {
		if other.applies && (again == 0 || again > other.after) {
			again = other.after
		}
	}
	// Not after a failure: what returns in a rest has the queue forget how often it failed.
	r.rest.begin(client.ObjectKeyFromObject(cluster), len(seen.machines), r.Clock.Now())
	return ctrl.Result{RequeueAfter: again}, nil
}

// changes reports whether the plan changes a Machine or sets a template back.
func changes(plan rollout.Result) bool {
	if len(plan.Failures) > 0 {
		return true
	}
	for _, decision := range plan.Decisions {
		switch decision.Action {
		case rollout.Admit, rollout.Count, rollout.Delete, rollout.Mark, rollout.Unmark:
			return true
		}
	}
	for _, decision := range plan.Leaves {
		switch decision.Action {
		case rollout.Drain, rollout.Skip, rollout.DeletePods, rollout.Terminate, rollout.Replace:
			return true
		}
	}
	return false
}
