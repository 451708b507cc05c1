// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// Recorded is how far the recovery came that the spec asks for.
func Recorded(controlPlane *controlplanev1.QuoinControlPlane) controlplane.RecoveryRecord {
	return controlplane.ReadRecoveryRecord(controlPlane.Annotations[controlplanev1.RecoveryAnnotation],
		controlPlane.Spec.Recovery.ID)
}

// recovery is what a person asked for, and how far that came; nil when nobody did, and no host has a part in one.
func (inv *Inventory) recovery() *controlplane.Recovery {
	wanted := inv.ControlPlane.Spec.Recovery
	if wanted == nil {
		return inv.withdrawnRecovery()
	}
	record := Recorded(inv.ControlPlane)
	result := &controlplane.Recovery{ID: wanted.ID, Machine: wanted.Machine, GiveUp: wanted.GiveUp, State: record.State,
		// What began before its record said with what goes on.
		Edited:     record.Machine != "" && record.Edited(wanted),
		Superseded: record.Superseded(),
		Hosts:      map[string]controlplane.RecoveryHost{}}
	if wanted.Snapshot != nil {
		result.Snapshot = wanted.Snapshot.Name
		result.Delivered, result.Delivery = inv.Delivered() != nil, inv.delivery()
	}
	for _, member := range inv.lastMembers() {
		if member.Machine == "" {
			result.Unclaimed = append(result.Unclaimed, member.ID)
		}
	}
	for name := range inv.Parts() {
		result.Hosts[name] = inv.recoveryHost(name, wanted.ID)
	}
	return result
}

// lastMembers are those of etcd as it was last read.
func (inv *Inventory) lastMembers() []controlplanev1.EtcdMember {
	if inv.ControlPlane.Status.Etcd == nil {
		return nil
	}
	return inv.ControlPlane.Status.Etcd.Members
}

// withdrawnRecovery is the one that hosts have parts in and that nobody asks for any more; nil when no host has one.
func (inv *Inventory) withdrawnRecovery() *controlplane.Recovery {
	var result *controlplane.Recovery
	for _, machine := range inv.Parts().SortedByCreationTimestamp() {
		infra := inv.QuoinMachines[machine.Name]
		if infra == nil || infra.Spec.EtcdRecovery == nil {
			continue
		}
		id := infra.Spec.EtcdRecovery.ID
		record := controlplane.ReadRecoveryRecord(inv.ControlPlane.Annotations[controlplanev1.RecoveryAnnotation], id)
		if result == nil {
			result = &controlplane.Recovery{Withdrawn: true, Hosts: map[string]controlplane.RecoveryHost{}}
		}
		if result.ID == "" || record.State != controlplane.RecoveryAsked {
			result.ID, result.Machine, result.State = id, record.Machine, record.State
		}
		result.Hosts[machine.Name] = inv.recoveryHost(machine.Name, id)
	}
	return result
}

// Delivered are the data of the recovery's snapshot on the survivor's host; nil before all of them are there.
func (inv *Inventory) Delivered() *controlplane.RecoveryData {
	wanted, status := inv.ControlPlane.Spec.Recovery, inv.restored()
	if status == nil || status.SHA256 == "" || wanted.Snapshot == nil || !status.For(wanted) {
		return nil
	}
	return &controlplane.RecoveryData{Snapshot: status.Snapshot, SHA256: status.SHA256,
		SnapshotSHA256: status.SnapshotSHA256, Size: ptr.Deref(status.SizeBytes, 0)}
}

func (inv *Inventory) restored() *controlplanev1.EtcdRestoreStatus {
	if inv.ControlPlane.Status.Backup == nil {
		return nil
	}
	return inv.ControlPlane.Status.Backup.Restore
}

// delivery says how far the data of the snapshot came.
func (inv *Inventory) delivery() string {
	status := inv.restored()
	switch {
	case inv.ControlPlane.Spec.Backup == nil:
		return "spec.backup is not set, so no store is known: set spec.backup.store to where the snapshot is"
	case status != nil && !status.For(inv.ControlPlane.Spec.Recovery):
		return fmt.Sprintf("it begins once what recovery %s brought to the host of Machine %s is removed: %s",
			status.RecoveryID, status.Machine, cmp.Or(status.Message, "that is about to begin"))
	case status == nil || status.Message == "":
		return "it is about to begin"
	}
	return status.Message
}

// recoveryHost is what is known of the host of a Machine. One that serves another claim by now, or that is free, was
// reset before. One whose object is not there, or that is not bound to the Machine, may run all the same: a person says
// of it that it does not, on the object that there is.
func (inv *Inventory) recoveryHost(machine, id string) controlplane.RecoveryHost {
	host, infra := inv.Hosts[machine], inv.QuoinMachines[machine]
	switch {
	case host == nil && infra != nil && !inv.hostClaimed(inv.Machines[machine]):
		return controlplane.RecoveryHost{Gone: true}
	case host == nil:
		return inv.recoveryWithoutHost(machine)
	case host.Fenced(), inv.OwnHost(machine) == nil && host.Spec.ConsumerRef != nil,
		host.Spec.ConsumerRef == nil && host.Status.State == infrav1.HostStateAvailable:
		return controlplane.RecoveryHost{Gone: true}
	}
	result := controlplane.RecoveryHost{Name: fmt.Sprintf("-n %s quoinhost %s", host.Namespace, host.Name),
		ProviderID: host.ProviderID()}
	if infra == nil || host.Spec.ConsumerRef == nil {
		result.Unbound = true
		return result
	}
	result.Silent = conditions.IsFalse(host, infrav1.HostReachableCondition)
	if order := infra.Spec.EtcdRecovery; order == nil || order.ID != id {
		return result
	}
	result.Ordered = true
	result.Began = host.Spec.Order != nil && host.Spec.Order.Plan == infrav1.RecoverOperation(id)
	if operation := host.Status.Operation; operation != nil && operation.ID == infrav1.RecoverOperation(id) {
		result.Began = result.Began || operation.Began()
		result.Succeeded, result.Failed = operation.Succeeded(), operation.Failed()
		result.Message = conditions.GetMessage(host, infrav1.HostEtcdRecoveryCondition)
	}
	return result
}

// recoveryWithoutHost is what is known of a host without an object: nothing, until a person says, by its provider ID,
// that it does not run.
func (inv *Inventory) recoveryWithoutHost(machine string) controlplane.RecoveryHost {
	var object client.Object = inv.Machines[machine]
	kind, id := "machine", inv.Machines[machine].Spec.ProviderID
	if infra := inv.QuoinMachines[machine]; infra != nil {
		object, kind, id = infra, "quoinmachine", infra.Spec.ProviderID
	}
	if said, ok := object.GetAnnotations()[infrav1.AbandonAnnotation]; ok && said == id {
		return controlplane.RecoveryHost{Gone: true}
	}
	return controlplane.RecoveryHost{Unbound: true, ProviderID: id,
		Name: fmt.Sprintf("-n %s %s %s", object.GetNamespace(), kind, object.GetName())}
}

// MembersToRemove are those that a person wants to be removed.
func MembersToRemove(controlPlane *controlplanev1.QuoinControlPlane) []uint64 {
	ids, _ := controlplanev1.MembersToRemove(controlPlane.Annotations[controlplanev1.RemoveEtcdMemberAnnotation])
	return ids
}

// defaultBackupAge is how old the last good snapshot may be when the spec does not say.
const defaultBackupAge = time.Hour

// maxBackupAge is how old the last good snapshot may be.
func maxBackupAge(spec *controlplanev1.EtcdBackup) time.Duration {
	if spec.MaxAgeSeconds == nil {
		return defaultBackupAge
	}
	return time.Duration(*spec.MaxAgeSeconds) * time.Second
}

// backup says how recent the last good snapshot of etcd is, and whether a newer one was asked for.
func (o *Observation) backup() controlplane.Backup {
	spec := o.ControlPlane.Spec.Backup
	if spec == nil {
		return controlplane.Backup{}
	}
	limit := maxBackupAge(spec)
	result := controlplane.Backup{Wanted: true, Last: "there is none yet"}
	status := ptr.Deref(o.ControlPlane.Status.Backup, controlplanev1.EtcdBackupStatus{})
	if good := status.LastGood; good != nil {
		result.Recent = o.At.Sub(good.Time.Time) <= limit && o.counts(good)
		// By its time and not by its age, which would be another text each second.
		result.Last = fmt.Sprintf("the last good one is of %s, and %s is the limit", good.Time.UTC().Format(time.RFC3339),
			limit)
		if o.snapshotMissing() {
			result.Last = "the store has lost the last good one"
		}
		result.Requested = status.Requested(o.At).After(good.Time.Time)
	} else {
		result.Requested = !status.Requested(o.At).IsZero()
	}
	return result
}

// noteRequest is the last request for a snapshot that was seen waiting, and has its answer be recent. The age of a
// snapshot counts from when it was begun, so one that takes longer than it may be old is never recent by that, and who
// waits for it would ask for another one for ever. Therefore the one that answers a request is recent for as long after
// it was first seen. A process that has not seen the request wait asks for one more.
func (o *Observation) noteRequest(request history.Request) history.Request {
	status := ptr.Deref(o.ControlPlane.Status.Backup, controlplanev1.EtcdBackupStatus{})
	made := status.Requested(o.At)
	switch {
	case o.State.Backup.Requested:
		return history.Request{Made: made}
	case !o.State.Backup.Wanted || request.Made.IsZero() || !request.Made.Equal(made):
		return history.Request{}
	case request.Answered.IsZero():
		request.Answered = o.At
	}
	since := o.At.Sub(request.Answered)
	if since < 0 || since > maxBackupAge(o.ControlPlane.Spec.Backup) {
		return history.Request{}
	}
	o.State.Backup.Recent = o.State.Backup.Recent || o.counts(status.LastGood)
	return request
}

// counts reports whether a last good snapshot is one to go back to: the store has it, and it is not dated ahead, by a
// clock or by somebody, which is of no known age. Clocks may differ a little.
func (o *Observation) counts(good *controlplanev1.BackupRecord) bool {
	return good != nil && good.Time.Sub(o.At) <= time.Minute && !o.snapshotMissing()
}

// snapshotMissing reports whether the store has lost the last good snapshot.
func (o *Observation) snapshotMissing() bool {
	return conditions.GetReason(o.ControlPlane, controlplanev1.ControlPlaneBackupHealthyCondition) ==
		controlplanev1.SnapshotMissingReason
}
