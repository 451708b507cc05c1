// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

const (
	// RolloutHookName is the name of the deletion hooks of rollouts.
	RolloutHookName = "quoin-rollout"
	// RolloutPreDrainHookAnnotation keeps a Machine that is being deleted from its drain until a RolloutPolicy lets it.
	RolloutPreDrainHookAnnotation = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/" + RolloutHookName
	// RolloutReplacementAnnotation on a Machine that was deleted says which Machine was made in its place: its own UID and
	// the name of the other one.
	RolloutReplacementAnnotation = "quoin.cluster.x-k8s.io/rollout-replacement"
	// RolloutReplacesAnnotation on a Machine, and on its parts, says in whose place it was made: the UID and the name of a
	// Machine that was deleted.
	RolloutReplacesAnnotation = "quoin.cluster.x-k8s.io/rollout-replaces"
	// RolloutPreTerminateHookAnnotation keeps the host of a Machine that is being deleted while pods that are to be
	// drained remain on its Node.
	RolloutPreTerminateHookAnnotation = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/" + RolloutHookName
	// RolloutTaintKey is the key of the PreferNoSchedule taint on Nodes whose Machines are to be replaced.
	RolloutTaintKey = "quoin.cluster.x-k8s.io/scheduled-for-update"
	// DrainFailedReason says that the Node of a Machine was not drained in time, and spec.drain.onTimeout is Fail.
	DrainFailedReason = "DrainFailed"
)

// RolloutDrainTimeout says what becomes of a Machine whose Node is not drained in time.
// +kubebuilder:validation:Enum=Fail;Proceed;Force
type RolloutDrainTimeout string

const (
	// RolloutDrainFail keeps the Machine, cordoned, until its pods are gone, and stops the group meanwhile.
	RolloutDrainFail RolloutDrainTimeout = "Fail"
	// RolloutDrainProceed takes the host away with the pods on it.
	RolloutDrainProceed RolloutDrainTimeout = "Proceed"
	// RolloutDrainForce deletes the pods that remain, whatever their disruption budgets say.
	RolloutDrainForce RolloutDrainTimeout = "Force"
)

// RolloutDrain is how a Node is drained before its Machine is terminated. Cluster API evicts the pods, as
// PodDisruptionBudgets and MachineDrainRules say.
// +kubebuilder:validation:MinProperties=1
type RolloutDrain struct {
	// onTimeout says what becomes of a Machine whose Node is not drained within timeoutSeconds. Fail keeps it, cordoned,
	// while pods remain, whatever nodeDrainTimeoutSeconds of the Machine says; its group stops, and others go on. Proceed
	// takes the host away with the pods on it. Force deletes the pods first, whatever their PodDisruptionBudgets say, and
	// gives them their own grace period. Nodes whose kubelet does not answer are not waited for.
	// +optional
	// +kubebuilder:default=Fail
	OnTimeout RolloutDrainTimeout `json:"onTimeout,omitempty"`

	// timeoutSeconds is how long a drain may take; 1200 for Proceed and else 900 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// postDrainDelaySeconds is how long a drained Node is left before its Machine is terminated.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	PostDrainDelaySeconds *int32 `json:"postDrainDelaySeconds,omitempty"`

	// intervalSeconds is how long after a termination the next Machine of the MachineDeployment is drained.
	// +optional
	// +kubebuilder:default=15
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}
