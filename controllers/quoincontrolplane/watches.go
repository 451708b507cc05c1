// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// controlPlaneOfCluster names the QuoinControlPlane of a Cluster.
func controlPlaneOfCluster(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != desired.ControlPlaneKind || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}

// controlPlaneOfLabelled names the QuoinControlPlane of the Cluster that an object of the same namespace is labeled
// with.
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

// controlPlaneOfPolicy names the QuoinControlPlane of the Cluster that a RolloutPolicy is for: its windows may be
// others.
func (r *Reconciler) controlPlaneOfPolicy(ctx context.Context, object client.Object) []ctrl.Request {
	policy, ok := object.(*quoinv1.RolloutPolicy)
	if !ok {
		return nil
	}
	return r.controlPlaneOfNamed(ctx, policy.Namespace, policy.Spec.ClusterName)
}

// machineOfInterest lets through what a control plane waits for on QuoinMachines, of which a Cluster may have
// thousands: images of add-ons, being provisioned, and what a control-plane Machine lacks.
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
				observe.Provisioned(before) != observe.Provisioned(after) ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
				observe.FinalProblem(before) != observe.FinalProblem(after) {
				return true
			}
			_, controlPlane := after.Labels[clusterv1.MachineControlPlaneLabel]
			return controlPlane && conditions.GetMessage(before, infrav1.MachineReadyCondition) !=
				conditions.GetMessage(after, infrav1.MachineReadyCondition)
		},
	}
}

// skewPolicyChanged lets through Clusters that get other policies of versions.
func skewPolicyChanged() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetAnnotations()[skew.PolicyAnnotation] != e.ObjectNew.GetAnnotations()[skew.PolicyAnnotation]
		},
	}
}

// workerChangedVersion lets through workers that are gone or report another kubelet: a version of the control plane, or
// of kube-proxy, may have waited for them.
func workerChangedVersion() predicate.Predicate {
	worker := func(object client.Object) *clusterv1.Machine {
		machine, ok := object.(*clusterv1.Machine)
		if !ok || util.IsControlPlaneMachine(machine) {
			return nil
		}
		return machine
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return worker(e.Object) != nil },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := worker(e.ObjectOld), worker(e.ObjectNew)
			return before != nil && after != nil && skew.Runs(before) != skew.Runs(after)
		},
	}
}

// controlPlanesInNeed names the control planes that wait for a free host.
func (r *Reconciler) controlPlanesInNeed(ctx context.Context, _ client.Object) []ctrl.Request {
	list := &controlplanev1.QuoinControlPlaneList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Control planes that wait for a host could not be listed")
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if operation := list.Items[i].Status.Operation; operation != nil &&
			strings.HasPrefix(operation.WaitingOn, controlplane.ReasonNoSpareHost) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
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
			return free(e.ObjectNew) && (!free(e.ObjectOld) || !equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(),
				e.ObjectNew.GetLabels()))
		},
	}
}

// controlPlaneOfHost names the QuoinControlPlane whose Machine has the host.
func (r *Reconciler) controlPlaneOfHost(ctx context.Context, object client.Object) []ctrl.Request {
	machine := r.machineOfHost(ctx, object)
	if machine == nil || !util.IsControlPlaneMachine(machine) {
		return nil
	}
	return r.controlPlaneOfLabelled(ctx, machine)
}

// machineOfHost is the Machine that has the host; nil when none has.
func (r *Reconciler) machineOfHost(ctx context.Context, object client.Object) *clusterv1.Machine {
	host, ok := object.(*infrav1.QuoinHost)
	if !ok || host.Spec.ConsumerRef == nil {
		return nil
	}
	machine := &clusterv1.Machine{}
	key := client.ObjectKey{Namespace: host.Spec.ConsumerRef.Namespace, Name: host.Spec.ConsumerRef.Machine}
	if err := r.Client.Get(ctx, key, machine); err != nil {
		return nil
	}
	return machine
}

// WorkloadObjects are what the caches of workload clusters hold besides Nodes: a Cluster may have very many other
// objects of these kinds.
func WorkloadObjects() map[client.Object]cache.ByObject {
	inSystem := func(config cache.Config) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{metav1.NamespaceSystem: config}}
	}
	named := func(name string) cache.ByObject {
		return inSystem(cache.Config{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)})
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:        inSystem(cache.Config{LabelSelector: labels.SelectorFromSet(observe.StaticPodLabels)}),
		&corev1.ConfigMap{}:  named(observe.KubeadmConfigName),
		&appsv1.DaemonSet{}:  named(observe.KubeProxy),
		&appsv1.Deployment{}: named(observe.CoreDNS),

		&policyv1.PodDisruptionBudget{}: inSystem(cache.Config{}),
	}
}

// watchWorkload makes changes of control-plane nodes and of their static pods come here. Watches that exist stay.
func (r *Reconciler) watchWorkload(ctx context.Context, subject *observe.Subject) error {
	if r.controller == nil {
		return nil
	}
	cluster := client.ObjectKeyFromObject(subject.Cluster)
	err := r.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         "quoincontrolplane-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(r.controlPlaneOfNode),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeOfInterest()},
	}))
	if err != nil {
		return fmt.Errorf("watching the nodes of the workload cluster: %w", err)
	}
	request := []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(subject.ControlPlane)}}
	err = r.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    "quoincontrolplane-pods",
		Watcher: r.controller,
		Kind:    &corev1.Pod{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
			return request
		}),
		Predicates: []predicate.TypedPredicate[client.Object]{podOfInterest()},
	}))
	if err != nil {
		return fmt.Errorf("watching the static pods of the workload cluster: %w", err)
	}
	return nil
}

// podOfInterest lets through static pods of control planes that become ready, or unready.
func podOfInterest() predicate.Predicate {
	ready := func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && pod.Namespace == metav1.NamespaceSystem && labels.SelectorFromSet(observe.StaticPodLabels).
			Matches(labels.Set(pod.Labels)) && observe.PodReady(pod)
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(e event.CreateEvent) bool { return ready(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return ready(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return ready(e.ObjectOld) != ready(e.ObjectNew) },
	}
}

// controlPlaneOfInterest lets through changes of QuoinControlPlanes by others. What this controller writes to the
// status is no news to it, and a reconcile for each of its own writes would double its work.
func controlPlaneOfInterest() predicate.Predicate {
	others := func(object client.Object) client.Object {
		controlPlane, ok := object.DeepCopyObject().(*controlplanev1.QuoinControlPlane)
		if !ok {
			return object
		}
		controlPlane.Status = controlplanev1.QuoinControlPlaneStatus{Backup: controlPlane.Status.Backup,
			Conditions: slices.DeleteFunc(controlPlane.Status.Conditions,
				func(condition metav1.Condition) bool {
					// A reconcile that finds out about a pause ends there, and the next one goes on.
					return condition.Type != clusterv1.PausedCondition && slices.Contains(ownedConditions, condition.Type)
				})}
		controlPlane.ResourceVersion, controlPlane.ManagedFields = "", nil
		return controlPlane
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(others(e.ObjectOld), others(e.ObjectNew))
	}}
}

func (r *Reconciler) controlPlaneOfNode(ctx context.Context, node client.Object) []ctrl.Request {
	annotations := node.GetAnnotations()
	return r.controlPlaneOfNamed(ctx, annotations[clusterv1.ClusterNamespaceAnnotation],
		annotations[clusterv1.ClusterNameAnnotation])
}

// topologyVersionChanged lets through Clusters whose topology has another version to hand down.
func topologyVersionChanged() predicate.Predicate {
	version := func(object client.Object) string {
		cluster, ok := object.(*clusterv1.Cluster)
		if !ok || !cluster.Spec.Topology.IsDefined() {
			return ""
		}
		return observe.TopologyVersion(cluster)
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return version(e.ObjectOld) != version(e.ObjectNew) },
	}
}

// nodeOfInterest lets through control-plane nodes whose readiness or version changed.
func nodeOfInterest() predicate.Predicate {
	ofControlPlane := func(object client.Object) bool {
		_, ok := object.GetLabels()[observe.ControlPlaneNodeLabel]
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
				(observe.NodeReady(before) != observe.NodeReady(after) ||
					before.Status.NodeInfo.KubeletVersion != after.Status.NodeInfo.KubeletVersion)
		},
	}
}

// clusterOfHost names the QuoinControlPlane of the Cluster whose Machine, a worker perhaps, has the host.
func (r *Reconciler) clusterOfHost(ctx context.Context, object client.Object) []ctrl.Request {
	if machine := r.machineOfHost(ctx, object); machine != nil {
		return r.controlPlaneOfLabelled(ctx, machine)
	}
	return nil
}

// hostChanged lets through updates by which something comes to be so with a host, or ceases to be.
func hostChanged(interesting func(before, after *infrav1.QuoinHost) bool) predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*infrav1.QuoinHost)
			after, alsoOK := e.ObjectNew.(*infrav1.QuoinHost)
			return ok && alsoOK && interesting(before, after)
		},
	}
}

// hostBeganToJoin lets through hosts on which kubeadm join begins: beside it the next Machine is made.
func hostBeganToJoin() predicate.Predicate {
	joins := func(host *infrav1.QuoinHost) bool {
		return host.Status.Operation != nil && host.Status.Operation.Step == infrav1.HostOperationStepJoin
	}
	return hostChanged(func(before, after *infrav1.QuoinHost) bool { return joins(after) && !joins(before) })
}

// hostStoppedAPIServer lets through hosts that say what became of their API server.
func hostStoppedAPIServer() predicate.Predicate {
	return hostChanged(func(before, after *infrav1.QuoinHost) bool {
		reason := conditions.GetReason(after, infrav1.HostAPIServerStoppedCondition)
		return reason != "" && reason != conditions.GetReason(before, infrav1.HostAPIServerStoppedCondition)
	})
}

// hostServesAnother lets through hosts that begin or cease to say that they serve a newer generation.
func hostServesAnother() predicate.Predicate {
	return hostChanged(func(before, after *infrav1.QuoinHost) bool {
		return (before.StaleClaim() != nil) != (after.StaleClaim() != nil)
	})
}

// hostUnavailable lets through hosts for whose images nobody waits any more.
func hostUnavailable() predicate.Predicate {
	unavailable := func(host *infrav1.QuoinHost) bool {
		return host.Spec.ConsumerRef != nil && observe.Unavailable(host) != ""
	}
	return hostChanged(func(before, after *infrav1.QuoinHost) bool { return unavailable(after) && !unavailable(before) })
}
