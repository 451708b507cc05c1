// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// execute carries out the one step that was decided.
func (r *Reconciler) execute(ctx context.Context, p *reconciliation) error {
	step := p.assessment.Step
	fence := r.newFence(&p.observation.Inventory)
	effect, err := r.perform(ctx, p, fence)
	fence.end(ctx)
	switch {
	case err == nil:
		p.outcome = step.Done(effect)
	case step.Fallback != nil:
		r.postpone(ctx, p.observation, step, err)
		p.outcome = controlplane.Outcome{Step: *step.Fallback}
		return nil
	default:
		return err
	}
	if !p.outcome.Waiting() && p.outcome.Kind != controlplane.RemoveFinalizer {
		r.stepEvent(p.controlPlane, p.outcome.Step)
	}
	if p.outcome.Then != nil {
		r.stepEvent(p.controlPlane, *p.outcome.Then)
	}
	return nil
}

// stepEvent records that a step was carried out.
func (r *Reconciler) stepEvent(controlPlane *controlplanev1.QuoinControlPlane, step controlplane.Step) {
	kind, reason := corev1.EventTypeNormal, string(step.Kind)
	if step.Reason == controlplane.ReasonToleranceLowered || step.Reason == controlplane.ReasonAPIServerStays {
		kind, reason = corev1.EventTypeWarning, step.Reason
	}
	r.event(controlPlane, kind, reason, step.Message)
}

// perform gives each kind of step what it needs. Only what changes the control plane itself, or what is known of its
// Machines, is given the reconciliation.
func (r *Reconciler) perform(ctx context.Context, p *reconciliation, fence *fence) (controlplane.Effect, error) {
	var none controlplane.Effect
	o, step := p.observation, p.assessment.Step
	switch step.Kind {
	case controlplane.CreateFirstMachine, controlplane.CreateMachine, controlplane.AllowHostClaim:
		return r.addMachine(ctx, p, fence)
	case controlplane.PreCreateMachine:
		return r.preCreateMachine(ctx, o, step)
	case controlplane.PrepullAddons:
		return none, r.requestAddons(ctx, o, step)
	case controlplane.UpdateKubeadmConfig:
		return none, r.updateKubeadmConfig(ctx, o, fence)
	case controlplane.MoveLeader:
		return none, r.moveLeader(ctx, o, fence, step)
	case controlplane.StopAPIServer:
		return none, r.stopAPIServer(ctx, o, step)
	case controlplane.RemoveEtcdMember:
		return none, r.removeMember(ctx, o, fence, step)
	case controlplane.DeleteMachine:
		return none, r.beginDeparture(ctx, p)
	case controlplane.ReleaseDrainHook:
		return none, r.releaseDrain(ctx, o.Machines[step.Machine])
	case controlplane.EvictPods:
		return r.evict(ctx, o, fence, o.Machines[step.Machine])
	case controlplane.DeleteNode:
		return none, r.deleteNode(ctx, o, fence, step.Node)
	case controlplane.ReleaseTerminateHook:
		return none, r.release(ctx, &o.Inventory, o.Machines[step.Machine])
	case controlplane.RequestBackup:
		requestBackup(p.controlPlane, r.Clock.Now())
	case controlplane.UpdateAddons:
		problem, err := r.updateAddons(ctx, o, fence)
		p.dnsProblem = problem
		return none, err
	case controlplane.OrderRecovery:
		return none, r.orderRecovery(ctx, o, step)
	case controlplane.MarkForRemediation:
		return none, r.giveUp(ctx, o.Machines[step.Machine])
	case controlplane.FetchSnapshot, controlplane.BeginRecovery, controlplane.EndRecovery, controlplane.VoidRecovery:
		return none, r.recordRecovery(ctx, o, p.controlPlane, step)
	case controlplane.DeleteAll:
		return none, r.deleteAll(ctx, &o.Inventory)
	case controlplane.RemoveFinalizer:
		r.history.Forget(p.controlPlane.UID)
		controllerutil.RemoveFinalizer(p.controlPlane, controlplanev1.ControlPlaneFinalizer)
	}
	return none, nil
}

// addMachine makes a Machine, or allows one that was pre-created a host.
func (r *Reconciler) addMachine(ctx context.Context, p *reconciliation, fence *fence) (controlplane.Effect, error) {
	o, step := p.observation, p.assessment.Step
	if step.Kind != controlplane.CreateFirstMachine {
		// Once more, because other fields than the version may have changed since it was written.
		if err := r.updateKubeadmConfig(ctx, o, fence); err != nil {
			return controlplane.Effect{}, err
		}
	}
	// Nil when the Machine replaces no unhealthy one.
	attempt := cmp.Or(step.Attempt, o.State.Remediation.Pending)
	if attempt != nil {
		setLastRemediation(p.controlPlane, attempt)
	}
	if step.Kind != controlplane.AllowHostClaim {
		return r.createMachine(ctx, o, attempt, step)
	}
	allowed, err := r.allowHostClaim(ctx, o, attempt, step)
	if err == nil {
		p.machines.Insert(allowed)
	}
	return controlplane.Effect{}, err
}

// beginDeparture deletes a Machine, and approves its drain where that was decided together.
func (r *Reconciler) beginDeparture(ctx context.Context, p *reconciliation) error {
	o, step := p.observation, p.assessment.Step
	if err := r.recordAttempt(ctx, p.controlPlane, step.Attempt); err != nil {
		return err
	}
	if step.Then != nil {
		// Should the deletion fail, the hook comes back with the next reconcile.
		if err := r.releaseDrain(ctx, o.Machines[step.Then.Machine]); err != nil {
			return err
		}
	}
	return r.deleteMachine(ctx, o.Machines[step.Machine])
}

// deleteMachine deletes exactly the Machine that was decided about.
func (r *Reconciler) deleteMachine(ctx context.Context, machine *clusterv1.Machine) error {
	uid := machine.UID
	if err := r.Client.Delete(ctx, machine, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Machine %s: %w", machine.Name, err)
	}
	return nil
}

func isTrue(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionTrue
}

// requestBackup asks for a snapshot that begins now or later.
func requestBackup(controlPlane *controlplanev1.QuoinControlPlane, now time.Time) {
	if controlPlane.Status.Backup == nil {
		controlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{}
	}
	controlPlane.Status.Backup.RequestedTime = metav1.NewTime(now)
}
