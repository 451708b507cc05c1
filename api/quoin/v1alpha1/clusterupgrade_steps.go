// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpgradeStepType is what a step is about.
// +kubebuilder:validation:Enum=Preflight;SpecVersion;ControlPlane;Addons;Workers;Health
type UpgradeStepType string

// The steps of an upgrade. Hosts that serve as load balancers are those of the control plane and go with it.
const (
	// UpgradeStepPreflight waits for a PreflightCheck that passes.
	UpgradeStepPreflight UpgradeStepType = "Preflight"
	// UpgradeStepSpecVersion writes the version into the spec of the QuoinCluster.
	UpgradeStepSpecVersion UpgradeStepType = "SpecVersion"
	// UpgradeStepControlPlane brings the control plane one hop further.
	UpgradeStepControlPlane UpgradeStepType = "ControlPlane"
	// UpgradeStepAddons waits until the control plane has its add-ons follow.
	UpgradeStepAddons UpgradeStepType = "Addons"
	// UpgradeStepWorkers brings a MachineDeployment to a version.
	UpgradeStepWorkers UpgradeStepType = "Workers"
	// UpgradeStepHealth has the Cluster looked at until it is healthy.
	UpgradeStepHealth UpgradeStepType = "Health"
)

// UpgradeStepState is how far a step is.
// +kubebuilder:validation:Enum=Pending;Running;Waiting;Done
type UpgradeStepState string

const (
	// UpgradeStepPending means that steps before it are not done.
	UpgradeStepPending UpgradeStepState = "Pending"
	// UpgradeStepRunning means that it is carried out.
	UpgradeStepRunning UpgradeStepState = "Running"
	// UpgradeStepWaiting means that somebody has to do something, which its message says.
	UpgradeStepWaiting UpgradeStepState = "Waiting"
	// UpgradeStepDone means that what it is for is so.
	UpgradeStepDone UpgradeStepState = "Done"
)

// UpgradeStepChange says how what a step is about gets its version.
// +kubebuilder:validation:Enum=Replace;Update
type UpgradeStepChange string

const (
	// UpgradeStepReplace has new Machines take the place of old ones, on other hosts or, once they are reset, on the same.
	UpgradeStepReplace UpgradeStepChange = "Replace"
	// UpgradeStepUpdate changes objects in place; no Machine and no host is replaced.
	UpgradeStepUpdate UpgradeStepChange = "Update"
)

// UpgradeStepMachines are the Machines that a step replaces.
type UpgradeStepMachines struct {
	// count of them.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// hosts of the first three, by name: "namespace/name" of a QuoinHost, "Machine name" where a Machine has none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	Hosts []string `json:"hosts,omitempty"`
}

// UpgradeHoldType is what holds.
// +kubebuilder:validation:Enum=Approval;Pause;Window;Order;Version;OnDelete
type UpgradeHoldType string

const (
	// UpgradeHoldApproval waits until a person approves the plan.
	UpgradeHoldApproval UpgradeHoldType = "Approval"
	// UpgradeHoldPause waits until a person takes a pause off, or continues after a Machine.
	UpgradeHoldPause UpgradeHoldType = "Pause"
	// UpgradeHoldWindow replaces Machines in the windows of a RolloutPolicy alone.
	UpgradeHoldWindow UpgradeHoldType = "Window"
	// UpgradeHoldOrder replaces the Machines of other MachineDeployments first, by the groups of a RolloutPolicy.
	UpgradeHoldOrder UpgradeHoldType = "Order"
	// UpgradeHoldVersion has other parts of the Cluster get their versions first, by the rule that the message names.
	UpgradeHoldVersion UpgradeHoldType = "Version"
	// UpgradeHoldOnDelete waits until somebody deletes each Machine that is to be replaced.
	UpgradeHoldOnDelete UpgradeHoldType = "OnDelete"
)

// UpgradeHold is what holds a step, or every step, until something is so.
type UpgradeHold struct {
	// type is what holds.
	// +required
	Type UpgradeHoldType `json:"type,omitempty"`

	// message names whose rule it is, and until when it holds.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// UpgradeStep is one step of an upgrade.
type UpgradeStep struct {
	// type is what the step is about.
	// +required
	Type UpgradeStepType `json:"type,omitempty"`

	// object that the step is about, for people: "MachineDeployment blue".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Object string `json:"object,omitempty"`

	// from are the versions that ran when the step was planned, the oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	From []string `json:"from,omitempty"`

	// to is the version that the object gets.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	To string `json:"to,omitempty"`

	// why the step is where it is, with the rule.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`

	// change says how the object gets the version; unset where nothing of the Cluster is changed, and of a control plane
	// that is hosted, which has no Machines.
	// +optional
	Change UpgradeStepChange `json:"change,omitempty"`

	// machines that the step replaces, as they are until it begins. Another host makes no other plan.
	// +optional
	Machines *UpgradeStepMachines `json:"machines,omitempty"`

	// holds are what is known to hold the step until something is so, besides the holds of the plan. Some may hold
	// nothing when it comes to that, such as an order of what nothing is outdated of by then.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Holds []UpgradeHold `json:"holds,omitempty"`

	// state is how far the step is.
	// +required
	State UpgradeStepState `json:"state,omitempty"`

	// startTime is when the step began.
	// +optional
	StartTime metav1.Time `json:"startTime,omitempty,omitzero"`

	// completionTime is when the step was done.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitempty,omitzero"`

	// estimatedSeconds is how long the last such step of this Cluster took. Where it never had one, it is what the last
	// step of this type took in a Cluster of the namespace, by the number of Machines; unset when there was none either.
	// +optional
	// +kubebuilder:validation:Minimum=0
	EstimatedSeconds *int32 `json:"estimatedSeconds,omitempty"`

	// message says what the step waits for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}
