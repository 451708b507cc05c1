// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HostHold keeps a host as it is while the objects around it are on their way to another management cluster. A held
// host is claimed by nobody, and nothing is started on it; a plan that runs is followed to its end.
// +kubebuilder:validation:XValidation:rule="has(self.clusters) || has(self.reason)",message="a hold names the Clusters that it waits for, or a reason in your words"
type HostHold struct {
	// source is the UID that the QuoinHost had where it was held: the object with this UID is the one that was left
	// behind, any other was created by a move or a restore. Unset when a person holds the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Source string `json:"source,omitempty"`

	// clusters, in the namespace of the host, that were all paused when it was held. The hold ends in the source when one
	// of them is unpaused, and anywhere else when all of them are there and none is paused. Without clusters it ends when
	// a person removes spec.heldFor.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Clusters []string `json:"clusters,omitempty"`

	// reason in the words of the person who holds the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}
