// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// recorded is how far the recovery came that the spec asks for.
func (s *scope) recorded() controlplane.RecoveryRecord {
	return controlplane.ReadRecoveryRecord(s.plane.Annotations[controlplanev1.RecoveryAnnotation],
		s.plane.Spec.Recovery.ID)
}

// recovery is what a person asked for, and how far that came; nil when nobody did.
func (s *scope) recovery() *controlplane.Recovery {
	wanted := s.plane.Spec.Recovery
	if wanted == nil {
		return nil
	}
	result := &controlplane.Recovery{ID: wanted.ID, Machine: wanted.Machine, GiveUp: wanted.GiveUp, State: s.recorded().
		State,
		Hosts: map[string]controlplane.RecoveryHost{}}
	if wanted.Snapshot != nil {
		result.Snapshot = wanted.Snapshot.Name
		result.Delivered, result.Delivery = s.delivered() != nil, s.delivery()
	}
	for name := range s.parts() {
		result.Hosts[name] = s.recoveryHost(name, wanted.ID)
	}
	return result
}

// delivered are the data of the recovery's snapshot on the survivor's host; nil before all of them are there.
func (s *scope) delivered() *controlplane.RecoveryData {
	wanted, status := s.plane.Spec.Recovery, s.restored()
	if status == nil || status.SHA256 == "" || wanted.Snapshot == nil || !status.For(wanted) {
		return nil
	}
	return &controlplane.RecoveryData{Snapshot: status.Snapshot, SHA256: status.SHA256,
		Size: ptr.Deref(status.SizeBytes, 0)}
}

func (s *scope) restored() *controlplanev1.EtcdRestoreStatus {
	if s.plane.Status.Backup == nil {
		return nil
	}
	return s.plane.Status.Backup.Restore
}

// delivery says how far the data of the snapshot came.
func (s *scope) delivery() string {
	status := s.restored()
	switch {
	case s.plane.Spec.Backup == nil:
		return "spec.backup is not set, so no store is known: set spec.backup.store to where the snapshot is"
	case status == nil || !status.For(s.plane.Spec.Recovery) || status.Message == "":
		return "it is about to begin"
	}
	return status.Message
}

// recoveryHost is what is known of the host of a Machine. One that serves another claim by now was reset before, and
// one that does not exist was released. One whose QuoinMachine was torn away cannot be told anything.
func (s *scope) recoveryHost(machine, id string) controlplane.RecoveryHost {
	host, infra, provider := s.hosts[machine], s.infra[machine], s.machines[machine].Spec.ProviderID
	if infra != nil {
		provider = infra.Spec.ProviderID
	}
	if host == nil || host.Spec.ConsumerRef == nil || provider != host.ProviderID() || host.Fenced() {
		return controlplane.RecoveryHost{Gone: true}
	}
	result := controlplane.RecoveryHost{Name: host.Name, Silent: infra == nil ||
		conditions.IsFalse(host, infrav1.HostReachableCondition)}
	if infra == nil {
		return result
	}
	if order := infra.Spec.EtcdRecovery; order == nil || order.ID != id {
		return result
	}
	result.Ordered = true
	if operation := host.Status.Operation; operation != nil && operation.ID == infrav1.RecoverOperation(id) {
		result.Succeeded, result.Failed = operation.Succeeded(), operation.Failed()
		result.Message = conditions.GetMessage(host, infrav1.HostEtcdRecoveryCondition)
	}
	return result
}

// orderRecovery tells a host its part.
func (r *Reconciler) orderRecovery(ctx context.Context, s *scope) error {
	infra := s.infra[s.step.Machine]
	if infra == nil {
		return fmt.Errorf("the QuoinMachine of Machine %s is gone", s.step.Machine)
	}
	order := &infrav1.EtcdRecoveryOrder{ID: s.plane.Spec.Recovery.ID, Action: infrav1.EtcdRecoveryAction(s.step.Order)}
	if s.step.Order == controlplane.OrderSurvive {
		order.Member = s.machines[s.step.Machine].Status.NodeRef.Name
		if data := s.recorded().Data; data != nil {
			order.Snapshot = &infrav1.EtcdRecoverySnapshot{Name: data.Snapshot, SHA256: data.SHA256, SizeBytes: data.Size}
		}
	}
	changed := infra.DeepCopy()
	changed.Spec.EtcdRecovery = order
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(infra)); err != nil {
		return fmt.Errorf("telling the host of Machine %s its part in the recovery of etcd: %w", s.step.Machine, err)
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
func (r *Reconciler) recordRecovery(ctx context.Context, s *scope) error {
	state := map[controlplane.Kind]controlplane.RecoveryState{
		controlplane.FetchSnapshot: controlplane.RecoveryFetching,
		controlplane.BeginRecovery: controlplane.RecoveryBegun,
		controlplane.EndRecovery:   controlplane.RecoveryComplete,
		controlplane.VoidRecovery:  controlplane.RecoveryVoid,
	}[s.step.Kind]
	record := controlplane.RecoveryRecord{ID: s.plane.Spec.Recovery.ID, State: state}
	if state == controlplane.RecoveryBegun {
		// What the host is told rests on it, and status is lost in a move.
		record.Data = s.delivered()
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	noted := map[string]string{controlplanev1.RecoveryAnnotation: string(text)}
	changed := s.plane.DeepCopy()
	annotations.AddAnnotations(changed, noted)
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(s.plane)); err != nil {
		return fmt.Errorf("recording recovery %s: %w", s.plane.Spec.Recovery.ID, err)
	}
	annotations.AddAnnotations(s.plane, noted)
	if state == controlplane.RecoveryComplete || state == controlplane.RecoveryVoid {
		return r.dropOrders(ctx, s)
	}
	return nil
}

// dropOrders frees the hosts of their orders, so that they may be asked for other things again.
func (r *Reconciler) dropOrders(ctx context.Context, s *scope) error {
	var failures []error
	for name, infra := range s.infra {
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
func (s *scope) setRecovering() {
	const condition = controlplanev1.ControlPlaneRecoveringCondition
	if s.plane.Spec.Recovery == nil {
		conditions.Delete(s.plane, condition)
		return
	}
	if !s.observed {
		return
	}
	id := s.plane.Spec.Recovery.ID
	switch state := s.recorded().State; {
	case s.outcome.Operation == controlplane.Recover && s.outcome.Kind == controlplane.Refuse:
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
