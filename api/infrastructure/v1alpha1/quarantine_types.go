// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WordGiver says on whose word something was done to a host.
// +kubebuilder:validation:Enum=Person;Controller
type WordGiver string

// Who may give a word.
const (
	// WordGiverPerson: an annotation asked for it.
	WordGiverPerson WordGiver = "Person"
	// WordGiverController: it followed from what was seen of the host, or from its policy.
	WordGiverController WordGiver = "Controller"
)

// HostQuarantine keeps everybody away from a host. It lies in spec, because neither a move nor a backup of the objects
// keeps a status.
type HostQuarantine struct {
	// reason is the one of the condition Clean: NotClean, StepFailed, Abandoned, ReleasedUnclean, Dead, Returned
	// and others.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message says in a sentence what is wrong, and what to do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// since when.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// by says on whose word: Person when the host was abandoned, or its Machine let go without a clean host, else
	// Controller.
	// +required
	By WordGiver `json:"by,omitempty"`

	// operation is the id of the last plan that ran on the host, so that the next one is another.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation,omitempty"`
}

// HostPoweredOff says that the power of a host was turned off to fence it.
type HostPoweredOff struct {
	// since when the BMC confirms it.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// by says on whose word.
	// +required
	By WordGiver `json:"by,omitempty"`

	// message says why.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}
