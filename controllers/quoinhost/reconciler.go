// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quoinhost reconciles QuoinHosts. It alone changes a host.
//
// One reconcile observes the host's objects, finds the state that follows from them (table.go), lets the state's
// handler take at most one step, and patches the status once. A handler never waits for a host: each conversation runs
// beside the workers (package internal/async) and its end reconciles the host again.
package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostpower"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/ownwrites"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// Reconciler reconciles QuoinHosts.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads Secrets, and objects whose absence permits something that cannot be undone.
	APIReader client.Reader
	// Connector connects to hosts. Needed unless Provisioner is set.
	Connector *hostaccess.Connector
	// Provisioner with hosts; made from Connector when nil.
	Provisioner Provisioner
	// Calls runs the calls; made by SetupWithManager when nil.
	Calls *async.Calls
	// Power of the hosts' BMCs; Redfish when nil.
	Power Power
	// PowerCalls runs the orders to BMCs, apart from the calls with hosts; made by SetupWithManager when nil.
	PowerCalls *async.Calls
	// NeedsPower says why whoever has hooks on a Machine that is being deleted needs its silent host to keep its power;
	// empty when nobody does. It is asked right before each order, to boot or to stay off; nobody is when nil.
	NeedsPower func(ctx context.Context, machine *clusterv1.Machine, boots bool, now time.Time) (why string, err error)
	// Egress rules which BMCs and servers of bundles are connected to; the Connector keeps the rules for hosts.
	Egress *egress.Rules
	// BundleKeys are the operator's, one of which has to have signed each bundle; none asks for nothing.
	BundleKeys []string
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// Clock is the system's when nil, which sees when it is set forward.
	Clock clock.PassiveClock
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string
	// Timings of waits; DefaultTimings when zero.
	Timings Timings

	// jitter spreads the attempts on hosts that failed together; drawn from [0, 1).
	jitter    func() float64
	pace      pace
	imports   imports
	confirmed confirmedAbsenceCache
	writes    *ownwrites.Client
	// secrets are kept as long as hosts need them.
	secrets *secretprotection.Protection
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts/finalizers,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines;quoinclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || (r.Connector == nil && r.Provisioner == nil) {
		return errors.New("the reconciler needs a Client, an APIReader and a Connector")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("quoinhost-controller")
	}
	for _, calls := range []**async.Calls{&r.Calls, &r.PowerCalls} {
		if *calls != nil {
			continue
		}
		*calls = async.New(async.Options{})
		if err := mgr.Add(*calls); err != nil {
			return fmt.Errorf("registering the end of exchanges: %w", err)
		}
	}
	r.defaults()

	log := ctrl.LoggerFrom(ctx).WithValues("controller", "quoinhost")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("quoinhost").
		For(&infrav1.QuoinHost{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Watches(&infrav1.QuoinMachine{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfQuoinMachine)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfCluster)).
		Watches(&infrav1.QuoinHost{}, handler.EnqueueRequestsFromMapFunc(r.hostsAlike),
			builder.WithPredicates(identityChanged())).
		WatchesRawSource(source.Channel(r.Calls.Events(), &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(r.PowerCalls.Events(), &handler.EnqueueRequestForObject{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the QuoinHost controller: %w", err)
	}
	return nil
}

func (r *Reconciler) defaults() {
	if r.writes == nil {
		r.writes = ownwrites.Track(r.Client)
		r.Client = r.writes
	}
	if r.Clock == nil {
		r.Clock = steady.New()
	}
	if r.secrets == nil {
		r.secrets = &secretprotection.Protection{Client: r.Client, Reader: r.APIReader,
			Finalizer: infrav1.HostSecretFinalizer, Now: r.Clock.Now}
	}
	if r.jitter == nil {
		r.jitter = rand.Float64
	}
	if r.Timings == (Timings{}) {
		r.Timings = DefaultTimings()
	}
	if r.Provisioner == nil {
		r.Provisioner = &sshProvisioner{connector: r.Connector, secrets: r.secretsOf, egress: r.Egress,
			bundleKeys: r.BundleKeys, pushes: async.NewSlots(maxPushes)}
	}
	if r.Power == nil {
		r.Power = &hostpower.Power{Reader: r.APIReader, Hosts: r.Client, Egress: r.Egress, Output: r.Connector.Output()}
	}
	if r.PowerCalls == nil {
		r.PowerCalls = async.New(async.Options{})
	}
}

// Reconcile takes one step with one host.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.defaults()
	host := &infrav1.QuoinHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	if r.writes.Behind(host) {
		// The event of the write brings the host here again.
		return ctrl.Result{RequeueAfter: ownwrites.Timeout}, nil
	}
	if _, moving := host.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		// The copy in the other management cluster owns the host now.
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if !host.DeletionTimestamp.IsZero() && host.Spec.ConsumerRef == nil {
		return ctrl.Result{}, r.release(ctx, host)
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, host, infrav1.HostFinalizer); err != nil || added {
		return ctrl.Result{}, err
	}

	claim, err := r.observe(ctx, host)
	if err != nil {
		return ctrl.Result{}, err
	}
	isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, claim.cluster, host)
	if err != nil || requeue {
		return ctrl.Result{}, err
	}

	if !isPaused && forgotten(host, claim) {
		return ctrl.Result{}, r.release(ctx, host)
	}
	if !isPaused {
		r.keepSecrets(ctx, host)
	}
	return r.takeStep(ctx, host, claim, isPaused || host.Spec.HeldFor != nil)
}

// takeStep takes the step, and writes down what it came to.
func (r *Reconciler) takeStep(
	ctx context.Context, host *infrav1.QuoinHost, claim claim, paused bool,
) (_ ctrl.Result, reterr error) {
	before := host.DeepCopy()
	one := &reconciliation{controller: r, host: host, claim: claim, now: r.Clock.Now(), paused: paused}
	if operation := host.Status.Operation; operation != nil {
		one.noted = operation.ID
	}
	defer func() {
		one.summarize()
		if err := r.patchStatus(ctx, before, host); err != nil {
			reterr = kerrors.NewAggregate([]error{reterr, err})
		}
	}()
	if err := one.compareIdentity(ctx); err != nil {
		return ctrl.Result{}, err
	}
	one.disown()
	result, err := one.step(ctx)
	if wait := one.verifyBMC(); wait > 0 {
		result.requeueAfter = min(result.requeueAfter, wait)
	}
	if err == nil {
		err = one.giveOrder(ctx)
	}
	if kept := one.keepWords(ctx); err == nil {
		err = kept
	}
	if apierrors.IsConflict(err) {
		// The host changed since it was read: what was decided may not hold any more.
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{RequeueAfter: min(result.requeueAfter, r.Timings.Longest)}, err
}

// release lets a QuoinHost go: nobody has the host, or a person said that it serves somebody elsewhere.
func (r *Reconciler) release(ctx context.Context, host *infrav1.QuoinHost) error {
	r.forget(client.ObjectKeyFromObject(host))
	r.Provisioner.Forget(host)
	if !controllerutil.ContainsFinalizer(host, infrav1.HostFinalizer) {
		return nil
	}
	if err := r.releaseSecrets(ctx, host); err != nil {
		return err
	}
	// Optimistic: a QuoinMachine may be claiming the host at this moment.
	before := host.DeepCopy()
	controllerutil.RemoveFinalizer(host, infrav1.HostFinalizer)
	return client.IgnoreNotFound(r.Client.Patch(ctx, host, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{})))
}

func (r *Reconciler) forget(key types.NamespacedName) {
	if r.Calls != nil {
		r.Calls.Cancel(key)
	}
	if r.PowerCalls != nil {
		r.PowerCalls.Cancel(key)
	}
	r.pace.forget(key)
	r.confirmed.forget(key)
	r.secrets.Forget(key)
	states.forget(key)
}
