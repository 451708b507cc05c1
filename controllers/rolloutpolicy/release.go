// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

const (
	// untaintTimeout bounds for how long one reconcile takes taints off Nodes, however many there are.
	untaintTimeout = 10 * time.Second
	// untaintFor is how long a workload cluster that does not answer is asked, from when the Machine remembers it: one
	// that keeps its hooks is asked about as long as these are.
	untaintFor = time.Hour
)

// release takes off the Machines of the Cluster what a policy put on them: there is none any more, or the Cluster goes.
func (r *Reconciler) release(ctx context.Context, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	if annotations.IsPaused(cluster, cluster) {
		return ctrl.Result{}, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the Machines of Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	machines, failures := make([]*clusterv1.Machine, 0, len(list.Items)), []error(nil)
	for i := range list.Items {
		machine := &list.Items[i]
		machines = append(machines, machine)
		// The condition first: who has no gate any more is not looked at again. A gate without it is not True either.
		if rollout.Gated(machine) {
			if err := client.IgnoreNotFound(r.unshow(ctx, machine)); err != nil {
				failures = append(failures, err)
				continue
			}
		}
		failures = append(failures, r.unhook(ctx, cluster, machine, func(machine *clusterv1.Machine) {
			rollout.SetGate(machine, false)
		}))
	}
	kept, err := r.untaint(ctx, cluster, machines)
	result := ctrl.Result{}
	if kept {
		result.RequeueAfter = workloadRetry
	}
	return result, errors.Join(append(failures, err, r.discard(ctx, cluster, false))...)
}

// remembers reports whether the Machine carries what remembers the taint of its Node.
func remembers(machine *clusterv1.Machine) bool {
	return rollout.Hooked(machine) || !rollout.TaintSince(machine).IsZero()
}

// free takes the hooks off Machines that no policy guards any more, and then the taints off their Nodes: a workload
// cluster that does not answer keeps no Machine. It reports whether taints remain.
func (r *Reconciler) free(
	ctx context.Context, cluster *clusterv1.Cluster, machines []*clusterv1.Machine,
) (kept bool, err error) {
	var failures []error
	for _, machine := range machines {
		failures = append(failures, r.unhook(ctx, cluster, machine, func(*clusterv1.Machine) {}))
	}
	kept, err = r.untaint(ctx, cluster, machines)
	return kept, errors.Join(append(failures, err)...)
}

// recordRefusal returns the error, and says which write the API server refuses of an object that no pool of a policy
// says it of: in an event about it, in the same words each time so that events are counted, and in the next plan.
func (r *Reconciler) recordRefusal(of client.Object, action rollout.Action, err error) error {
	if !apierr.IsRefusal(err) {
		return err
	}
	says := rollout.Decision{Pool: of.GetLabels()[clusterv1.MachineDeploymentNameLabel], Machine: of.GetName(),
		Action: action}.Refusal(err.Error())
	r.Recorder.Eventf(of, nil, corev1.EventTypeWarning, string(rollout.Refused), string(action), "%s", says)
	cluster := client.ObjectKey{Namespace: of.GetNamespace(), Name: of.GetLabels()[clusterv1.ClusterNameLabel]}
	last, _ := r.refusals.Load(cluster)
	if refusals, _ := last.([]refusedLeave); !slices.Contains(refusals, refusedLeave{why: says}) {
		r.refusals.Store(cluster, append(refusals, refusedLeave{why: says}))
	}
	return err
}

// unhook takes the hooks off a Machine, and what else is to go, in one patch, which has it remember the taint of its
// Node.
func (r *Reconciler) unhook(
	ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, also func(*clusterv1.Machine),
) error {
	before := machine.DeepCopy()
	if rollout.Hooked(machine) {
		r.remnants.Delete(machine.UID)
		if cluster.DeletionTimestamp.IsZero() {
			r.dropHooks(machine)
		} else {
			rollout.DropHooks(machine)
		}
	}
	also(machine)
	if equality.Semantic.DeepEqual(before, machine) {
		return nil
	}
	off := sets.List(sets.KeySet(before.Annotations).Difference(sets.KeySet(machine.Annotations)))
	if rollout.Gated(before) && !rollout.Gated(machine) {
		off = append(off, "its readiness gate")
	}
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before))); err != nil {
		maps.Copy(machine.Annotations, before.Annotations) // it has them still
		return r.recordRefusal(machine, rollout.Unguard, fmt.Errorf("take %s off Machine %s: %w", strings.Join(off, ", "),
			client.ObjectKeyFromObject(machine), err))
	}
	return nil
}

// dropHooks takes the hooks off a Machine, which remembers the taint of its Node from then on, if it stays: they did.
func (r *Reconciler) dropHooks(machine *clusterv1.Machine) {
	rollout.DropHooks(machine)
	if machine.DeletionTimestamp.IsZero() && machine.Status.NodeRef.IsDefined() {
		rollout.RememberTaint(machine, r.Clock.Now())
	}
}

// untaint takes the taint of rollouts off the Nodes of Machines that remember it, and reports whether some remain. What
// does not answer in time is asked again, and given up in the end, as the Nodes of a Cluster that is gone for good.
// What refuses is an error besides.
func (r *Reconciler) untaint(
	ctx context.Context, cluster *clusterv1.Cluster, machines []*clusterv1.Machine,
) (kept bool, err error) {
	within, cancel := context.WithTimeout(ctx, untaintTimeout)
	defer cancel()
	var failures []error
	var unasked error
	for _, i := range rand.Perm(len(machines)) { // no Node is always the one for which there is no time
		machine := machines[i]
		since := rollout.TaintSince(machine)
		if since.IsZero() || !machine.DeletionTimestamp.IsZero() || !cluster.DeletionTimestamp.IsZero() {
			continue
		}
		err := within.Err()
		if err == nil {
			err = r.inWorkload(within, cluster, func(ctx context.Context, _, live client.Client) error {
				return setTaint(ctx, live, machine, false)
			})
		}
		switch {
		case err != nil && r.Clock.Since(since) < untaintFor:
			kept, unasked = true, err
			if apierr.IsRefusal(err) {
				failures = append(failures, r.recordRefusal(machine, rollout.Untaint, err))
			}
			continue
		case err != nil:
			r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, "TaintRemains", "Untaint", "Node %s was asked for %s "+
				"and is not any more: if it is there, do kubectl taint nodes %s %s-", machine.Status.NodeRef.Name, untaintFor,
				machine.Status.NodeRef.Name, quoinv1.RolloutTaintKey)
		}
		if !rollout.Hooked(machine) { // hooks that were not taken off remember the taint
			failures = append(failures, r.unhook(ctx, cluster, machine, rollout.ForgetTaint))
		}
	}
	if unasked != nil {
		ctrl.LoggerFrom(ctx).Info("Taints of rollouts remain on Nodes", "reason", unasked.Error())
	}
	return kept, errors.Join(failures...)
}
