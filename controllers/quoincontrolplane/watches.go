// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// controlPlaneKind is the kind that this controller serves.
const controlPlaneKind = "QuoinControlPlane"

// controlPlaneOfCluster names the QuoinControlPlane of a Cluster.
func controlPlaneOfCluster(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != controlPlaneKind || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}

// controlPlaneOfLabelled names the QuoinControlPlane of the Cluster that an object of the same namespace is labeled with.
func (r *Reconciler) controlPlaneOfLabelled(ctx context.Context, object client.Object) []ctrl.Request {
	return r.controlPlaneOfNamed(ctx, object.GetNamespace(), object.GetLabels()[clusterv1.ClusterNameLabel])
}

func (r *Reconciler) controlPlaneOfNamed(ctx context.Context, namespace, name string) []ctrl.Request {
	if name == "" {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
		return nil
	}
	return controlPlaneOfCluster(ctx, cluster)
}

// machineOfInterest lets through what a control plane waits for on QuoinMachines, of which a Cluster may have thousands:
// images of add-ons, being provisioned, and what a control-plane Machine lacks.
func machineOfInterest() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*infrav1.QuoinMachine)
			after, alsoOK := e.ObjectNew.(*infrav1.QuoinMachine)
			if !ok || !alsoOK {
				return false
			}
			if !slices.Equal(before.Status.AddonVersions, after.Status.AddonVersions) ||
				provisioned(before) != provisioned(after) ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
				finalProblem(before) != finalProblem(after) {
				return true
			}
			_, controlPlane := after.Labels[clusterv1.MachineControlPlaneLabel]
			return controlPlane && conditions.GetMessage(before, infrav1.MachineReadyCondition) !=
				conditions.GetMessage(after, infrav1.MachineReadyCondition)
		},
	}
}

// controlPlanesInNeed names the control planes that wait for a free host.
func (r *Reconciler) controlPlanesInNeed(ctx context.Context, _ client.Object) []ctrl.Request {
	planes := &controlplanev1.QuoinControlPlaneList{}
	if err := r.Client.List(ctx, planes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Control planes that wait for a host could not be listed")
		return nil
	}
	var requests []ctrl.Request
	for i := range planes.Items {
		if doing := planes.Items[i].Status.Operation; doing != nil && strings.HasPrefix(doing.WaitingOn, controlplane.ReasonNoSpareHost) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&planes.Items[i])})
		}
	}
	return requests
}

// hostBecameFree lets through hosts that can be claimed and could not before.
func hostBecameFree() predicate.Predicate {
	free := func(object client.Object) bool {
		host, ok := object.(*infrav1.QuoinHost)
		return ok && placement.Free(placement.HostOf(host))
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		CreateFunc:  func(e event.CreateEvent) bool { return free(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return free(e.ObjectNew) && (!free(e.ObjectOld) || !equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()))
		},
	}
}

// watchNodes makes changes of control-plane nodes come here. It does nothing when the watch exists already.
func (r *Reconciler) watchNodes(ctx context.Context, s *scope) error {
	if r.controller == nil {
		return nil
	}
	err := r.ClusterCache.Watch(ctx, client.ObjectKeyFromObject(s.cluster), clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         "quoincontrolplane-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfNode),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeOfInterest()},
	}))
	if err != nil {
		return fmt.Errorf("watching the nodes of the workload cluster: %w", err)
	}
	return nil
}

func (r *Reconciler) controlPlaneOfNode(ctx context.Context, node client.Object) []ctrl.Request {
	annotations := node.GetAnnotations()
	return r.controlPlaneOfNamed(ctx, annotations[clusterv1.ClusterNamespaceAnnotation], annotations[clusterv1.ClusterNameAnnotation])
}

// nodeOfInterest lets through control-plane nodes whose readiness or version changed.
func nodeOfInterest() predicate.Predicate {
	ofControlPlane := func(object client.Object) bool {
		_, ok := object.GetLabels()[controlPlaneNodeLabel]
		return ok
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(e event.CreateEvent) bool { return ofControlPlane(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return ofControlPlane(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Node)
			after, alsoOK := e.ObjectNew.(*corev1.Node)
			return ok && alsoOK && ofControlPlane(after) &&
				(nodeReady(before) != nodeReady(after) ||
					before.Status.NodeInfo.KubeletVersion != after.Status.NodeInfo.KubeletVersion)
		},
	}
}
