// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"slices"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// Recovery is a person's word to restore an etcd that has lost its quorum, and how far that came.
type Recovery struct {
	// ID of the recovery; what was done under it is not done again.
	ID string
	// Machine whose etcd member survives.
	Machine string
	// GiveUp names all other Machines, whose members are lost, and by their ids the members that no Machine runs.
	GiveUp []string
	// Unclaimed are the ids of members that no Machine ran when etcd was last read; of interest while it cannot be.
	Unclaimed []string
	// Snapshot that the survivor begins with; the data of its own member when empty.
	Snapshot string
	// Delivered says that the snapshot's data lie on the survivor's host, Delivery how far they came.
	Delivered bool
	Delivery  string
	// State that was recorded under the ID.
	State RecoveryState
	// Edited says that it has begun with another Machine, other GiveUp, another Snapshot or another digest of that.
	Edited bool
	// Superseded says that another one was recorded since it began or was over: hosts may have done parts under its ID.
	Superseded bool
	// Withdrawn: nobody asks for it any more, and hosts have parts in it.
	Withdrawn bool
	// Hosts by Machine.
	Hosts map[string]RecoveryHost
}

// RecoveryState is how far a recovery came.
type RecoveryState string

const (
	// RecoveryAsked means: nothing was done yet.
	RecoveryAsked RecoveryState = ""
	// RecoveryFetching means: the snapshot is brought to the survivor's host. Nothing else was done yet.
	RecoveryFetching RecoveryState = "Fetching"
	// RecoveryBegun means: hosts may have been ordered to stop their members.
	RecoveryBegun RecoveryState = "Begun"
	// RecoveryComplete means: the survivor is a cluster of one. Final.
	RecoveryComplete RecoveryState = "Complete"
	// RecoveryVoid means: a quorum was there, so nothing is done under the ID, whatever is lost later. Final.
	RecoveryVoid RecoveryState = "Void"
)

// RecoveryRecord is what the control plane carries along of its last recovery.
type RecoveryRecord struct {
	ID    string        `json:"id"`
	State RecoveryState `json:"state"`
	// Machine that survives, GiveUp, the others, and the Snapshot, as they were when it began: hosts are given their parts
	// by them, and with others two might become clusters of one, or one with other data than it says.
	Machine  string   `json:"machine,omitempty"`
	GiveUp   []string `json:"giveUp,omitempty"`
	Snapshot string   `json:"snapshot,omitempty"`
	// Data of the snapshot that lay on the survivor's host when it began; nil when the member goes on with its own.
	Data *RecoveryData `json:"data,omitempty"`
	// Earlier are the ids of those before it that began or were over, for good: a host that has done a part under one
	// takes the same order for done, whatever it did since.
	Earlier []string `json:"earlier,omitempty"`
}

// Superseded reports whether another recovery was recorded since this one began or was over.
func (r RecoveryRecord) Superseded() bool { return slices.Contains(r.Earlier, r.ID) }

// Edited reports whether the recovery has begun, and not with this Machine as its survivor, these given up, and this
// snapshot; also when it does not say with which.
func (r RecoveryRecord) Edited(wanted *controlplanev1.EtcdRecovery) bool {
	return r.State == RecoveryBegun && (r.Machine != wanted.Machine || r.Snapshot != wanted.SnapshotName() ||
		!slices.Equal(slices.Sorted(slices.Values(r.GiveUp)), slices.Sorted(slices.Values(wanted.GiveUp))) ||
		r.Data.contradict(wanted.Snapshot))
}

// Holds reports whether the recovery has begun with the data of this snapshot on the host of this Machine; a record
// that does not say with which holds any.
func (r RecoveryRecord) Holds(machine, snapshot string) bool {
	return r.State == RecoveryBegun && (r.Machine == "" || r.Machine == machine && r.Snapshot == snapshot)
}

// RecoveryData are the data of a snapshot on a host.
type RecoveryData struct {
	Snapshot string `json:"snapshot"`
	// SHA256 of the list of the files with their checksums, which the host verifies.
	SHA256 string `json:"sha256"`
	// SnapshotSHA256 of the snapshot as it is stored, which a person may name; empty in the record of a release that did
	// not write it.
	SnapshotSHA256 string `json:"snapshotSHA256,omitempty"`
	Size           int64  `json:"size"`
}

// contradict reports whether the digest that a person names is known to be another one than that of the data. To name
// none, or theirs where none was named before, asks for the same data.
func (d *RecoveryData) contradict(wanted *controlplanev1.RecoverySnapshot) bool {
	return d != nil && d.SnapshotSHA256 != "" && wanted != nil && wanted.SHA256 != "" && wanted.SHA256 != d.SnapshotSHA256
}

// ReadRecoveryRecord is what text says of the recovery id; the record of another one says no more than which ids came
// before. One that cannot be read forbids, and so does a state that a later release of Quoin wrote: it may say that all
// was done.
func ReadRecoveryRecord(text, id string) RecoveryRecord {
	if text == "" {
		return RecoveryRecord{ID: id}
	}
	var record RecoveryRecord
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return RecoveryRecord{ID: id, State: RecoveryVoid}
	}
	if record.ID != id {
		earlier := record.Earlier
		if record.State != RecoveryAsked && record.State != RecoveryFetching {
			earlier = append(earlier, record.ID)
		}
		return RecoveryRecord{ID: id, Earlier: earlier}
	}
	switch record.State {
	case RecoveryAsked, RecoveryFetching, RecoveryBegun, RecoveryComplete, RecoveryVoid:
		return record
	}
	return RecoveryRecord{ID: id, State: RecoveryVoid}
}

// RecoveryUnderWay is the id of the recovery that the control plane is in; empty when none has begun that it asks for.
// Until it is over nobody may join: the survivor answers as a cluster of one before those given up are gone.
func RecoveryUnderWay(of *controlplanev1.QuoinControlPlane) string {
	wanted := of.Spec.Recovery
	if wanted == nil ||
		ReadRecoveryRecord(of.Annotations[controlplanev1.RecoveryAnnotation], wanted.ID).State != RecoveryBegun {
		return ""
	}
	return wanted.ID
}

// RecoveryHost is what is known of the host of a Machine.
type RecoveryHost struct {
	// Name of the host, as a person writes it to kubectl, with its namespace and kind; where it has no object, of the
	// object on which a person gives the host up.
	Name string
	// Gone: it was reset since it was the Machine's, or is known not to run.
	Gone bool
	// Unbound: it may run, and takes no orders: it has no object, or is not bound to the Machine by its objects.
	Unbound bool
	// ProviderID is the value of a person's word about the host: of the claim that the Machine has on it; empty where none
	// has.
	ProviderID string
	// Silent: it does not answer.
	Silent bool
	// Ordered: it was given its part. Began: it may have begun that. Succeeded and Failed say how it ended; neither while
	// it runs or has not begun.
	Ordered, Began, Succeeded, Failed bool
	// Message says what went wrong.
	Message string
}
