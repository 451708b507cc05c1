// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolledBackAnnotation on a MachineDeployment says that its template failed and the one before was restored: the time,
// digests of both, and what failed. It is written together with the template, and taken off when another one than that
// which was restored is completed.
const RolledBackAnnotation = "quoin.cluster.x-k8s.io/rolled-back"

const (
	// RolloutPolicyRolledBackCondition is True while a MachineDeployment has the template that was restored after
	// another one failed, and False otherwise.
	RolloutPolicyRolledBackCondition = "RolledBack"

	// RolledBackReason says that a former template was restored.
	RolledBackReason = "RolledBack"
	// RollbackRefusedReason says that a former template should be restored and must not be; the message says why, and
	// what to do.
	RollbackRefusedReason = "RollbackRefused"
	// NothingRolledBackReason says that every MachineDeployment has the template that somebody gave it.
	NothingRolledBackReason = "NothingRolledBack"
)

// RolloutFailure is what becomes of a template whose first Machine fails.
// +kubebuilder:validation:Enum=Stop;Rollback
type RolloutFailure string

const (
	// RolloutFailureStop leaves everything as it is for a person.
	RolloutFailureStop RolloutFailure = "Stop"
	// RolloutFailureRollback restores the template whose rollout was completed last.
	RolloutFailureRollback RolloutFailure = "Rollback"
)

// RolloutRecord is what is kept of a MachineDeployment to go back.
type RolloutRecord struct {
	// recorded is the ControllerRevision with the template of the MachineSet of the same name, whose rollout was done.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Recorded string `json:"recorded,omitempty"`

	// trial is of the present template while no Machine of it counts or is proved.
	// +optional
	Trial RolloutTrial `json:"trial,omitempty,omitzero"`

	// proved are new Machines that were healthy for their soak, against which validation found nothing, and that do not
	// count yet: a person or a window is waited for, or they are not healthy any more.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Proved []RolloutProvedMachine `json:"proved,omitempty"`
}

// RolloutProvedMachine is a new Machine that was proved and does not count yet.
type RolloutProvedMachine struct {
	// name of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// since is when it was proved first.
	// +required
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// lost is when it ceased to be healthy, from which its deadline counts; unset while it is proved.
	// +optional
	Lost metav1.Time `json:"lost,omitempty,omitzero"`
}

// RolloutTrial is a template that is being tried, or that works: a Machine of it counted. Then it has a machineSet
// alone, and is not set back.
type RolloutTrial struct {
	// machineSet of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MachineSet string `json:"machineSet,omitempty"`

	// since a Machine of it had a host; absent while the first host fails, and once one of its Machines counted.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// host that failed first, as namespace/name, or its Machine where that is not known: that says nothing about the
	// template unless another host fails too.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Host string `json:"host,omitempty"`

	// failed is the Machine that failed on that host last; absent once another host was tried.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Failed string `json:"failed,omitempty"`
}
