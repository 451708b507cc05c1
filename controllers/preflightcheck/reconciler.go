// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflightcheck has the checks of package preflight made, once for each PreflightCheck, and keeps what they
// found. They only read, so one that is cut off is made again.
package preflightcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/preflight"
)

// cacheLag is how long a cache is given to catch up.
const cacheLag = time.Second

// mostChecks of PreflightChecks that are made at a time: each lists what a Cluster has.
const mostChecks = 4

// Hosts is what is used of *hostaccess.Connector.
type Hosts interface {
	ConnectOnce(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error)
}

// Reconciler makes the checks. Its workers never wait for a Cluster: that is asked beside them.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads what is judged as it is now.
	APIReader client.Reader
	// ClusterCache reaches the Clusters.
	ClusterCache clustercache.ClusterCache
	// Hosts connects to what checks ask.
	Hosts Hosts
	// Checks to make; all there are when nil.
	Checks []preflight.Check
	// Egress rules which servers of bundles are connected to.
	Egress *egress.Rules
	// BundleKeys are the operator's, one of which has to have signed each bundle; none asks for nothing.
	BundleKeys []string
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// Clock is the system's when nil.
	Clock clock.PassiveClock
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string

	calls *async.Calls
}

// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=preflightchecks,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=preflightchecks/status,verbs=get;patch
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedrainrules,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusterclasses,verbs=get
// +kubebuilder:rbac:groups=clusterctl.cluster.x-k8s.io,resources=providers,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get;list
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigtemplates,verbs=get
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=quoin-releases,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.Hosts == nil {
		return errors.New("fields Client, APIReader, ClusterCache and Hosts must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("preflightcheck-controller")
	}
	r.prepare()
	if err := mgr.Add(r.calls); err != nil {
		return fmt.Errorf("register the end of checks: %w", err)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "preflightcheck")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("preflightcheck").
		For(&quoinv1.PreflightCheck{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		// Its coming, its pause and its first control plane are what a check waits for.
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster)).
		WatchesRawSource(source.Channel(r.calls.Events(), &handler.EnqueueRequestForObject{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of PreflightChecks: %w", err)
	}
	return nil
}

// prepare makes what Reconcile keeps.
func (r *Reconciler) prepare() {
	r.calls = async.New(async.Options{MaxConcurrent: mostChecks})
	if r.Checks == nil {
		r.Checks = preflight.Checks()
	}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
}

// ofCluster are the PreflightChecks that wait for the Cluster.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	checks := &quoinv1.PreflightCheckList{}
	if err := r.Client.List(ctx, checks, client.InNamespace(cluster.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list PreflightChecks")
		return nil
	}
	var requests []reconcile.Request
	for i := range checks.Items {
		if check := &checks.Items[i]; check.Spec.ClusterName == cluster.GetName() && check.Status.CompletionTime.IsZero() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(check)})
		}
	}
	return requests
}

// Reconcile has the checks made, or keeps what they found.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, failure error) {
	check := &quoinv1.PreflightCheck{}
	if err := r.Client.Get(ctx, req.NamespacedName, check); err != nil {
		r.calls.Cancel(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, moving := check.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	if moving || !check.DeletionTimestamp.IsZero() || !check.Status.CompletionTime.IsZero() {
		r.calls.Cancel(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, check.Namespace, check.Spec.ClusterName)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, check)
	if err != nil || isPaused || written {
		if isPaused {
			r.calls.Cancel(req.NamespacedName) // a Cluster that is moved waits for nobody who only reads
		}
		return ctrl.Result{}, err
	}
	before := check.DeepCopy()
	defer func() {
		switch err := r.write(ctx, before, check); {
		case apierrors.IsConflict(err):
			result = ctrl.Result{RequeueAfter: cacheLag} // it was read before somebody wrote it, which is nobody's failure
		case err != nil:
			failure = errors.Join(failure, err)
		case len(check.Status.Checks) > 0:
			r.record(check) // what could not be written is looked at again, and may be another verdict then
		}
	}()
	if restored(check) {
		return ctrl.Result{}, nil
	}
	if cluster == nil {
		waits(check, quoinv1.ClusterNotFoundReason, fmt.Sprintf("there is no Cluster %s in namespace %s: make it, or delete "+
			"this PreflightCheck and make one for a Cluster that there is", check.Spec.ClusterName, check.Namespace))
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.reconcile(check, cluster)
}

// write patches what changed, the status as a whole: whoever waits for its conditions finds the verdicts beside them.
// It patches nothing but what was read: a cache that is behind would have a verdict begun again.
func (r *Reconciler) write(ctx context.Context, before, check *quoinv1.PreflightCheck) error {
	status := check.Status.DeepCopy()
	if !equality.Semantic.DeepEqual(before.ObjectMeta, check.ObjectMeta) {
		if err := r.Client.Patch(ctx, check, objectpatch.OnlyOf(before)); err != nil {
			return fmt.Errorf("patch PreflightCheck %s: %w", client.ObjectKeyFromObject(check), err)
		}
		before.ResourceVersion = check.ResourceVersion
	}
	if equality.Semantic.DeepEqual(before.Status, *status) {
		return nil
	}
	check.Status = *status
	if err := r.Client.Status().Patch(ctx, check, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("patch the status of PreflightCheck %s: %w", client.ObjectKeyFromObject(check), err)
	}
	return nil
}

// reconcile begins the checks of a Cluster that is there, or takes what they found.
func (r *Reconciler) reconcile(check *quoinv1.PreflightCheck, cluster *clusterv1.Cluster) error {
	// What belongs to a Cluster goes where it goes, and ends with it.
	objectpatch.BelongTo(check, cluster)
	if !ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false) {
		waits(check, quoinv1.WaitingForControlPlaneInitializedReason,
			"nothing runs yet that could be looked at: the control plane is not initialized")
		return nil
	}
	subject := preflight.Subject{Cluster: cluster.DeepCopy(), Version: check.Spec.Version, Via: check.Spec.Via,
		Workers: check.Spec.Workers, Management: r.APIReader, Upgraded: ofUpgrade(check), Egress: r.Egress,
		BundleKeys: r.BundleKeys}
	subject.Connect = func(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
		return r.Hosts.ConnectOnce(ctx, host)
	}
	skip := check.DeepCopy().Spec.Skip
	const timeout = async.ConnectTimeout + preflight.Timeout + 10*time.Second
	results, done, err := async.Do(r.calls, client.ObjectKeyFromObject(check), "check", timeout,
		func(ctx context.Context) ([]quoinv1.CheckResult, error) {
			if err := r.reach(ctx, &subject); err != nil {
				return nil, err
			}
			return preflight.Run(ctx, r.Checks, subject, skip, r.Clock), nil
		})
	if err != nil {
		waits(check, quoinv1.RunningReason, fmt.Sprintf("the checks could not begin, and are made again: %v", err))
		return fmt.Errorf("begin the checks: %w", err)
	}
	if !done {
		waits(check, quoinv1.RunningReason, fmt.Sprintf("%d checks are looking", len(r.Checks)))
		return nil
	}
	r.keep(check, results)
	return nil
}

// ofUpgrade reports whether a ClusterUpgrade made the check, for what it is about to do itself.
func ofUpgrade(check *quoinv1.PreflightCheck) bool {
	owner := metav1.GetControllerOfNoCopy(check)
	return owner != nil && owner.Kind == "ClusterUpgrade" &&
		strings.HasPrefix(owner.APIVersion, quoinv1.GroupVersion.Group+"/")
}

// reach completes the subject by what only the Cluster's own API server can be asked for. One that cannot be reached is
// found by each check that needs it.
func (r *Reconciler) reach(ctx context.Context, subject *preflight.Subject) error {
	key := client.ObjectKeyFromObject(subject.Cluster)
	if of, ours := subject.ControlPlaneKey(); ours {
		found := &controlplanev1.QuoinControlPlane{}
		switch err := r.APIReader.Get(ctx, of, found); {
		case err == nil:
			subject.ControlPlane = found
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("read QuoinControlPlane %s: %w", of, err)
		}
	}
	subject.Workload = r.workload(ctx, key)
	api := sync.OnceValues(func() (rest.Interface, error) { return r.api(ctx, key) })
	get := func(ctx context.Context, path ...string) ([]byte, error) {
		to, err := api()
		if err != nil {
			return nil, err
		}
		return to.Get().AbsPath(path...).DoRaw(ctx)
	}
	subject.Metrics = func(ctx context.Context) ([]byte, error) { return get(ctx, "/metrics") }
	subject.Kubelet = func(ctx context.Context, node string) error {
		_, err := get(ctx, "/api/v1/nodes", node, "proxy/healthz")
		return err
	}
	subject.Now = r.Clock.Now() // a connection may have taken half a minute
	return nil
}

// workload reads the Cluster, and fails at each reading where that cannot be reached.
func (r *Reconciler) workload(ctx context.Context, cluster client.ObjectKey) client.Reader {
	reader, err := async.Connected(ctx, r.ClusterCache, cluster)
	if err != nil {
		return unreached{err}
	}
	return reader
}

// api asks the API server that answers what no object tells. Who asks bounds how much.
func (r *Reconciler) api(ctx context.Context, cluster client.ObjectKey) (rest.Interface, error) {
	config, err := r.ClusterCache.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return clients.RESTClient(), nil
}

// unreached is a Cluster that does not answer.
type unreached struct{ err error }

// Get implements client.Reader.
func (u unreached) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return u.err
}

// List implements client.Reader.
func (u unreached) List(context.Context, client.ObjectList, ...client.ListOption) error { return u.err }

// waits sets the conditions of a PreflightCheck that has no verdict yet.
func waits(check *quoinv1.PreflightCheck, reason, message string) {
	conditions.Set(check, metav1.Condition{Type: quoinv1.PreflightCheckCompletedCondition, Status: metav1.ConditionFalse,
		Reason: reason, Message: message})
	conditions.Set(check, metav1.Condition{Type: quoinv1.PreflightCheckPassedCondition, Status: metav1.ConditionUnknown,
		Reason: reason, Message: message})
}

// mark is the value of the annotation that outlives the status. It names the PreflightCheck: annotations go along when
// a manifest is copied, and nothing was looked at for what it became.
func mark(check *quoinv1.PreflightCheck, at time.Time, verdict quoinv1.Verdict) string {
	return strings.Join([]string{at.UTC().Format(time.RFC3339), string(verdict), check.Name, check.Spec.ClusterName,
		check.Spec.Version}, " ")
}

// restored reports whether the verdict of a PreflightCheck whose status is lost was reached before, and sets it. One
// that looks knows more than a verdict that could not be written.
func restored(check *quoinv1.PreflightCheck) bool {
	value := check.Annotations[quoinv1.PreflightCheckCompletedAnnotation]
	stamp, rest, _ := strings.Cut(value, " ")
	word, _, _ := strings.Cut(rest, " ")
	verdict := quoinv1.Verdict(word)
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil || value != mark(check, at, verdict) || conditions.Has(check, quoinv1.PreflightCheckCompletedCondition) {
		return false
	}
	passed := metav1.ConditionTrue
	switch verdict {
	case quoinv1.VerdictBlock:
		passed = metav1.ConditionFalse
	case quoinv1.VerdictPass, quoinv1.VerdictWarn, quoinv1.VerdictSkipped:
	default:
		return false
	}
	check.Status.Verdict, check.Status.CompletionTime = verdict, metav1.NewTime(at)
	message := fmt.Sprintf("the verdict was %s at %s, before the PreflightCheck was moved or restored; what was found "+
		"did not come along, so make another PreflightCheck to know it now", verdict, stamp)
	conditions.Set(check, metav1.Condition{Type: quoinv1.PreflightCheckPassedCondition, Status: passed,
		Reason: quoinv1.MovedReason, Message: message})
	conditions.Set(check, metav1.Condition{Type: quoinv1.PreflightCheckCompletedCondition, Status: metav1.ConditionTrue,
		Reason: quoinv1.MovedReason, Message: message})
	return true
}

// keep writes down what the checks found.
func (r *Reconciler) keep(check *quoinv1.PreflightCheck, results []quoinv1.CheckResult) {
	verdict, summary := preflight.Verdict(results), preflight.Summary(results)
	check.Status.Verdict, check.Status.Checks = verdict, results
	check.Status.CompletionTime = metav1.NewTime(r.Clock.Now())
	metav1.SetMetaDataAnnotation(&check.ObjectMeta, quoinv1.PreflightCheckCompletedAnnotation,
		mark(check, check.Status.CompletionTime.Time, verdict))
	passed := metav1.Condition{Type: quoinv1.PreflightCheckPassedCondition, Status: metav1.ConditionTrue,
		Reason: quoinv1.PassedReason, Message: summary}
	switch verdict {
	case quoinv1.VerdictBlock:
		passed.Status, passed.Reason = metav1.ConditionFalse, quoinv1.BlockedReason
	case quoinv1.VerdictWarn:
		passed.Reason = quoinv1.PassedWithWarningsReason
	case quoinv1.VerdictPass, quoinv1.VerdictSkipped:
	}
	conditions.Set(check, passed)
	conditions.Set(check, metav1.Condition{Type: quoinv1.PreflightCheckCompletedCondition, Status: metav1.ConditionTrue,
		Reason: quoinv1.CompletedReason, Message: fmt.Sprintf("%d checks have their verdict", len(results))})
}

// record records the verdict as an event.
func (r *Reconciler) record(check *quoinv1.PreflightCheck) {
	passed, kind := conditions.Get(check, quoinv1.PreflightCheckPassedCondition), corev1.EventTypeNormal
	if passed.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(check, nil, kind, passed.Reason, "Check", "%s", passed.Message)
}
