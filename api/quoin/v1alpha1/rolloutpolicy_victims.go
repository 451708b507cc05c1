// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

const (
	// RolloutLastAnnotation on a Machine has a rollout replace it after the other Machines of its MachineDeployment that
	// are well, whatever its value is. It is of no use in a template, which all Machines have in common.
	RolloutLastAnnotation = "quoin.cluster.x-k8s.io/rollout-last"
	// RolloutDeletedAnnotation on a Machine says that a rollout deletes it: since when, the UID of the Machine, and why.
	// Cluster API records no reason of a deletion; one without this is somebody else's.
	RolloutDeletedAnnotation = "quoin.cluster.x-k8s.io/rollout-deleted"
	// RolloutUntaintAnnotation on a Machine says since when the taint of rollouts is to be taken off its Node, as no
	// policy says any more how it leaves, and the UID of the Machine. It goes when that is done.
	RolloutUntaintAnnotation = "quoin.cluster.x-k8s.io/rollout-untaint"
)

// RolloutWaves says which Machines of a MachineDeployment are replaced together.
// +kubebuilder:validation:Enum=None;FailureDomain
type RolloutWaves string

const (
	// RolloutWavesNone replaces Machines whatever their failure domain is.
	RolloutWavesNone RolloutWaves = "None"
	// RolloutWavesFailureDomain replaces those of one failure domain after those of another.
	RolloutWavesFailureDomain RolloutWaves = "FailureDomain"
)

// RolloutVictims says which Machines a rollout takes next, and how many it has to leave.
// +kubebuilder:validation:XValidation:rule="!has(self.minAvailable) || type(self.minAvailable) == string || self.minAvailable >= 0",message="minAvailable cannot be negative: give a number from 0 on, or a percentage such as 75%"
type RolloutVictims struct {
	// minAvailable is how many Machines of a MachineDeployment have to be available; percentages count from its replicas
	// and are rounded up. A MachineDeployment whose own maxUnavailable allows fewer is not rolled out.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([1-9]?[0-9]|100)%$`
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`

	// waves are None or FailureDomain, which takes no Machine of another failure domain before those of the first are
	// gone.
	// +optional
	Waves RolloutWaves `json:"waves,omitempty"`
}
