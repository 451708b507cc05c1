// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

const (
	// workloadTimeout bounds what one reconcile asks of a workload cluster.
	workloadTimeout = 5 * time.Second
	// mostHeld hosts are asked to confirm this management cluster.
	mostHeld = 3
	// outOfServiceRetry is when it is asked again after a failure.
	outOfServiceRetry = 15 * time.Second
)

// outOfService is the taint by which a person or a controller states that a node is shut down for good: pods that
// cannot tell that they ended are deleted, and their volumes detached at once, to be attached elsewhere (KEP-2268).
var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
	Effect: corev1.TaintEffectNoExecute}

// freesVolumes says whether the Node of the machine may be declared out of service. Only a host that is known not to
// run may: a volume that two nodes write to is lost. And only while the Machine is being deleted: what comes back is
// another node.
func freesVolumes(v *observation) bool {
	return v.machine != nil && !v.machine.DeletionTimestamp.IsZero() && v.machine.Status.NodeRef.IsDefined() &&
		v.cluster != nil && v.host != nil && v.host.Fenced()
}

// freeVolumes declares the Node out of service, while Cluster API drains it and waits for its volumes. The QuoinMachine
// is not being deleted then yet: its turn comes after the volumes. What goes wrong is tried again, and holds up nothing
// else.
func (r *Reconciler) freeVolumes(ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation) ctrl.Result {
	if r.ClusterCache == nil || !freesVolumes(v) {
		return ctrl.Result{}
	}
	name := v.machine.Status.NodeRef.Name
	tainted, err := r.taint(ctx, client.ObjectKeyFromObject(v.cluster), name, v)
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		// Connected in the background; nobody is dialed from here.
		return ctrl.Result{RequeueAfter: outOfServiceRetry}
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Declaring a Node out of service", "node", name)
		return ctrl.Result{RequeueAfter: outOfServiceRetry}
	case tainted && r.Recorder != nil:
		r.Recorder.Eventf(quoinMachine, v.host, "Warning", "OutOfService", "OutOfService",
			"Node %s was declared out of service, so that its volumes are freed: host %s/%s does not run", name,
			v.host.Namespace, v.host.Name)
	}
	return ctrl.Result{}
}

// taint declares the Node out of service, if it is that of the host's claim; a node of another claim may have the same
// name.
func (r *Reconciler) taint(
	ctx context.Context, cluster client.ObjectKey, name string, v *observation,
) (tainted bool, err error) {
	host := v.host
	// Uncached: a cache of the nodes of every cluster would be kept for this alone.
	workload, err := r.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return false, fmt.Errorf("connecting to workload cluster %s: %w", cluster, err)
	}
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout+hostaccess.HoldTimeout)
	defer cancel()
	node := &corev1.Node{}
	if err := get(ctx, workload, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading Node %s of cluster %s: %w", name, cluster, err)
	}
	if node.Spec.ProviderID != host.ProviderID() {
		return false, nil
	}
	for _, taint := range node.Spec.Taints {
		if taint.MatchTaint(&outOfService) {
			return false, nil
		}
	}
	held, err := r.hold(ctx, v)
	if err != nil {
		return false, err
	}
	if held != nil {
		defer held.Release(ctx)
	}
	if still, err := r.stillFenced(ctx, host); err != nil || !still {
		return false, err
	}
	// The list of taints is replaced as a whole, so nobody else may have changed it meanwhile.
	before := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	added := outOfService
	added.TimeAdded = &metav1.Time{Time: r.Clock.Now()}
	node.Spec.Taints = append(node.Spec.Taints, added)
	ctx, cancel = context.WithTimeout(ctx, workloadTimeout) // well within the lease of the host that is held
	defer cancel()
	if err := workload.Patch(ctx, node, before); err != nil {
		return false, fmt.Errorf("tainting Node %s of cluster %s: %w", name, cluster, err)
	}
	return true, nil
}

func get(ctx context.Context, workload client.Client, key client.ObjectKey, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout)
	defer cancel()
	return workload.Get(ctx, key, node)
}

// hold has another host of the Cluster confirm that it serves this management cluster, one of the control plane first,
// and keep to it until it is released: a Node is changed only by the management cluster that the hosts obey. Where
// there is no other host, none is held: what fenced this one was the word of a person.
func (r *Reconciler) hold(ctx context.Context, v *observation) (*hostaccess.Held, error) {
	hosts, err := r.neighbors(ctx, v)
	if err != nil || len(hosts) == 0 {
		return nil, err
	}
	held, err := hostaccess.HoldAny(ctx, r.Hosts, hosts...)
	if err != nil {
		return nil, fmt.Errorf("no host of Cluster %s confirms that it serves this management cluster: %w", v.cluster.Name,
			err)
	}
	return held, nil
}

// neighbors are other hosts of the Cluster, those first that have most to say.
func (r *Reconciler) neighbors(ctx context.Context, v *observation) ([]*infrav1.QuoinHost, error) {
	found, err := hostaccess.Neighbors(ctx, r.Client, client.ObjectKeyFromObject(v.cluster), v.host)
	if err != nil {
		return nil, err
	}
	rank := func(n hostaccess.Neighbor) (rank int) {
		if n.Host.Status.UnreachableSince != nil {
			rank += 2
		}
		if !util.IsControlPlaneMachine(n.Machine) {
			rank++
		}
		return rank
	}
	slices.SortStableFunc(found, func(a, b hostaccess.Neighbor) int { return rank(a) - rank(b) })
	var hosts []*infrav1.QuoinHost
	for _, neighbor := range found[:min(len(found), mostHeld)] {
		hosts = append(hosts, neighbor.Host.DeepCopy())
	}
	return hosts, nil
}

// stillFenced asks the API server itself: a cache that lags may not have seen that the host answers again, and what two
// nodes write to is lost for good.
func (r *Reconciler) stillFenced(ctx context.Context, host *infrav1.QuoinHost) (bool, error) {
	now := &infrav1.QuoinHost{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(host), now); err != nil {
		return false, fmt.Errorf("reading QuoinHost %s/%s, before its Node is declared out of service: %w", host.Namespace,
			host.Name, err)
	}
	return now.UID == host.UID && now.Spec.ConsumerRef != nil && now.ProviderID() == host.ProviderID() && now.Fenced(), nil
}
