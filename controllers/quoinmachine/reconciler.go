// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quoinmachine reconciles QuoinMachines: it claims a host for each, shows how far the host is, and lets the
// host go. It works on objects only; what happens on a host is the QuoinHost controller's business.
package quoinmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/ownwrites"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// Reconciler reconciles QuoinMachines.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads hosts when "no host carries the claim" permits something that cannot be undone.
	APIReader client.Reader
	// ClusterCache connects to workload clusters, to free the volumes of hosts that do not run; they are left to time out
	// when nil.
	ClusterCache clustercache.ClusterCache
	// Hosts confirm that this management cluster may change the workload cluster, before a Node is declared out of
	// service.
	Hosts hostaccess.Holder
	// Withholds says why whoever made a Machine has it claim no host now; empty when nobody does. It is asked right before
	// a claim; nobody is when nil.
	Withholds func(ctx context.Context, machine *clusterv1.Machine) (why string, err error)
	// Clock is the system's when nil, which sees when it is set forward.
	Clock clock.PassiveClock
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string

	reservations reservations
	counts       counts
	writes       *ownwrites.Client
	words        *objectpatch.Pace
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines/status;quoinmachines/finalizers,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch;delete
// The kubeconfigs of workload clusters.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache != nil && r.Hosts == nil {
		return errors.New("the reconciler needs a Client and an APIReader, and Hosts with a ClusterCache")
	}
	r.track()
	r.words = &objectpatch.Pace{}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("quoinmachine-controller")
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "quoinmachine")
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.QuoinMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to QuoinMachines: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("quoinmachine").
		For(&infrav1.QuoinMachine{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Watches(&clusterv1.Machine{},
			handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(
				infrav1.GroupVersion.WithKind("QuoinMachine")))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.waitingForControlPlane),
			builder.WithPredicates(versionsRunChanges())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines),
			builder.WithPredicates(predicate.Or(predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(),
				log), policyChanges()))).
		Watches(&quoinv1.RolloutPolicy{}, handler.EnqueueRequestsFromMapFunc(r.waitingForRollout)).
		Watches(&infrav1.QuoinHost{}, r.hostEvents()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the QuoinMachine controller: %w", err)
	}
	return nil
}

// track notes our own writes from now on.
func (r *Reconciler) track() {
	if r.writes == nil {
		r.writes = ownwrites.Track(r.Client)
		r.Client = r.writes
	}
	if r.Clock == nil {
		r.Clock = steady.New()
	}
}

// Reconcile takes one step with one QuoinMachine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	quoinMachine := &infrav1.QuoinMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, quoinMachine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, moving := quoinMachine.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		return ctrl.Result{}, nil
	}
	r.track()
	if r.writes.Behind(quoinMachine) {
		// The event of the write brings the QuoinMachine here again.
		return ctrl.Result{RequeueAfter: ownwrites.Timeout}, nil
	}
	observation, err := r.observe(ctx, quoinMachine)
	if err != nil {
		return ctrl.Result{}, err
	}
	if quoinMachine.DeletionTimestamp.IsZero() && observation.machine != nil {
		// Not before the Machine owns it: core still rewrites the object's managed fields until then.
		if added, err := finalizers.EnsureFinalizer(ctx, r.Client, quoinMachine, infrav1.MachineFinalizer); err != nil ||
			added {
			return ctrl.Result{}, err
		}
	}
	if err := r.noteDeletion(ctx, observation); err != nil {
		return ctrl.Result{}, err
	}
	isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, observation.cluster, quoinMachine)
	if err != nil || isPaused || requeue {
		if err == nil && isPaused && !requeue {
			err = r.showMoving(ctx, quoinMachine, observation)
		}
		return ctrl.Result{}, err
	}

	helper, err := objectpatch.New(quoinMachine, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		err := r.report(ctx, helper, quoinMachine, observation, &result, reterr != nil)
		reterr = kerrors.NewAggregate([]error{reterr, err})
	}()
	redo, err := r.redoDeletion(ctx, quoinMachine, observation)
	if err != nil {
		return ctrl.Result{}, err
	}
	result, err = r.step(ctx, quoinMachine, observation)
	if redo > 0 {
		result.RequeueAfter = min(redo, cmp.Or(result.RequeueAfter, redo))
	}
	return result, err
}

// report writes what became of the reconcile, or has that wait when it is nothing but other words.
func (r *Reconciler) report(
	ctx context.Context, helper *objectpatch.Helper, quoinMachine *infrav1.QuoinMachine, observation *observation,
	result *ctrl.Result, failed bool,
) error {
	summarize(quoinMachine, observation)
	spared := r.spare(ctx, quoinMachine, observation)
	if wait := helper.Early(r.words, quoinMachine); wait > 0 && !failed && spared == nil {
		result.RequeueAfter = min(wait, cmp.Or(result.RequeueAfter, wait))
		return nil
	}
	// The last patch takes the finalizer off, after which the object is gone.
	err := patchMachine(ctx, helper, quoinMachine)
	if !quoinMachine.DeletionTimestamp.IsZero() {
		err = apierr.IgnoreGone(err)
	}
	return kerrors.NewAggregate([]error{spared, err})
}

// step does what comes next for a QuoinMachine that is neither paused nor on its way elsewhere.
func (r *Reconciler) step(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, observation *observation,
) (ctrl.Result, error) {
	if annotated, err := r.annotateHooks(ctx, quoinMachine, observation); err != nil || annotated {
		// The Machine's event brings us back.
		return ctrl.Result{}, err
	}
	if !quoinMachine.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, quoinMachine, observation)
	}
	return r.reconcileNormal(ctx, quoinMachine, observation)
}

// reconcileDelete waits until nothing holds the host any more, and then until the claimed host was verified to be
// clean, or given up: by a person, or as dead by its policy; or until a person let it go as it is.
func (r *Reconciler) reconcileDelete(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, observation *observation,
) (ctrl.Result, error) {
	held, err := r.held(ctx, quoinMachine, observation)
	if err != nil {
		return ctrl.Result{}, err
	}
	if held {
		return r.freeVolumes(ctx, quoinMachine, observation), nil
	}
	if observation.host == nil {
		// The cache may not have seen our claim yet; forgetting it would leave the host claimed by nobody.
		host, err := r.claimedHost(ctx, quoinMachine, observation.machine)
		if err != nil {
			return ctrl.Result{}, err
		}
		observation.host = host
	}
	if observation.host == nil {
		if kept, err := r.keptForHost(ctx, quoinMachine, observation); err != nil || kept {
			return ctrl.Result{RequeueAfter: absentEvery}, err
		}
	}
	// The last chance; the Machine's deletion came this far without it, and does not wait for it either.
	result := r.freeVolumes(ctx, quoinMachine, observation)
	if observation.host != nil && placement.HostOf(observation.host).Detached {
		// The claim of a detached host does not end, whatever was true of the host before.
		return result, nil
	}
	givenUp := observation.host != nil && observation.host.GivenUp()
	unclean := observation.host != nil && observation.host.ReleasedUnclean()
	if observation.host != nil && !observation.host.Released() && !givenUp && !unclean {
		return result, nil
	}
	switch {
	case observation.host == nil || r.Recorder == nil:
	case givenUp:
		r.eventOfHost(quoinMachine, observation.host, "HostGivenUp", "was given up and not reset")
	case unclean:
		r.eventOfHost(quoinMachine, observation.host, infrav1.HostReleasedUncleanReason, "was not verified to be clean")
	default:
		r.Recorder.Eventf(quoinMachine, observation.host, "Normal", "HostReleased", "HostReleased",
			"host %s/%s was reset and verified", observation.host.Namespace, observation.host.Name)
	}
	controllerutil.RemoveFinalizer(quoinMachine, infrav1.MachineFinalizer)
	return ctrl.Result{}, nil
}

// eventOfHost tells that the QuoinMachine goes although its host is not clean, and why that is so.
func (r *Reconciler) eventOfHost(quoinMachine *infrav1.QuoinMachine, host *infrav1.QuoinHost, reason, what string) {
	r.Recorder.Eventf(quoinMachine, host, "Warning", reason, reason, "host %s/%s %s: %s", host.Namespace, host.Name, what,
		conditions.GetMessage(host, infrav1.HostCleanCondition))
}
