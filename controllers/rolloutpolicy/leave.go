// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// refusedLeave is a decision about a Machine that leaves, of which the write was refused last. Without a Machine
// it is about one that is free, and why is all that there is to say.
type refusedLeave struct {
	machine types.UID
	action  rollout.Action
	why     string
}

// leave does what was decided about Machines that leave, or will. What goes wrong with one holds up no other. What is
// refused the next plan says: the status of this one is written already.
func (r *Reconciler) leave(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
	decisions []rollout.Decision,
) (more bool, err error) {
	var failures []error
	var refusals []refusedLeave
	marked := 0
	key := client.ObjectKeyFromObject(cluster)
	before, _ := r.held.Load(key)
	recorded, _ := before.(map[types.UID]rollout.Reason)
	held := map[types.UID]rollout.Reason{}
	for _, d := range decisions {
		machine := seen.machines[d.Machine]
		marks := d.Action == rollout.Taint || d.Action == rollout.Untaint
		if marks && marked == mostMarked {
			more = true
			continue
		}
		err := r.leaveOne(ctx, cluster, seen, machine, d)
		refused := apierr.IsRefusal(err)
		if marks && !refused { // that says no to some leaves the others their places
			marked++
		}
		if refused {
			refusals = append(refusals, refusedLeave{machine.UID, d.Action, refusal(machine, err)})
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		r.recordLeave(policy, machine, d)
		if d.Action == rollout.Replace || d.Action == rollout.HoldDrain {
			held[machine.UID] = r.recordHeld(machine, d, recorded[machine.UID])
		}
	}
	r.held.Store(key, held)
	last, _ := r.refusals.Swap(key, refusals)
	former, _ := last.([]refusedLeave)
	// What is permitted now need not be seen elsewhere: a Node has no watch here.
	return more || len(former) > len(refusals), errors.Join(failures...)
}

// recall has a plan say which of its decisions about Machines that leave were refused last, and what of free ones. A
// process that begins anew, which knew of none before this pass, says what the status does, and again what it finds out
// itself: since when would be lost.
func (r *Reconciler) recall(
	policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation, plan *rollout.Result, known bool,
) {
	last, _ := r.refusals.Load(client.ObjectKeyFromObject(cluster))
	for i := range plan.Progress {
		p, former := &plan.Progress[i], formerOf(policy, plan.Progress[i].Pool)
		if !known && former.Reason == quoinv1.WriteRefusedReason && p.Reason != rollout.Refused {
			p.Reason, p.Message, plan.Again = rollout.Refused, former.Message, cacheLag
		}
	}
	stalled := conditions.Get(policy, quoinv1.RolloutPolicyStalledCondition)
	if !known && stalled != nil && stalled.Reason == quoinv1.WriteRefusedReason {
		plan.Again = cacheLag
		plan.Stall(stalled.Message)
	}
	refusals, _ := last.([]refusedLeave)
	for _, d := range plan.Leaves {
		for _, refused := range refusals {
			if refused.machine == seen.machines[d.Machine].UID && refused.action == d.Action {
				plan.Refuse(d, refused.why)
			}
		}
	}
	for _, refused := range refusals {
		if refused.machine == "" {
			plan.Stall(refused.why)
		}
	}
}

func (r *Reconciler) leaveOne(
	ctx context.Context, cluster *clusterv1.Cluster, seen *observation, machine *clusterv1.Machine, d rollout.Decision,
) error {
	switch d.Action {
	case rollout.Replace:
		return r.replace(ctx, cluster, seen, machine)
	case rollout.Guard:
		return r.change(ctx, machine, rollout.SetHooks)
	case rollout.Unguard:
		return r.change(ctx, machine, r.dropHooks)
	case rollout.Taint, rollout.Untaint:
		return r.inWorkload(ctx, cluster, func(ctx context.Context, _, live client.Client) error {
			return setTaint(ctx, live, machine, d.Action == rollout.Taint)
		})
	case rollout.Drain:
		if d.Reason != rollout.NoNode {
			if err := r.inWorkload(ctx, cluster, func(ctx context.Context, _, live client.Client) error {
				return cordon(ctx, live, machine)
			}); err != nil {
				// Cluster API cordons as well, and leaves the Node to load balancers.
				if !rollout.LeaveOf(machine).Waited(seen.state.Resumed, r.Clock.Now()) {
					return err
				}
				r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, "NotCordoned", string(d.Action), "Node %s is drained and "+
					"may still be sent what is for load balancers: %v", machine.Status.NodeRef.Name, err)
			}
		}
		return r.change(ctx, machine, func(machine *clusterv1.Machine) {
			delete(machine.Annotations, quoinv1.RolloutPreDrainHookAnnotation)
		})
	case rollout.Evict, rollout.DeletePods:
		return r.inWorkload(ctx, cluster, func(ctx context.Context, _, live client.Client) error {
			return r.end(ctx, live, cluster, machine, d.Action == rollout.DeletePods)
		})
	case rollout.Skip:
		return r.change(ctx, machine, rollout.SkipDrain)
	case rollout.Terminate:
		r.remnants.Delete(machine.UID)
		return r.change(ctx, machine, func(machine *clusterv1.Machine) {
			delete(machine.Annotations, quoinv1.RolloutPreTerminateHookAnnotation)
		})
	}
	return nil
}

// recordLeave records an event about what a person may want to know later.
func (r *Reconciler) recordLeave(policy *quoinv1.RolloutPolicy, machine *clusterv1.Machine, d rollout.Decision) {
	kind := corev1.EventTypeNormal
	switch d.Action {
	case rollout.Drain, rollout.Terminate, rollout.Unguard, rollout.Replace:
	case rollout.Skip, rollout.DeletePods:
		kind = corev1.EventTypeWarning
	default:
		return
	}
	r.Recorder.Eventf(policy, machine, kind, string(d.Reason), string(d.Action), "%s: %s", d.Machine, d.Message)
}

// recordHeld records an event about a Machine that a person may have deleted, and that is not drained yet: once for
// each reason, and not for what is over within seconds. It returns the reason that was recorded last.
func (r *Reconciler) recordHeld(machine *clusterv1.Machine, d rollout.Decision, last rollout.Reason) rollout.Reason {
	if d.Reason == rollout.Interval || d.Reason == rollout.Tainting {
		return last
	}
	if last != d.Reason || d.Action == rollout.Replace {
		r.Recorder.Eventf(machine, nil, corev1.EventTypeNormal, string(d.Reason), string(d.Action), "%s", d.Message)
	}
	return d.Reason
}

// change the annotations of a Machine, only as it was read.
func (r *Reconciler) change(
	ctx context.Context, machine *clusterv1.Machine, change func(*clusterv1.Machine),
) error {
	before := machine.DeepCopy()
	change(machine)
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before))); err != nil {
		return fmt.Errorf("change the deletion hooks of Machine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

// inWorkload changes something in a workload cluster, within bounds.
func (r *Reconciler) inWorkload(
	ctx context.Context, cluster *clusterv1.Cluster, do func(ctx context.Context, cached, live client.Client) error,
) error {
	cached, live, err := r.workload(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout)
	defer cancel()
	return do(ctx, cached, live)
}

// end asks the pods that remain on the Node of a Machine to end: through the Eviction API, which honors disruption
// budgets, or whatever they say.
func (r *Reconciler) end(
	ctx context.Context, live client.Client, cluster *clusterv1.Cluster, machine *clusterv1.Machine, whatever bool,
) error {
	helper := r.drainer(live)
	found, err := helper.GetPodsForEviction(ctx, cluster, machine, machine.Status.NodeRef.Name)
	if err != nil {
		return fmt.Errorf("list the pods of Node %s: %w", machine.Status.NodeRef.Name, err)
	}
	if !whatever {
		if err := cordon(ctx, live, machine); err != nil {
			return err
		}
		result := helper.EvictPods(ctx, found)
		began := rollout.LeaveOf(machine).Passed
		r.remnants.Store(machine.UID, remnant{client.ObjectKeyFromObject(cluster), r.Clock.Now(),
			result.ConditionMessage(metav1.NewTime(began))})
		return nil
	}
	for _, pod := range found.Pods() {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		uid := pod.UID // a StatefulSet makes another one of that name
		err := live.Delete(ctx, pod, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete Pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	return nil
}

// guard finds out which Machines are guarded, and which carry hooks that nobody asks for any more.
func (seen *observation) guard(policy *quoinv1.RolloutPolicySpec, machines []clusterv1.Machine) {
	for _, pool := range seen.state.Pools {
		guards, err := rollout.Guards(policy, pool.Name, pool.Labels)
		if err != nil {
			return // the plan says so, and nothing is let go of by mistake
		}
		for _, m := range pool.Machines {
			seen.guarded[m.Name] = guards
			seen.hooked = seen.hooked || guards
		}
	}
	for i := range machines {
		machine := &machines[i]
		_, known := seen.machines[machine.Name]
		if remembers(machine) && !seen.guarded[machine.Name] &&
			(known || !seen.behind || !machine.DeletionTimestamp.IsZero()) {
			seen.free = append(seen.free, machine)
		}
	}
}

// fill in what was read of Nodes.
func (seen *observation) fill(nodes map[string]rollout.Node) {
	for i := range seen.state.Pools {
		machines := seen.state.Pools[i].Machines
		for j := range machines {
			machines[j].Leave.Node = nodes[machines[j].Name]
			if says := machines[j].Leave.Node.Says; says != "" {
				machines[j].Leave.Says = says
			}
		}
	}
}
