// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// RecoveryAnnotation on a QuoinControlPlane holds, as JSON, the id of the last recovery that was asked for, how far
// it came and with which Machines it began, and the ids of those before it, so that a move of the objects carries none
// out again.
const RecoveryAnnotation = "controlplane.cluster.x-k8s.io/quoin-recovery"

// ControlPlaneRecoveringCondition is True while an etcd that has lost its quorum is being restored, with what that
// waits for. Absent while spec.recovery is unset.
const ControlPlaneRecoveringCondition = "Recovering"

// EtcdRecovery is a person's word to restore an etcd that has lost its quorum for good, which throws data away: writes
// that the survivor had not received, or all since the snapshot. It is carried out once, and only while there is no
// quorum; else the id is void. Who survives and who is given up is as it was when the recovery began, also when it is
// taken away meanwhile and put back: another word needs another id.
type EtcdRecovery struct {
	// id of the recovery, of your choice, such as the number of a ticket. What was done under an id, or was found
	// needless, is never done again.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	ID string `json:"id,omitempty"`

	// machine that survives: its etcd member becomes a cluster of one, with the data that it has, or with those of the
	// snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// giveUp names all other Machines of the control plane. Their etcd members are stopped for good, with what only they
	// had received, and they are replaced. A host among theirs that does not answer must be switched off and abandoned
	// first. A member that no Machine of the control plane runs, as status.etcd shows it, is named by its id, once its
	// host is off: nobody here can stop it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	GiveUp []string `json:"giveUp,omitempty"`

	// snapshot of spec.backup.store that the surviving member begins with, instead of the data that it has. No member is
	// stopped before it lies on the host, whole.
	// +optional
	Snapshot *RecoverySnapshot `json:"snapshot,omitempty"`
}

// SnapshotName is that of the snapshot that the survivor begins with; empty when it begins with its own data.
func (r *EtcdRecovery) SnapshotName() string {
	if r.Snapshot == nil {
		return ""
	}
	return r.Snapshot.Name
}

// RecoverySnapshot names a snapshot of spec.backup.store.
// +kubebuilder:validation:XValidation:rule="self.name.endsWith('.age') == has(self.identityRef)",message="a snapshot whose name ends with .age is encrypted, and needs identityRef: a Secret whose data key identity holds the private key; any other needs none"
type RecoverySnapshot struct {
	// name of a good snapshot, as status.backup.lastGood and the store have it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}\.db(\.age)?$`
	Name string `json:"name,omitempty"`

	// sha256 of what is stored, in hexadecimal, as status.backup.lastGood said it, or who took note of it. A snapshot with
	// another one is refused before its host is touched. Unset, what the store says of the snapshot is believed.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`

	// identityRef names a Secret in the namespace of the control plane whose data key "identity" holds the age private key
	// (AGE-SECRET-KEY-1...) of a recipient of the snapshot. It is read while the snapshot is fetched. Delete the Secret
	// after the recovery.
	// +optional
	IdentityRef SecretReference `json:"identityRef,omitempty,omitzero"`
}

// EtcdRestoreStatus is how far the data of a snapshot came on its way to the host of a recovery.
type EtcdRestoreStatus struct {
	// recoveryID of the recovery that the data are for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	RecoveryID string `json:"recoveryID,omitempty"`

	// machine on whose host the data are, or are to be.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// snapshot that they were made of.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Snapshot string `json:"snapshot,omitempty"`

	// snapshotSHA256 of the snapshot as it is stored, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	SnapshotSHA256 string `json:"snapshotSHA256,omitempty"`

	// sha256 of the list of files with their checksums, in hexadecimal. Set once the host has verified all of them.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`

	// sizeBytes of the files together.
	// +optional
	SizeBytes *int64 `json:"sizeBytes,omitempty"`

	// message says what goes on, or why it failed; it is tried again then.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
}

// For says whether the data are those that a recovery asks for, by its digest, on the host that it asks for.
func (r *EtcdRestoreStatus) For(recovery *EtcdRecovery) bool {
	return recovery != nil && recovery.Snapshot != nil && r.RecoveryID == recovery.ID && r.Machine == recovery.Machine &&
		r.Snapshot == recovery.Snapshot.Name &&
		(recovery.Snapshot.SHA256 == "" || r.SnapshotSHA256 == recovery.Snapshot.SHA256)
}
