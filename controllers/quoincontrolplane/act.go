// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// act carries out the one step that was decided.
func (r *Reconciler) act(ctx context.Context, s *scope) error {
	effect, err := r.perform(ctx, s)
	r.fenceOf(s).end(ctx)
	switch {
	case err == nil:
		s.outcome = s.step.Done(effect)
	case s.step.Fallback != nil:
		r.postpone(ctx, s, err)
		s.outcome = controlplane.Outcome{Step: *s.step.Fallback}
		return nil
	default:
		return err
	}
	if !s.outcome.Waiting() && s.outcome.Kind != controlplane.RemoveFinalizer {
		r.tell(s, s.outcome.Step)
	}
	if s.outcome.Then != nil {
		r.tell(s, *s.outcome.Then)
	}
	return nil
}

// tell says in an event what was done.
func (r *Reconciler) tell(s *scope, step controlplane.Step) {
	if step.Reason == controlplane.ReasonToleranceLowered || step.Reason == controlplane.ReasonAPIServerStays {
		r.event(s, corev1.EventTypeWarning, step.Reason, step.Message)
		return
	}
	r.event(s, corev1.EventTypeNormal, string(step.Kind), step.Message)
}

func (r *Reconciler) perform(ctx context.Context, s *scope) (controlplane.Effect, error) {
	var none controlplane.Effect
	switch s.step.Kind {
	case controlplane.CreateInit:
		return r.createMachine(ctx, s, false)
	case controlplane.CreateJoin, controlplane.AdmitMachine:
		// Once more, because other fields than the version may have changed since it was written.
		if err := r.updateKubeadmConfig(ctx, s); err != nil {
			return none, err
		}
		if s.step.Kind == controlplane.AdmitMachine {
			return none, r.admit(ctx, s, s.machines[s.step.Machine])
		}
		return r.createMachine(ctx, s, true)
	case controlplane.PrepareMachine:
		return r.prepareMachine(ctx, s)
	case controlplane.PrepullAddons:
		return none, r.requestAddons(ctx, s)
	case controlplane.UpdateKubeadmConfig:
		return none, r.updateKubeadmConfig(ctx, s)
	case controlplane.MoveLeader:
		return none, r.moveLeader(ctx, s)
	case controlplane.StopAPIServer:
		return none, r.stopAPIServer(ctx, s)
	case controlplane.RemoveEtcdMember:
		return none, r.removeMember(ctx, s)
	case controlplane.DeleteMachine:
		if err := r.recordAttempt(ctx, s); err != nil {
			return none, err
		}
		if s.step.Then != nil {
			// Should the deletion fail, the hook comes back with the next reconcile.
			if err := r.openDrain(ctx, s.machines[s.step.Then.Machine]); err != nil {
				return none, err
			}
		}
		return none, r.deleteMachine(ctx, s.machines[s.step.Machine])
	case controlplane.OpenDrain:
		return none, r.openDrain(ctx, s.machines[s.step.Machine])
	case controlplane.Evict:
		return r.evict(ctx, s, s.machines[s.step.Machine])
	case controlplane.DeleteNode:
		return none, r.deleteNode(ctx, s, s.step.Node)
	case controlplane.ReleaseHook:
		return none, r.release(ctx, s, s.machines[s.step.Machine])
	case controlplane.RequestBackup:
		requestBackup(s)
	case controlplane.UpdateAddons:
		return none, r.updateAddons(ctx, s)
	case controlplane.OrderRecovery:
		return none, r.orderRecovery(ctx, s)
	case controlplane.GiveUpMachine:
		return none, r.giveUp(ctx, s.machines[s.step.Machine])
	case controlplane.FetchSnapshot, controlplane.BeginRecovery, controlplane.EndRecovery, controlplane.VoidRecovery:
		return none, r.recordRecovery(ctx, s)
	case controlplane.DeleteAll:
		return none, r.deleteAll(ctx, s)
	case controlplane.RemoveFinalizer:
		r.history.Forget(s.plane.UID)
		controllerutil.RemoveFinalizer(s.plane, controlplanev1.ControlPlaneFinalizer)
	}
	return none, nil
}

// deleteMachine deletes exactly the Machine that was decided about.
func (r *Reconciler) deleteMachine(ctx context.Context, machine *clusterv1.Machine) error {
	uid := machine.UID
	if err := r.Client.Delete(ctx, machine, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Machine %s: %w", machine.Name, err)
	}
	return nil
}

func conditionTrue(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionTrue
}
