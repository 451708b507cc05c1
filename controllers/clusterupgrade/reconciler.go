// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterupgrade carries out upgrades of whole Clusters: it reads what package upgrade decides by, makes the
// one change that comes of it, and tells.
package clusterupgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// cacheLag is how long a cache is given to catch up.
const cacheLag = time.Second

// Reconciler carries out ClusterUpgrades.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads what a change rests on as it is now, and who owns a field.
	APIReader client.Reader
	// Recorder of events; that of the manager when nil.
	Recorder events.EventRecorder
	// Clock is the system's when nil, which sees when it is set forward.
	Clock clock.PassiveClock
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string
}

// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=clusterupgrades,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=clusterupgrades/status,verbs=get;patch
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=preflightchecks,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=quoin.cluster.x-k8s.io,resources=rolloutpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusterclasses,verbs=get
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters,verbs=get;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters/status,verbs=patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil {
		return errors.New("fields Client and APIReader must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("clusterupgrade-controller")
	}
	if r.Clock == nil {
		r.Clock = steady.New()
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "clusterupgrade")
	ofCluster := handler.EnqueueRequestsFromMapFunc(r.ofCluster)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("clusterupgrade").
		For(&quoinv1.ClusterUpgrade{}).
		Owns(&quoinv1.PreflightCheck{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		// The end of one upgrade is what another one of the same Cluster waits for.
		Watches(&quoinv1.ClusterUpgrade{}, ofCluster).
		// A Cluster also tells of the control planes of other providers.
		Watches(&clusterv1.Cluster{}, ofCluster).
		Watches(&controlplanev1.QuoinControlPlane{}, ofCluster).
		Watches(&quoinv1.RolloutPolicy{}, ofCluster).
		Watches(&clusterv1.MachineDeployment{}, ofCluster).
		Watches(&clusterv1.Machine{}, ofCluster).
		Watches(&infrav1.QuoinHost{}, handler.EnqueueRequestsFromMapFunc(ofHost), builder.WithPredicates(stagedChanged())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of ClusterUpgrades: %w", err)
	}
	return nil
}

// ofCluster are the ClusterUpgrades with something left to write of the Cluster that the object belongs to, or is.
func (r *Reconciler) ofCluster(ctx context.Context, object client.Object) []reconcile.Request {
	cluster := object.GetLabels()[clusterv1.ClusterNameLabel]
	switch o := object.(type) {
	case *clusterv1.Cluster:
		cluster = o.Name
	case *quoinv1.RolloutPolicy:
		cluster = o.Spec.ClusterName
	}
	all := &quoinv1.ClusterUpgradeList{}
	if err := r.Client.List(ctx, all, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list ClusterUpgrades")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if of := &all.Items[i]; of.Spec.ClusterName == cluster && !upgrade.Settled(of) && !upgrade.Leaves(of) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(of)})
		}
	}
	return requests
}

// Reconcile makes at most one change, and tells how far the upgrade is. A deleted ClusterUpgrade undoes nothing.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of := &quoinv1.ClusterUpgrade{}
	if err := r.Client.Get(ctx, req.NamespacedName, of); err != nil {
		forgetMetrics(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if upgrade.Leaves(of) {
		forgetMetrics(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	result, err := r.reconcile(ctx, of)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: cacheLag}, nil // it was read before somebody wrote it, which is nobody's failure
	}
	return result, err
}

// reconcile decides by the cache, and once more by what is read anew before anything is changed: a cache that is behind
// would have things done twice.
func (r *Reconciler) reconcile(ctx context.Context, of *quoinv1.ClusterUpgrade) (ctrl.Result, error) {
	seen, err := r.look(ctx, r.Client, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	if seen.world.Pauses(of) == "" && seen.cluster != nil {
		if adopted, err := objectpatch.Adopt(ctx, r.Client, of, seen.cluster); adopted || err != nil {
			return ctrl.Result{}, err
		}
	}
	decision := upgrade.Next(seen.world, of, r.Clock.Now())
	if decision.Live {
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(of), of); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if upgrade.Leaves(of) {
			return ctrl.Result{}, nil
		}
		if seen, err = r.look(ctx, r.APIReader, of); err != nil {
			return ctrl.Result{}, err
		}
		decision = upgrade.Next(seen.world, of, r.Clock.Now())
	}
	before := of.DeepCopy()
	if decision.Change != nil {
		switch err := r.apply(ctx, of, seen, *decision.Change); {
		case apierr.IsRefusal(err):
			return ctrl.Result{}, r.fails(ctx, of, before, quoinv1.RefusedReason, err)
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
			return ctrl.Result{}, err
		case err != nil:
			return ctrl.Result{}, r.fails(ctx, of, before, "", err)
		}
	}
	if err := r.report(ctx, of, before.Status, decision.Status); err != nil {
		return ctrl.Result{}, err
	}
	if decision.Change == nil {
		r.stage(ctx, decision.Stage)
	}
	return ctrl.Result{RequeueAfter: decision.Again}, nil
}

// look observes, and tells what may not be read or is not there.
func (r *Reconciler) look(
	ctx context.Context, reader client.Reader, of *quoinv1.ClusterUpgrade,
) (*observation, error) {
	seen, err := r.observe(ctx, reader, of)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, r.fails(ctx, of, of.DeepCopy(), quoinv1.NotReadReason, err)
	}
	return seen, err
}

// fails reports what could not be read, which a person has to allow or make, and a change that an API server did not
// take, which a webhook may have good reasons for. A failure without a reason may pass and is told of nobody, but an
// upgrade that it makes late is.
func (r *Reconciler) fails(
	ctx context.Context, of, before *quoinv1.ClusterUpgrade, reason string, refusal error,
) error {
	before.DeepCopyInto(of)
	after := before.DeepCopy()
	if reason != "" {
		meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{Type: quoinv1.ClusterUpgradeProgressingCondition,
			Status: metav1.ConditionFalse, Reason: reason, Message: text.Shorten(refusal.Error(), mostMessage)})
	}
	policy, unread := r.policy(ctx, r.Client, of)
	late := upgrade.Late(after, policy, r.Clock.Now(), steady.StepsOf(r.Clock))
	return errors.Join(refusal, unread, r.report(ctx, of, before.Status, late))
}

// mostMessage is what a condition's message holds here.
const mostMessage = 4096

// report patches the status when it changed, and only what was read; then it tells the story of the change.
func (r *Reconciler) report(
	ctx context.Context, of *quoinv1.ClusterUpgrade, former, status quoinv1.ClusterUpgradeStatus,
) error {
	if equality.Semantic.DeepEqual(former, status) {
		measure(of)
		return nil
	}
	before := of.DeepCopy()
	of.Status = status
	if err := r.Client.Status().Patch(ctx, of, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("patch the status of ClusterUpgrade %s: %w", client.ObjectKeyFromObject(of), err)
	}
	for _, entry := range story(former, status) {
		r.Recorder.Eventf(of, nil, entry.kind, entry.reason, entry.action, "%s", entry.message)
	}
	for _, step := range finished(former, status) {
		stepSeconds.WithLabelValues(string(step.Type)).Observe(step.CompletionTime.Sub(step.StartTime.Time).Seconds())
	}
	measure(of)
	return nil
}

// firstOf is the name of the ClusterUpgrade that comes before this one; empty when none does.
func firstOf(all []quoinv1.ClusterUpgrade, of *quoinv1.ClusterUpgrade) string {
	first := of
	for i := range all {
		other := &all[i]
		if other.Spec.ClusterName == of.Spec.ClusterName && other.Name != of.Name && !upgrade.Ended(other) &&
			upgrade.Order(other, first) < 0 {
			first = other
		}
	}
	if first == of {
		return ""
	}
	return first.Name
}
