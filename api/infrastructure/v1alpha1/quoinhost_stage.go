// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Roles of a Machine that a host may be made, as bundles know them.
const (
	// StageRoleControlPlane is that of control-plane Machines.
	StageRoleControlPlane = "ControlPlane"
	// StageRoleWorker is that of all others.
	StageRoleWorker = "Worker"
)

// HostStage is what a free host is asked to have before it is claimed.
type HostStage struct {
	// requestedBy is the ClusterUpgrade that asks, as "namespace/name".
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=317
	RequestedBy string `json:"requestedBy,omitempty"`

	// until is when the request ends, unless it is renewed.
	// +required
	Until metav1.Time `json:"until,omitempty,omitzero"`

	// artifacts in the order in which they are brought.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Artifacts []StagedArtifacts `json:"artifacts,omitempty"`
}

// StagedArtifacts are the files and images that a version has for a role, from where a machine template says.
type StagedArtifacts struct {
	// namespace of the QuoinMachineTemplate. The host must be offered to it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// template is the name of the QuoinMachineTemplate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Template string `json:"template,omitempty"`

	// version of Kubernetes, with a leading v.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// role of the Machine that the host may become.
	// +required
	// +kubebuilder:validation:Enum=ControlPlane;Worker
	Role string `json:"role,omitempty"`
}
