// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quoincontrolplane runs control planes: it observes Machines, nodes, static pods and etcd, asks
// internal/controlplane/plan what comes next, carries out that one step, and reports what it saw in conditions.
package quoincontrolplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane/plan"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/ownwrites"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// HostDialer opens connections from hosts, such as to the etcd member on a host's loopback address.
type HostDialer interface {
	observe.HostDialer
	hostaccess.Holder
}

// EtcdClient reads and changes the membership of an etcd cluster. etcd.Client is the real one.
type EtcdClient interface {
	observe.EtcdReader
	MoveLeader(ctx context.Context, leader etcd.Endpoint, credentials etcd.Credentials, to uint64) error
	RemoveMember(ctx context.Context, endpoints []etcd.Endpoint, credentials etcd.Credentials, id uint64) error
}

// Reconciler reconciles QuoinControlPlanes.
//
// Reading etcd and the workload cluster happens in the reconcile itself, over all members at once and for at most twice
// etcd.ReadTimeout: it is a few round trips over connections that are already open. Nothing here waits for a host's
// work.
type Reconciler struct {
	// Client reads from the cache and writes; Secrets and ConfigMaps should not be cached.
	Client client.Client
	// APIReader reads Machines and hosts as they are: a Machine that the cache has not shown yet would be made twice.
	APIReader client.Reader
	// SecretCachingClient reads the cluster's certificates and kubeconfig from a cache; Client when nil.
	SecretCachingClient client.Client
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Hosts reach the etcd members.
	Hosts HostDialer
	// Etcd is etcd.Client when nil.
	Etcd EtcdClient
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string
	// Timings of waits; DefaultTimings when zero.
	Timings Timings
	// Clock is the system's when nil, which sees when it is set forward.
	Clock clock.PassiveClock

	controller controller.Controller
	writes     *ownwrites.Client
	words      *objectpatch.Pace
	history    history.History
}

// cacheInterval is how soon the cache may show what was written last.
const cacheInterval = 20 * time.Millisecond

// connectionGrace is how long a workload cluster may be silent before conditions stop showing what was seen last.
const connectionGrace = 2 * time.Minute

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes/status;quoincontrolplanes/finalizers,verbs=get;update;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;clusters/status,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;machines/status,verbs=get;list;watch;create;update;patch;delete
// A KubeadmConfig blocks the deletion of its Machine, which only those may say who may update the Machine's finalizers.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/finalizers,verbs=update
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines;quoinmachinetemplates,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.Hosts == nil {
		return errors.New("fields Client, APIReader, ClusterCache and Hosts must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("quoincontrolplane-controller")
	}
	r.defaults()
	if options.RateLimiter == nil {
		options.RateLimiter = retries()
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "quoincontrolplane")
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("quoincontrolplane").
		For(&controlplanev1.QuoinControlPlane{}, builder.WithPredicates(controlPlaneOfInterest())).
		Owns(&clusterv1.Machine{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(controlPlaneOfCluster),
			builder.WithPredicates(predicate.Or(skewPolicyChanged(), topologyVersionChanged(),
				predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(mgr.GetScheme(), log)))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfLabelled),
			builder.WithPredicates(workerChangedVersion())).
		Watches(&infrav1.QuoinMachine{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfLabelled),
			builder.WithPredicates(machineOfInterest())).
		Watches(&infrav1.QuoinHost{}, handler.EnqueueRequestsFromMapFunc(r.controlPlanesInNeed),
			builder.WithPredicates(hostBecameFree())).
		Watches(&infrav1.QuoinHost{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfHost),
			builder.WithPredicates(predicate.Or(hostBeganToJoin(), hostStoppedAPIServer(), hostServesAnother()))).
		Watches(&infrav1.QuoinHost{}, handler.EnqueueRequestsFromMapFunc(r.clusterOfHost),
			builder.WithPredicates(hostUnavailable())).
		Watches(&quoinv1.RolloutPolicy{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfPolicy),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("quoincontrolplane", controlPlaneOfCluster,
			clustercache.WatchForProbeFailure(connectionGrace))).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up the QuoinControlPlane controller: %w", err)
	}
	r.controller, r.words = built, &objectpatch.Pace{Interval: r.Timings.Words}
	return nil
}

func (r *Reconciler) defaults() {
	if r.writes == nil {
		r.writes = ownwrites.Track(r.Client)
		r.Client = r.writes
	}
	if r.Timings.Recheck == nil {
		r.Timings = DefaultTimings()
	}
	if r.Clock == nil {
		r.Clock = steady.New()
	}
}

// Reconcile takes one step with one QuoinControlPlane.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	r.defaults()
	controlPlane := &controlplanev1.QuoinControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, controlPlane); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.writes.Behind(controlPlane) {
		// Its own writes bring it here no more often than anybody else's would.
		return ctrl.Result{RequeueAfter: cacheInterval}, nil
	}
	if _, moving := controlPlane.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		r.history.Forget(controlPlane.UID)
		return ctrl.Result{}, nil
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, controlPlane.ObjectMeta)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster that owns QuoinControlPlane %s: %w", req, err)
	}
	if cluster == nil {
		ctrl.LoggerFrom(ctx).Info("Waiting for the Cluster to own the QuoinControlPlane")
		return ctrl.Result{}, nil
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KObj(cluster)))
	added, err := finalizers.EnsureFinalizer(ctx, r.Client, controlPlane, controlplanev1.ControlPlaneFinalizer)
	if err != nil || added {
		return ctrl.Result{}, err
	}
	// Before anything changes the object here, else the change is no difference that a patch would carry.
	helper, err := objectpatch.New(controlPlane, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, controlPlane)
	if err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}

	p := &reconciliation{cluster: cluster, controlPlane: controlPlane,
		subject: observe.Subject{Cluster: cluster, ControlPlane: controlPlane.DeepCopy()}}
	defer func() {
		if reterr == nil {
			controlPlane.Status.ObservedGeneration = controlPlane.Generation
		}
		r.summarize(ctx, p, reterr)
		if wait := helper.Early(r.words, controlPlane); wait > 0 && reterr == nil {
			result.RequeueAfter = min(wait, cmp.Or(result.RequeueAfter, wait))
			return
		}
		// The last patch takes the finalizer off, after which the object is gone.
		err := helper.Patch(ctx, controlPlane, ownedConditions...)
		if err != nil && (controlPlane.DeletionTimestamp.IsZero() || apierr.IgnoreGone(err) != nil) {
			reterr = kerrors.NewAggregate([]error{reterr, err})
		}
	}()
	return r.reconcile(ctx, p)
}

// reconciliation is what one reconcile has come to. The flow keeps it, and hands on the values in it.
type reconciliation struct {
	cluster *clusterv1.Cluster
	// controlPlane and machines are as they are by now: what is written to them is in them. The control plane is patched
	// once, at the end. machines is nil until they were read.
	controlPlane *controlplanev1.QuoinControlPlane
	machines     collections.Machines
	// subject is the control plane as it was read, with what its prerequisites came to.
	subject observe.Subject
	// cached: the observation is by the cache.
	cached bool
	// observation is nil until anything was observed.
	observation *observe.Observation
	// configErr is why a Machine got no KubeadmConfig.
	configErr error
	// failures of the housekeeping; only a step that may proceed is taken all the same.
	failures []error
	// assessment of the observation, with the step that comes next; empty before the plan.
	assessment controlplane.Assessment
	// outcome of the step; the step as it was decided until then.
	outcome controlplane.Outcome
	// dnsProblem is why CoreDNS did not follow the version when it was to.
	dnsProblem string
}

// observed notes what an observation shows.
func (p *reconciliation) observed(o *observe.Observation) {
	p.observation, p.subject.ControlPlane = o, o.ControlPlane
	p.controlPlane.Status.Initialization = o.ControlPlane.Status.Initialization
	p.machines = collections.New()
	for _, machine := range o.Machines {
		p.machines.Insert(machine.DeepCopy())
	}
}

// reconcile goes through prerequisites, observation with inventory, maintenance, plan, announcement, execution and
// report. A failure of the housekeeping does not hold up a departure: a Machine whose host waits for the end of its
// etcd member must not wait for a field of another Machine that cannot be written. Nor must the end of a member that is
// dead, or a recovery.
func (r *Reconciler) reconcile(ctx context.Context, p *reconciliation) (result ctrl.Result, reterr error) {
	if p.controlPlane.DeletionTimestamp.IsZero() {
		ready, err := r.ensurePrerequisites(ctx, p)
		if err != nil {
			p.failures = append(p.failures, err)
		} else if !ready {
			// The Cluster and the Secrets send events; a template that does not exist yet does not.
			return ctrl.Result{RequeueAfter: r.Timings.Recheck[controlplane.RecheckBusy]}, nil
		}
	}
	if err := r.observe(ctx, p); err != nil {
		return ctrl.Result{}, kerrors.NewAggregate(append(p.failures, err))
	}
	complete := r.maintain(ctx, p)
	p.plan()
	if !complete {
		return ctrl.Result{RequeueAfter: r.Timings.Recheck[controlplane.RecheckStep]}, nil
	}
	// After the step: it is awaited, and conditions would use up the one reconcile a second that Cluster API gives a
	// Machine.
	defer func() { reterr = kerrors.NewAggregate([]error{reterr, r.report(ctx, p)}) }()
	r.guardDNS(ctx, p)
	step := p.assessment.Step
	housekeeping := kerrors.NewAggregate(append(p.failures, r.announce(ctx, r.summaryOf(p), step)))
	log := ctrl.LoggerFrom(ctx).WithValues("step", step.Kind, "reason", step.Reason)
	if housekeeping != nil && !step.MayProceed {
		log.V(4).Info("Held back until the housekeeping succeeds: " + step.Message)
		return ctrl.Result{}, housekeeping
	}
	if step.Waiting() {
		log.V(4).Info(step.Message)
	} else {
		log.Info(step.Message, "machine", step.Machine)
	}
	if err := r.execute(ctx, p); err != nil {
		r.event(p.controlPlane, corev1.EventTypeWarning, string(step.Kind), fmt.Sprintf("%s: %v", step.Message, err))
		return ctrl.Result{}, kerrors.NewAggregate([]error{fmt.Errorf("%s: %w", step.Message, err), housekeeping})
	}
	if housekeeping != nil {
		return ctrl.Result{}, housekeeping
	}
	return ctrl.Result{RequeueAfter: r.recheckAfter(p)}, nil
}

// recheckAfter is how soon to reconcile again: no later than when a window opens.
func (r *Reconciler) recheckAfter(p *reconciliation) time.Duration {
	after := r.Timings.Recheck[p.outcome.RecheckAfter]
	if opens := p.observation.Window.Opens; !opens.IsZero() {
		after = min(after, max(opens.Sub(r.Clock.Now()), r.Timings.Recheck[controlplane.RecheckSoon]))
	}
	return after
}

// plan asks what comes next. Until that is carried out, reports show it as it was decided.
func (p *reconciliation) plan() {
	p.assessment = plan.Assess(p.observation.State)
	p.outcome = controlplane.Outcome{Step: p.assessment.Step}
}

// report shows on the Machines what was observed.
func (r *Reconciler) report(ctx context.Context, p *reconciliation) error {
	s := r.summaryOf(p)
	if s.outcome.Reason == controlplane.ReasonMemberWithoutMachine {
		r.event(s.controlPlane, corev1.EventTypeWarning, controlplanev1.MemberWithoutMachineReason,
			sentence(s.outcome.Message))
	}
	forgetRemovedMembers(p.controlPlane, s.State.Etcd)
	failures := []error{r.reportMachines(ctx, s)}
	// A reconcile that waits comes sooner or later.
	if p.outcome.Waiting() && p.controlPlane.DeletionTimestamp.IsZero() {
		failures = append(failures, r.noteCertificates(ctx, p.observation))
	}
	return kerrors.NewAggregate(failures)
}

func (r *Reconciler) event(controlPlane *controlplanev1.QuoinControlPlane, kind, reason, message string) {
	const longest = 1000
	message = text.Shorten(message, longest)
	if !r.history.Events.New(controlPlane.UID, kind+reason+message) {
		return
	}
	r.Recorder.Eventf(controlPlane, nil, kind, reason, reason, "%s", message)
}

func (r *Reconciler) etcd() EtcdClient {
	if r.Etcd != nil {
		return r.Etcd
	}
	return etcd.Client{}
}

func (r *Reconciler) secrets() client.Client {
	if r.SecretCachingClient != nil {
		return r.SecretCachingClient
	}
	return r.Client
}
