// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/noderefutil"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedrainrules,verbs=get;list;watch

// evict makes one pass of a drain as Cluster API does it: it cordons the node and evicts its pods through the Eviction
// API, which honors disruption budgets, as MachineDrainRules say. It never waits for pods; the next reconcile makes the
// next pass.
//
// When it began and that it ended is written on the Machine, so that its time-out counts over restarts and moves.
func (r *Reconciler) evict(
	ctx context.Context, o *observe.Observation, fence *fence, machine *clusterv1.Machine,
) (controlplane.Effect, error) {
	var none controlplane.Effect
	began, err := r.evictionBegan(ctx, machine)
	if err != nil {
		return none, err
	}
	if !o.Workload.Connected {
		// Its time runs all the same, as that of a drain by Cluster API does.
		return controlplane.Effect{Detail: ": waiting for the workload cluster's API"}, nil
	}
	workload, err := r.workloadClient(ctx, o, fence)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, observe.WorkloadTimeout)
	defer cancel()
	name := machine.Status.NodeRef.Name
	node := &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return none, r.evictionEnded(ctx, machine)
		}
		return none, fmt.Errorf("reading Node %s: %w", name, err)
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Node", klog.KObj(node)))
	// Drain rules are few and read rarely: no cache is kept for them.
	drainer := &drain.Helper{Client: readsLive{r.Client, r.APIReader}, RemoteClient: workload,
		GracePeriodSeconds: -1}
	if noderefutil.IsNodeUnreachable(node) {
		// Nobody is there to end the pods: they count as gone a second after they were asked to end.
		drainer.GracePeriodSeconds, drainer.SkipWaitForDeleteTimeoutSeconds = 1, 1
	}
	if err := drainer.CordonNode(ctx, node); err != nil {
		return none, fmt.Errorf("cordoning Node %s: %w", name, err)
	}
	pods, err := drainer.GetPodsForEviction(ctx, o.Cluster, machine, name)
	if err != nil {
		return none, fmt.Errorf("listing the pods of Node %s: %w", name, err)
	}
	if len(pods.Pods()) == 0 {
		return none, r.evictionEnded(ctx, machine)
	}
	result := drainer.EvictPods(ctx, pods)
	if result.DrainCompleted() {
		return none, r.evictionEnded(ctx, machine)
	}
	return controlplane.Effect{Detail: ". " + result.ConditionMessage(metav1.NewTime(began))}, nil
}

// evictionBegan writes down when the first pass is made, and returns that ever after.
func (r *Reconciler) evictionBegan(ctx context.Context, machine *clusterv1.Machine) (time.Time, error) {
	if began, err := time.Parse(time.RFC3339, machine.Annotations[controlplanev1.EvictionStartedAnnotation]); err == nil {
		return began, nil
	}
	now := r.Clock.Now()
	return now, r.note(ctx, machine, controlplanev1.EvictionStartedAnnotation, now)
}

func (r *Reconciler) evictionEnded(ctx context.Context, machine *clusterv1.Machine) error {
	return r.note(ctx, machine, controlplanev1.EvictionEndedAnnotation, r.Clock.Now())
}

func (r *Reconciler) note(ctx context.Context, machine *clusterv1.Machine, annotation string, at time.Time) error {
	changed := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, annotation, at.UTC().Format(time.RFC3339))
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("noting %s on Machine %s: %w", annotation, machine.Name, err)
	}
	return nil
}

// readsLive lists from the API server and does everything else as the client does.
type readsLive struct {
	client.Client
	live client.Reader
}

// List implements client.Reader.
func (c readsLive) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.live.List(ctx, list, options...)
}

// deleteNode deletes a Node that Cluster API will not delete.
func (r *Reconciler) deleteNode(ctx context.Context, o *observe.Observation, fence *fence, name string) error {
	node := o.Workload.Nodes[name]
	if !o.Workload.Connected || node == nil {
		return nil
	}
	workload, err := r.workloadClient(ctx, o, fence)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, observe.WorkloadTimeout)
	defer cancel()
	// Exactly the Node that was looked at: a host may have come back under the same name.
	uid := node.UID
	if err := client.IgnoreNotFound(workload.Delete(ctx, node, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("deleting Node %s: %w", name, err)
	}
	return nil
}

// stopAPIServer asks the host of a Machine to end its API server, once: from then on its time runs.
func (r *Reconciler) stopAPIServer(ctx context.Context, o *observe.Observation, step controlplane.Step) error {
	seen := o.QuoinMachines[step.Machine]
	if seen == nil {
		return fmt.Errorf("the QuoinMachine of Machine %s is gone", step.Machine)
	}
	// As it is now: the cache may not show yet that it was asked for.
	infra := &infrav1.QuoinMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(seen), infra); err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, err := time.Parse(time.RFC3339, infra.Annotations[infrav1.StopAPIServerAnnotation]); err == nil {
		return nil
	}
	original := infra.DeepCopy()
	metav1.SetMetaDataAnnotation(&infra.ObjectMeta, infrav1.StopAPIServerAnnotation, r.Clock.Now().UTC().
		Format(time.RFC3339))
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, infra, client.MergeFrom(original))); err != nil {
		return fmt.Errorf("asking the host of Machine %s to end its API server: %w", step.Machine, err)
	}
	return nil
}
