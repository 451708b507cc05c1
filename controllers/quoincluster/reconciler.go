// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quoincluster reconciles QuoinClusters: the control-plane endpoint and who else wants it, the failure domains
// of the hosts that the cluster may claim, and when clusterctl may move the Cluster.
package quoincluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/paced"
)

// Reconciler reconciles QuoinClusters.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads what a paused Cluster is copied from, before that is let go, and control planes.
	APIReader client.Reader
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string

	secrets secretsRead
	self    selfManaged
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters/status;quoinclusters/finalizers,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinclustertemplates;quoinmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil {
		return errors.New("the reconciler needs a Client and an APIReader")
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "quoincluster")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("quoincluster").
		For(&infrav1.QuoinCluster{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		// Clusters of a namespace move together.
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clustersBeside),
			builder.WithPredicates(clusterMatters())).
		Watches(&infrav1.QuoinHost{}, paced.After(hostsInterval, r.clustersThatCount), builder.WithPredicates(hostMatters())).
		Watches(&infrav1.QuoinHost{}, paced.After(heldInterval, r.clustersPaused), builder.WithPredicates(hostMatters())).
		Watches(&clusterv1.Machine{}, paced.After(hostsInterval, r.clusterThatCountsMachine),
			builder.WithPredicates(machineMatters())).
		Watches(&clusterv1.Machine{}, paced.After(heldInterval, r.clusterPausedOfMachine),
			builder.WithPredicates(machineMatters())).
		Watches(&infrav1.QuoinMachine{}, handler.EnqueueRequestsFromMapFunc(r.waitingClusterOf)).
		// What the templates accept says which hosts count.
		Watches(&infrav1.QuoinMachineTemplate{}, handler.EnqueueRequestsFromMapFunc(r.clustersBeside),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Another QuoinCluster that goes, or changes its endpoint, may end a conflict.
		Watches(&infrav1.QuoinCluster{}, handler.EnqueueRequestsFromMapFunc(r.rivalsOf)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the QuoinCluster controller: %w", err)
	}
	return nil
}

// Reconcile brings the status of one QuoinCluster up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	quoinCluster := &infrav1.QuoinCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, quoinCluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.secrets.forget(req.NamespacedName)
			r.self.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, moving := quoinCluster.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving {
		return ctrl.Result{}, nil
	}
	if annotations.IsExternallyManaged(quoinCluster) && (quoinCluster.DeletionTimestamp.IsZero() ||
		!controllerutil.ContainsFinalizer(quoinCluster, infrav1.ClusterFinalizer)) {
		// Another system's, and its status too. One that was ours is not to be waited for when it moves.
		return ctrl.Result{}, r.removeBlockMove(ctx, quoinCluster)
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, quoinCluster.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster of QuoinCluster %s: %w", req, err)
	}
	if quoinCluster.DeletionTimestamp.IsZero() {
		if cluster == nil {
			// The Cluster controller sets the owner reference, which is an event.
			return ctrl.Result{}, nil
		}
		if added, err := finalizers.EnsureFinalizer(ctx, r.Client, quoinCluster, infrav1.ClusterFinalizer); err != nil ||
			added {
			return ctrl.Result{}, err
		}
	}
	isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, quoinCluster)
	if err != nil || requeue {
		return ctrl.Result{}, err
	}
	if isPaused {
		if cluster == nil {
			return ctrl.Result{}, nil
		}
		return r.whilePaused(ctx, quoinCluster, cluster)
	}
	return r.whileActive(ctx, quoinCluster, cluster)
}

// whileActive brings the status of a QuoinCluster that is not paused up to date, and ends the holds of a move.
func (r *Reconciler) whileActive(
	ctx context.Context, quoinCluster *infrav1.QuoinCluster, cluster *clusterv1.Cluster,
) (_ ctrl.Result, reterr error) {
	observation, err := r.observe(ctx, quoinCluster, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if observation.moves != nil {
		if err := r.release(ctx, observation.moves); err != nil {
			return ctrl.Result{}, err
		}
	}
	helper, err := objectpatch.New(quoinCluster, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		summarize(quoinCluster, observation)
		err := patchCluster(ctx, helper, quoinCluster)
		if !quoinCluster.DeletionTimestamp.IsZero() {
			err = apierr.IgnoreGone(err)
		}
		reterr = kerrors.NewAggregate([]error{reterr, err})
	}()
	if !quoinCluster.DeletionTimestamp.IsZero() {
		// Hosts that are being reset still need to know the endpoint.
		if len(observation.machines) == 0 {
			controllerutil.RemoveFinalizer(quoinCluster, infrav1.ClusterFinalizer)
		}
		return ctrl.Result{}, nil
	}
	blockMove(quoinCluster)
	managers, err := r.managersVersion(ctx, quoinCluster, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	quoinCluster.Status.ManagersVersion = managers
	if endpoint := &quoinCluster.Spec.ControlPlaneEndpoint; endpoint.Host != "" && endpoint.Port == 0 {
		endpoint.Port = infrav1.DefaultAPIServerPort
	}
	if observation.moves != nil && len(observation.moves.Secrets) > 0 {
		// A Secret sends no event when it is mended.
		return ctrl.Result{RequeueAfter: secretInterval}, nil
	}
	return ctrl.Result{}, nil
}
