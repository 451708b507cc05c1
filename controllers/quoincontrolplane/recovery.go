// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// orderRecovery gives a host its part, or takes it away where the step has none.
func (r *Reconciler) orderRecovery(ctx context.Context, o *observe.Observation, step controlplane.Step) error {
	infra := o.QuoinMachines[step.Machine]
	if infra == nil {
		return fmt.Errorf("the QuoinMachine of Machine %s is gone", step.Machine)
	}
	var order *infrav1.EtcdRecoveryOrder
	if step.Order != "" {
		order = &infrav1.EtcdRecoveryOrder{ID: o.ControlPlane.Spec.Recovery.ID,
			Action: infrav1.EtcdRecoveryAction(step.Order)}
	}
	if step.Order == controlplane.OrderSurvive {
		order.Member = o.Machines[step.Machine].Status.NodeRef.Name
		if data := observe.Recorded(o.ControlPlane).Data; data != nil {
			order.Snapshot = &infrav1.EtcdRecoverySnapshot{Name: data.Snapshot, SHA256: data.SHA256, SizeBytes: data.Size}
		}
	}
	changed := infra.DeepCopy()
	changed.Spec.EtcdRecovery = order
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(infra)); err != nil {
		return fmt.Errorf("telling the host of Machine %s its part in the recovery of etcd: %w", step.Machine, err)
	}
	return nil
}

// giveUp asks for the replacement of a Machine whose member was given up, as a person does.
func (r *Reconciler) giveUp(ctx context.Context, machine *clusterv1.Machine) error {
	changed := machine.DeepCopy()
	annotations.AddAnnotations(changed, map[string]string{clusterv1.RemediateMachineAnnotation: ""})
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine)); err != nil {
		return fmt.Errorf("marking Machine %s, which was given up, for its replacement: %w", machine.Name, err)
	}
	return nil
}

// recordRecovery notes how far the recovery came, before anything rests on it.
func (r *Reconciler) recordRecovery(
	ctx context.Context, o *observe.Observation, controlPlane *controlplanev1.QuoinControlPlane, step controlplane.Step,
) error {
	state := map[controlplane.Kind]controlplane.RecoveryState{
		controlplane.FetchSnapshot: controlplane.RecoveryFetching,
		controlplane.BeginRecovery: controlplane.RecoveryBegun,
		controlplane.EndRecovery:   controlplane.RecoveryComplete,
		controlplane.VoidRecovery:  controlplane.RecoveryVoid,
	}[step.Kind]
	wanted := controlPlane.Spec.Recovery
	record := controlplane.RecoveryRecord{ID: o.State.Recovery.ID, State: state}
	record.Earlier = controlplane.ReadRecoveryRecord(controlPlane.Annotations[controlplanev1.RecoveryAnnotation],
		record.ID).Earlier
	if state == controlplane.RecoveryBegun {
		// What the hosts are ordered to do rests on it, and status is lost in a move.
		record.Machine, record.GiveUp, record.Snapshot = wanted.Machine, wanted.GiveUp, wanted.SnapshotName()
		record.Data = o.Delivered()
	}
	// An edit of the request that came meanwhile is read before anything is done at its word.
	if err := r.record(ctx, controlPlane, controlplanev1.RecoveryAnnotation, record,
		client.MergeFromWithOptimisticLock{}); err != nil {
		return fmt.Errorf("recording recovery %s: %w", record.ID, err)
	}
	if state == controlplane.RecoveryComplete || state == controlplane.RecoveryVoid {
		return r.dropOrders(ctx, o)
	}
	return nil
}

// dropOrders frees the hosts of their orders, so that they may be asked for other things again.
func (r *Reconciler) dropOrders(ctx context.Context, o *observe.Observation) error {
	var failures []error
	for name, infra := range o.QuoinMachines {
		if infra.Spec.EtcdRecovery == nil {
			continue
		}
		changed := infra.DeepCopy()
		changed.Spec.EtcdRecovery = nil
		if err := client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFrom(infra))); err != nil {
			failures = append(failures, fmt.Errorf("taking the order of the recovery from the host of Machine %s: %w", name,
				err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// setRecovering says what became of the recovery that the spec asks for.
func (s *summary) setRecovering() {
	const condition = controlplanev1.ControlPlaneRecoveringCondition
	if s.controlPlane.Spec.Recovery == nil {
		conditions.Delete(s.controlPlane, condition)
		return
	}
	if !s.Observed() {
		return
	}
	id := s.controlPlane.Spec.Recovery.ID
	switch state := observe.Recorded(s.controlPlane).State; {
	case s.outcome.Operation == controlplane.Recover &&
		(s.outcome.Kind == controlplane.Refuse || s.outcome.Reason == controlplane.ReasonQuorumLost):
		s.set(condition, metav1.ConditionFalse, s.outcome.Reason, sentence(s.outcome.Message))
	case state == controlplane.RecoveryComplete:
		s.set(condition, metav1.ConditionFalse, controlplane.ReasonRecovered, fmt.Sprintf("Recovery %s is complete", id))
	case state == controlplane.RecoveryVoid:
		s.set(condition, metav1.ConditionFalse, controlplane.ReasonRecoveryVoid, fmt.Sprintf(
			"Recovery %s is never carried out, because etcd had a quorum; ask under another id if it is lost", id))
	case s.outcome.Operation == controlplane.Recover:
		s.set(condition, metav1.ConditionTrue, s.outcome.Reason, sentence(s.outcome.Message))
	default:
		s.set(condition, metav1.ConditionFalse, controlplane.ReasonRecoveryRefused,
			fmt.Sprintf("Recovery %s has not begun: whether the quorum is lost is not known yet", id))
	}
}
