// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HostOrder names orders that a host was given.
// +kubebuilder:validation:MinProperties=1
type HostOrder struct {
	// heard is the last order that the host is known to have heard before given.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Heard string `json:"heard,omitempty"`

	// given is the one after it, written down before the host is told. The host has heard it, or has not.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Given string `json:"given,omitempty"`

	// plan is the one that given starts. Where given was not heard by the host yet, it stands for the next plan as well.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Plan string `json:"plan,omitempty"`
}
