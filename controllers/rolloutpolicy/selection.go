// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

const (
	nodesWatch = "rolloutpolicy-nodes"
	// nodesPatience is how long Nodes may take to come, so that a Cluster that hangs does not hold up the others.
	nodesPatience = 5 * time.Second
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines,verbs=get

// markedNodes are the Nodes of a Cluster that a person marked as to be replaced. While the Cluster does not answer none
// is: nothing is deleted because of what nobody can read.
func (r *Reconciler) markedNodes(ctx context.Context, cluster *clusterv1.Cluster) map[string]bool {
	if r.ClusterCache == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodesPatience)
	defer cancel()
	nodes := &corev1.NodeList{}
	if err := r.listNodes(ctx, client.ObjectKeyFromObject(cluster), nodes); err != nil {
		if !errors.Is(err, clustercache.ErrClusterNotConnected) {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to read which Nodes are marked", "annotation", quoinv1.NeedsUpdateAnnotation)
		}
		return nil
	}
	marked := map[string]bool{}
	for i := range nodes.Items {
		if isMarked(&nodes.Items[i]) {
			marked[nodes.Items[i].Name] = true
		}
	}
	return marked
}

// listNodes from a cache that is filled by a watch, which brings the Cluster here when a mark comes or goes.
func (r *Reconciler) listNodes(ctx context.Context, cluster client.ObjectKey, nodes *corev1.NodeList) error {
	request := []reconcile.Request{{NamespacedName: cluster}}
	err := r.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name: nodesWatch, Watcher: r.controller, Kind: &corev1.Node{},
		Predicates: []predicate.TypedPredicate[client.Object]{markChanges()},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return request
		}),
	}))
	if err != nil {
		return err
	}
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return err
	}
	return reader.List(ctx, nodes, client.UnsafeDisableDeepCopy)
}

func isMarked(object client.Object) bool {
	_, marked := object.GetAnnotations()[quoinv1.NeedsUpdateAnnotation]
	return marked
}

// markChanges lets through objects that are marked, and changes of the mark.
func markChanges() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(e event.CreateEvent) bool { return isMarked(e.Object) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return isMarked(e.ObjectOld) != isMarked(e.ObjectNew) },
	}
}

// selectMarked adds to a pool which of its Machines are marked. What a template carries marks nobody: the Machine that
// took the place of a marked one would be marked as well, for ever.
func selectMarked(
	pool *rollout.Pool, machines map[string]*clusterv1.Machine, sets []clusterv1.MachineSet, nodes map[string]bool,
) {
	templated := map[string]bool{}
	for i := range sets {
		if _, is := sets[i].Spec.Template.Annotations[quoinv1.NeedsUpdateAnnotation]; is {
			templated[sets[i].Name] = true
		}
	}
	for i := range pool.Machines {
		machine := machines[pool.Machines[i].Name]
		switch node := machine.Status.NodeRef.Name; {
		case isMarked(machine) && !templated[metav1.GetControllerOf(machine).Name]:
			pool.Machines[i].NeedsUpdate = fmt.Sprintf("annotation %s on the Machine", quoinv1.NeedsUpdateAnnotation)
			if why := machine.Annotations[quoinv1.NeedsUpdateAnnotation]; why != "" {
				pool.Machines[i].NeedsUpdate += ": " + why
			}
		case nodes[node]:
			pool.Machines[i].NeedsUpdate = fmt.Sprintf("annotation %s on Node %s", quoinv1.NeedsUpdateAnnotation, node)
		}
	}
}

// carryMarks moves the mark of a QuoinHost to the Machine that is on it, and reports whether something was written. On
// the host it would mark each later Machine too. The Machine is marked first, so that no mark is lost in between.
func (r *Reconciler) carryMarks(
	ctx context.Context, policy *quoinv1.RolloutPolicy, seen *observation,
) (carried bool, err error) {
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list QuoinHosts: %w", err)
	}
	var on map[string]*clusterv1.Machine
	var failures []error
	for i := range hosts.Items {
		ref := hosts.Items[i].Spec.ConsumerRef
		if !isMarked(&hosts.Items[i]) || ref == nil || ref.Namespace != policy.Namespace {
			continue
		}
		if on == nil {
			on = seen.selected(policy)
		}
		machine := on[ref.Name]
		if machine == nil || !hosts.Items[i].Serves(machine) {
			continue
		}
		if err := r.carryMark(ctx, hosts.Items[i].DeepCopy(), machine); err != nil {
			failures = append(failures, err)
			continue
		}
		carried = true
	}
	return carried, errors.Join(failures...)
}

func (r *Reconciler) carryMark(ctx context.Context, host *infrav1.QuoinHost, machine *clusterv1.Machine) error {
	key := client.ObjectKeyFromObject(host)
	if !isMarked(machine) && machine.DeletionTimestamp.IsZero() {
		before := machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, quoinv1.NeedsUpdateAnnotation, "QuoinHost "+key.String())
		if err := r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before)); err != nil {
			return fmt.Errorf("mark Machine %s like QuoinHost %s: %w", client.ObjectKeyFromObject(machine), key, err)
		}
	}
	before := host.DeepCopy()
	delete(host.Annotations, quoinv1.NeedsUpdateAnnotation)
	if err := r.Client.Patch(ctx, host, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("take annotation %s off QuoinHost %s: %w", quoinv1.NeedsUpdateAnnotation, key, err)
	}
	return nil
}

// selected are the Machines that the policy selects, by QuoinMachine.
func (seen *observation) selected(policy *quoinv1.RolloutPolicy) map[string]*clusterv1.Machine {
	on := map[string]*clusterv1.Machine{}
	for _, pool := range seen.state.Pools {
		if place, err := rollout.Select(&policy.Spec, pool.Name, pool.Labels); err != nil || place < 0 {
			continue
		}
		for _, m := range pool.Machines {
			machine := seen.machines[m.Name]
			on[machine.Spec.InfrastructureRef.Name] = machine
		}
	}
	return on
}

// ofHost is the Cluster whose Machine is on a QuoinHost.
func (r *Reconciler) ofHost(ctx context.Context, object client.Object) []reconcile.Request {
	host, is := object.(*infrav1.QuoinHost)
	if !is || host.Spec.ConsumerRef == nil {
		return nil
	}
	machine := &infrav1.QuoinMachine{}
	key := client.ObjectKey{Namespace: host.Spec.ConsumerRef.Namespace, Name: host.Spec.ConsumerRef.Name}
	if err := r.Client.Get(ctx, key, machine); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to read the QuoinMachine of a marked host", "QuoinHost", host.Name)
		}
		return nil
	}
	return r.ofCluster(ctx, machine)
}
