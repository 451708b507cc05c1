// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// EtcdRecoveryAction is what a host does in a recovery of etcd.
// +kubebuilder:validation:Enum=Stop;Survive
type EtcdRecoveryAction string

const (
	// EtcdRecoveryStop ends the member on the host for good: its data stay, and nothing starts it again.
	EtcdRecoveryStop EtcdRecoveryAction = "Stop"
	// EtcdRecoverySurvive makes the member on the host a cluster of one, with the data that it has.
	EtcdRecoverySurvive EtcdRecoveryAction = "Survive"
)

// EtcdRecoveryOrder is one host's part in a recovery of etcd.
type EtcdRecoveryOrder struct {
	// id of the recovery. What was carried out under an id is not carried out again.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	ID string `json:"id,omitempty"`

	// action of the host.
	// +required
	Action EtcdRecoveryAction `json:"action,omitempty"`

	// member is the name of the etcd member that survives; empty for Stop.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Member string `json:"member,omitempty"`

	// snapshot whose data were brought to the host, for Survive: the member begins with them, instead of the data that it
	// has.
	// +optional
	Snapshot *EtcdRecoverySnapshot `json:"snapshot,omitempty"`
}

// EtcdRecoverySnapshot is a snapshot whose data lie on a host, and by what the host knows that they are whole.
type EtcdRecoverySnapshot struct {
	// name of the snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name,omitempty"`

	// sha256 of the list of files with their checksums, in hexadecimal.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`

	// sizeBytes of the files together, for which there must be room beside the old data.
	// +required
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// RecoverOperation names the operation of a host that carries out its part of a recovery.
func RecoverOperation(id string) string { return "recover-" + id }
