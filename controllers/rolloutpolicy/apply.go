// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

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
		machineSeconds.WithLabelValues(policy.Namespace, policy.Spec.ClusterName).Observe(d.Took.Seconds())
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
