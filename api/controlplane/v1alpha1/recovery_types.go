// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// RecoveryAnnotation on a QuoinControlPlane holds, as JSON, the id of the last recovery that was asked for and how far it came,
// so that a move of the objects does not carry it out again.
const RecoveryAnnotation = "controlplane.cluster.x-k8s.io/quoin-recovery"

// ControlPlaneRecoveringCondition is True while an etcd that has lost its quorum is being restored, with what that waits for.
// Absent while spec.recovery is unset.
const ControlPlaneRecoveringCondition = "Recovering"

// EtcdRecovery is a person's word to restore an etcd that has lost its quorum for good, which throws data away: writes that
// the survivor had not received. It is carried out once, and only while there is no quorum; else the id is void.
type EtcdRecovery struct {
	// id of the recovery, of your choice, such as the number of a ticket. What was done under an id, or was found needless, is
	// never done again.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	ID string `json:"id,omitempty"`

	// machine that survives: its etcd member becomes a cluster of one, with the data that it has.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// giveUp names all other Machines of the control plane. Their etcd members are stopped for good, with what only they had
	// received, and they are replaced. A host among theirs that does not answer must be switched off and abandoned first.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	GiveUp []string `json:"giveUp,omitempty"`
}
