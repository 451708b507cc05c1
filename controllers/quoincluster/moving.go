// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
)

// pauseInterval is how soon a paused Cluster is looked at again while something of it is in motion. Hosts and
// QuoinMachines send events; the control plane, which may be served by another provider, sends none here. clusterctl
// looks after 5 seconds at first.
const pauseInterval = 3 * time.Second

// whilePaused holds the free hosts of the namespace once all its Clusters are paused, and takes block-move off the
// QuoinCluster when nothing of its Cluster is in motion any more.
func (r *Reconciler) whilePaused(
	ctx context.Context, quoinCluster *infrav1.QuoinCluster, cluster *clusterv1.Cluster,
) (ctrl.Result, error) {
	helper, err := objectpatch.New(quoinCluster, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	verdict, err := r.holdAndJudge(ctx, r.Client, quoinCluster, cluster)
	if err == nil && !verdict.Block && blocksMove(quoinCluster) {
		// What the caches show of different kinds may be of different times. What is let go now is copied the next moment.
		verdict, err = r.holdAndJudge(ctx, r.APIReader, quoinCluster, cluster)
	}
	if apierrors.IsConflict(err) {
		// Somebody claimed a host, or changed it otherwise, while it was to be held.
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if verdict.Block {
		blockMove(quoinCluster)
	} else {
		delete(quoinCluster.Annotations, clusterctlv1.BlockMoveAnnotation)
	}
	conditions.Set(quoinCluster, movable(quoinCluster, verdict))
	if err := patchCluster(ctx, helper, quoinCluster); err != nil {
		return ctrl.Result{}, err
	}
	if verdict.Block {
		return ctrl.Result{RequeueAfter: pauseInterval}, nil
	}
	return ctrl.Result{}, nil
}

// holdAndJudge holds the hosts that are to be held, and judges the Cluster by what the reader shows.
func (r *Reconciler) holdAndJudge(
	ctx context.Context, reader client.Reader, quoinCluster *infrav1.QuoinCluster, cluster *clusterv1.Cluster,
) (moving.Verdict, error) {
	s, err := r.survey(ctx, reader, quoinCluster, cluster)
	if err != nil {
		return moving.Verdict{}, err
	}
	if hosts, clusters := moving.ToHold(s.Site); len(hosts) > 0 {
		if err := r.changeHolds(ctx, s, hosts, func(h *infrav1.QuoinHost) {
			h.Spec.HeldFor = &infrav1.HostHold{Source: string(h.UID), Clusters: clusters}
		}); err != nil {
			return moving.Verdict{}, err
		}
	}
	return moving.Judge(s.Site), nil
}

// release ends the holds of the namespace that have ended.
func (r *Reconciler) release(ctx context.Context, s *survey) error {
	return r.changeHolds(ctx, s, moving.ToRelease(s.Site), func(h *infrav1.QuoinHost) { h.Spec.HeldFor = nil })
}

// changeHolds changes hosts of the namespace by updates that fail when anybody else changed them: a claim, or the mark
// that the copy in another management cluster has the host.
func (r *Reconciler) changeHolds(
	ctx context.Context, s *survey, names []string, change func(*infrav1.QuoinHost),
) error {
	var failures []error
	for _, h := range s.hosts {
		if h.Namespace != s.Namespace || !slices.Contains(names, h.Name) {
			continue
		}
		changed := h.DeepCopy()
		change(changed)
		err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(h.DeepCopy(), client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			failures = append(failures, fmt.Errorf("changing the hold of QuoinHost %s/%s: %w", h.Namespace, h.Name, err))
		}
	}
	if conflict := slices.IndexFunc(failures, apierrors.IsConflict); conflict >= 0 {
		return failures[conflict]
	}
	return errors.Join(failures...)
}

// movable is the condition that a verdict comes to.
func movable(c *infrav1.QuoinCluster, verdict moving.Verdict) metav1.Condition {
	status := metav1.ConditionFalse
	if verdict.Movable {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: infrav1.ClusterMovableCondition, Status: status, Reason: verdict.Reason, Message: verdict.Message,
		ObservedGeneration: c.Generation,
	}
}

// removeBlockMove takes block-move off a QuoinCluster that was ours before another system managed it: nobody else
// would.
func (r *Reconciler) removeBlockMove(ctx context.Context, c *infrav1.QuoinCluster) error {
	if !blocksMove(c) || !controllerutil.ContainsFinalizer(c, infrav1.ClusterFinalizer) {
		return nil
	}
	before := c.DeepCopy()
	delete(c.Annotations, clusterctlv1.BlockMoveAnnotation)
	return client.IgnoreNotFound(r.Client.Patch(ctx, c, client.MergeFrom(before)))
}

func blocksMove(c *infrav1.QuoinCluster) bool {
	_, blocks := c.Annotations[clusterctlv1.BlockMoveAnnotation]
	return blocks
}

func blockMove(c *infrav1.QuoinCluster) {
	if !blocksMove(c) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
	}
}
