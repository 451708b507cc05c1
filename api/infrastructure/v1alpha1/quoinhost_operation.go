// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HostOperation is a plan that runs on a host.
type HostOperation struct {
	// id of the plan; its journal lies on the host under /var/lib/quoin/runs/<id>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`

	// phase of the plan: NotStarted, Running, Succeeded, Failed or Interrupted.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Phase string `json:"phase,omitempty"`

	// step that runs or failed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Step string `json:"step,omitempty"`

	// since when the step runs.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// verifications that found something after the reset; it is looked again a few times before the host is quarantined.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Verifications *int32 `json:"verifications,omitempty"`
}

// Phases of a HostOperation, as the journal on the host tells them.
const (
	// HostOperationNotStarted means: nothing of the plan ran.
	HostOperationNotStarted = "NotStarted"
	// HostOperationRunning means: the plan runs, or goes on when the host is up again.
	HostOperationRunning = "Running"
	// HostOperationSucceeded means: every step ended well.
	HostOperationSucceeded = "Succeeded"
	// HostOperationFailed means: a step failed.
	HostOperationFailed = "Failed"
	// HostOperationInterrupted means: a step that must not run twice was cut off.
	HostOperationInterrupted = "Interrupted"
)

// HostOperationStepJoin is the step in which kubeadm joins a cluster.
const HostOperationStepJoin = "kubeadm-join"

// Began reports whether anything of the plan ran, as far as is recorded.
func (o *HostOperation) Began() bool { return o.Phase != "" && o.Phase != HostOperationNotStarted }

// Succeeded reports whether the plan ended well.
func (o *HostOperation) Succeeded() bool { return o.Phase == HostOperationSucceeded }

// Failed reports whether the plan has ended, and not well.
func (o *HostOperation) Failed() bool {
	return o.Phase == HostOperationFailed || o.Phase == HostOperationInterrupted
}

// Final reports whether the plan has ended.
func (o *HostOperation) Final() bool { return o.Succeeded() || o.Failed() }

// ProvisionOperation names the operation of a host that runs the bootstrap data of a claim. No other ever does.
func ProvisionOperation(claim string) string { return "provision-" + claim }
