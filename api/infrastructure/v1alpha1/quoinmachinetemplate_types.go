// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// QuoinMachineTemplateSpec is the desired state of a QuoinMachineTemplate.
type QuoinMachineTemplateSpec struct {
	// template of QuoinMachines. It cannot be changed: make a new template and refer to it.
	// +required
	Template QuoinMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// QuoinMachineTemplateResource is what a QuoinMachine is made from.
// +kubebuilder:validation:MinProperties=1
type QuoinMachineTemplateResource struct {
	// metadata that QuoinMachines get.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec that QuoinMachines get.
	// +required
	Spec QuoinMachineSpec `json:"spec,omitempty,omitzero"`
}

// Architecture is that of a node's processors, as the contract names it.
// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
type Architecture string

// NodeInfo is what is known of a node before it is made; part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture of the node.
	// +optional
	Architecture Architecture `json:"architecture,omitempty"`

	// operatingSystem of the node ("linux").
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// QuoinMachineTemplateStatus is what a node made from the template would have. A cluster autoscaler reads it to scale a
// pool that has no node.
// +kubebuilder:validation:MinProperties=1
type QuoinMachineTemplateStatus struct {
	// capacity of the smallest host that a Machine of the template may get: processors and memory. Unset while there is
	// none.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo has the architecture when all of those hosts have the same.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// QuoinMachineTemplate is what MachineDeployments and control planes make QuoinMachines from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quoinmachinetemplates,shortName=qmt,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster"
// +kubebuilder:printcolumn:name="Bundle",type="string",JSONPath=".spec.template.spec.artifacts.bundle.location",description="Where Kubernetes comes from"
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.capacity.cpu",description="Processors of the smallest host",priority=10
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory of the smallest host",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the template.
	// +optional
	Spec QuoinMachineTemplateSpec `json:"spec,omitempty,omitzero"`
	// status is what a node made from the template would have.
	// +optional
	Status QuoinMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// QuoinMachineTemplateList is a list of QuoinMachineTemplates.
//
// +kubebuilder:object:root=true
type QuoinMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinMachineTemplate `json:"items"`
}

func init() { objectTypes = append(objectTypes, &QuoinMachineTemplate{}, &QuoinMachineTemplateList{}) }
