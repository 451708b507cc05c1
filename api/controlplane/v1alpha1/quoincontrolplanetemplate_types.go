// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// QuoinControlPlaneTemplateSpec is the desired state of a QuoinControlPlaneTemplate.
type QuoinControlPlaneTemplateSpec struct {
	// template of QuoinControlPlanes.
	// +required
	Template QuoinControlPlaneTemplateResource `json:"template,omitempty,omitzero"`
}

// QuoinControlPlaneTemplateResource is what a QuoinControlPlane is made from.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneTemplateResource struct {
	// metadata that QuoinControlPlanes get.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec that QuoinControlPlanes get.
	// +optional
	Spec QuoinControlPlaneTemplateResourceSpec `json:"spec,omitempty,omitzero"`
}

// QuoinControlPlaneTemplateResourceSpec is the spec of a QuoinControlPlane without what a Cluster's topology sets:
// replicas, version, infrastructureRef and readinessGates.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneTemplateResourceSpec struct {
	// machineTemplate says how Machines are shaped.
	// +optional
	MachineTemplate QuoinControlPlaneTemplateMachineTemplate `json:"machineTemplate,omitempty,omitzero"`
	// kubeadmConfigSpec is given to Cluster API's kubeadm bootstrap provider.
	// +optional
	KubeadmConfigSpec bootstrapv1.KubeadmConfigSpec `json:"kubeadmConfigSpec,omitempty,omitzero"`

	QuoinControlPlaneCare `json:",inline"`
}

// QuoinControlPlaneTemplateMachineTemplate says how Machines are shaped.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneTemplateMachineTemplate struct {
	// metadata that Machines get.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// spec of the Machines.
	// +optional
	Spec MachinePropagatedSpec `json:"spec,omitempty,omitzero"`
}

// QuoinControlPlaneTemplate is used by ClusterClasses.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quoincontrolplanetemplates,shortName=qcpt,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="ClusterClass",type="string",JSONPath=`.metadata.ownerReferences[?(@.kind=="ClusterClass")].name`,description="ClusterClass that owns the template"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type QuoinControlPlaneTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the template.
	// +optional
	Spec QuoinControlPlaneTemplateSpec `json:"spec,omitempty,omitzero"`
}

// QuoinControlPlaneTemplateList is a list of QuoinControlPlaneTemplates.
//
// +kubebuilder:object:root=true
type QuoinControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QuoinControlPlaneTemplate `json:"items"`
}

func init() {
	objectTypes = append(objectTypes, &QuoinControlPlaneTemplate{}, &QuoinControlPlaneTemplateList{})
}
