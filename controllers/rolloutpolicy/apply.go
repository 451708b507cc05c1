// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// execute does what was decided. What fails ends what is done for its pool, and for no other (K-6, K-8, S3-10): the
// plan, and so the status, say what was refused. A Machine that somebody else wrote meanwhile ends nothing: it is
// decided about again, and the others are within the limits without it. execute reports whether a Machine that can
// never join was deleted, after which all is decided anew.
func (r *Reconciler) execute(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
	plan *rollout.Result,
) (dead bool, err error) {
	var failures []error
	failed, undone := map[string]bool{}, map[string]bool{}
	var counted []rollout.Decision
	for _, d := range plan.Decisions {
		if failed[d.Pool] {
			continue
		}
		machine := seen.machines[d.Machine]
		var unknown string
		var err error
		if d.Action == rollout.Admit {
			dead, unknown, err = r.replaceDead(ctx, policy, cluster, seen, machine)
		}
		switch {
		case unknown != "":
			plan.Postpone(seen.poolOf(d), d, unknown, workloadRetry)
			undone[d.Pool] = true
		case err == nil && !dead:
			err = r.apply(ctx, policy, machine, d)
		}
		if err != nil {
			failures, failed[d.Pool], undone[d.Pool] = append(failures, err), !conflicts(err), true
			plan.Undone(seen.poolOf(d), d, refusal(machine, err))
		} else if d.Action == rollout.Count {
			counted = append(counted, d)
		}
		if dead {
			break
		}
	}
	for _, d := range counted {
		if undone[d.Pool] {
			plan.Counted(d)
		}
	}
	return dead, errors.Join(failures...)
}

// poolOf is the pool that a decision is about, as it was read.
func (seen *observation) poolOf(d rollout.Decision) rollout.Pool {
	i := slices.IndexFunc(seen.state.Pools, func(pool rollout.Pool) bool { return pool.Name == d.Pool })
	return seen.state.Pools[i]
}

// refusal says why a write to a Machine is refused, and since when one that deletes it is; empty when another attempt
// may do.
func refusal(machine *clusterv1.Machine, err error) string {
	since := rollout.DeletedSince(machine)
	switch {
	case !apierr.IsRefusal(err):
		return ""
	case since.IsZero():
		return err.Error()
	}
	return fmt.Sprintf("%v (since %s)", err, since.UTC().Format(time.RFC3339))
}

// apply does what was decided about a Machine.
func (r *Reconciler) apply(
	ctx context.Context, policy *quoinv1.RolloutPolicy, machine *clusterv1.Machine, d rollout.Decision,
) error {
	switch d.Action {
	case rollout.Admit:
		before := machine.DeepCopy()
		// In one patch: no Machine is ever on its way without its gate.
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, quoinv1.RolloutAdmittedAnnotation,
			rollout.Admission(machine, r.Clock.Now()))
		if d.Gate {
			rollout.SetGate(machine, true)
		}
		if err := r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before)); err != nil {
			return fmt.Errorf("admit Machine %s: %w", client.ObjectKeyFromObject(machine), err)
		}
	case rollout.Count:
		if tells(machine) {
			if err := r.show(ctx, machine, metav1.ConditionTrue, d); err != nil {
				return err
			}
		}
		if err := r.ungate(ctx, machine); err != nil {
			return err
		}
		if d.Took > 0 {
			machineSeconds.WithLabelValues(policy.Namespace, policy.Spec.ClusterName).Observe(d.Took.Seconds())
		}
	case rollout.Wait:
		if rollout.Gated(machine) && (tells(machine) || !saidElsewhere(d)) {
			return r.show(ctx, machine, metav1.ConditionFalse, d)
		}
		return nil
	case rollout.Delete:
		if err := r.remove(ctx, policy, machine, d); err != nil {
			return err
		}
	case rollout.Mark, rollout.Unmark:
		return client.IgnoreNotFound(r.mark(ctx, machine, d.Action == rollout.Mark))
	case rollout.Hold, rollout.Keep:
		return nil // its QuoinMachine tells, or the policy
	}
	r.Recorder.Eventf(policy, machine, corev1.EventTypeNormal, string(d.Reason), string(d.Action), "%s: %s", d.Machine,
		d.Message)
	return nil
}

// tells reports whether the Machine has the condition of its gate. It gets one when it waits for something that none of
// its other conditions says, and keeps it: one that only had to become healthy costs no patch. Cluster API takes a gate
// whose condition is not there for one that is not True.
func tells(machine *clusterv1.Machine) bool {
	return conditions.Has(machine, quoinv1.MachineRolloutValidatedCondition)
}

func saidElsewhere(d rollout.Decision) bool {
	return d.Reason == rollout.Provisioning || d.Reason == rollout.NotHealthy
}

// show what a Machine waits for in the condition of its gate.
func (r *Reconciler) show(
	ctx context.Context, machine *clusterv1.Machine, status metav1.ConditionStatus, d rollout.Decision,
) error {
	before := machine.DeepCopy()
	conditions.Set(machine, metav1.Condition{Type: quoinv1.MachineRolloutValidatedCondition, Status: status,
		Reason: string(d.Reason), Message: d.Message})
	return r.patchStatus(ctx, before, machine)
}

// unshow takes the condition of a gate off that is gone.
func (r *Reconciler) unshow(ctx context.Context, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	conditions.Delete(machine, quoinv1.MachineRolloutValidatedCondition)
	return r.patchStatus(ctx, before, machine)
}

func (r *Reconciler) patchStatus(ctx context.Context, before, machine *clusterv1.Machine) error {
	if equality.Semantic.DeepEqual(before.Status, machine.Status) {
		return nil
	}
	// Conditions are one list: who wrote another one meanwhile must not lose it.
	if err := r.Client.Status().Patch(ctx, machine, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("patch the status of Machine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

func (r *Reconciler) ungate(ctx context.Context, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	rollout.SetGate(machine, false)
	if err := r.Client.Patch(ctx, machine, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("take the readiness gate off Machine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}
