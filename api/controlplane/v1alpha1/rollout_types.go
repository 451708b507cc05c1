// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RolloutStrategyType says in which order a Machine and its replacement come and go.
// +kubebuilder:validation:Enum=Auto;Surge;RemoveFirst
type RolloutStrategyType string

const (
	// RolloutStrategyAuto is Surge while a matching host is free, else RemoveFirst where the quorum allows it, else it
	// waits and says which hosts are missing.
	RolloutStrategyAuto RolloutStrategyType = "Auto"
	// RolloutStrategySurge lets a replacement join, catch up and vote before the old member goes: one host more is needed.
	RolloutStrategySurge RolloutStrategyType = "Surge"
	// RolloutStrategyRemoveFirst lets the old member go first and reuses its host: for three or more members without a
	// spare host. Meanwhile one failure less is tolerated.
	RolloutStrategyRemoveFirst RolloutStrategyType = "RemoveFirst"
)

// QuoinControlPlaneRollout says how Machines are replaced when the spec changes.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneRollout struct {
	// strategy says in which order a Machine and its replacement come and go; Auto when unset. There is never more than
	// one Machine in flight.
	// +optional
	Strategy RolloutStrategyType `json:"strategy,omitempty"`

	// after: Machines made before this time are replaced once it has passed, although nothing else changed.
	// +optional
	After metav1.Time `json:"after,omitempty,omitzero"`

	// before replaces Machines before something runs out.
	// +optional
	Before QuoinControlPlaneRolloutBefore `json:"before,omitempty,omitzero"`

	// progressDeadlineSeconds is how long one step of a rollout may take until the Progressing condition turns False; the
	// rollout goes on all the same. 1800 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
}

// QuoinControlPlaneRolloutBefore replaces Machines before something runs out.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneRolloutBefore struct {
	// certificatesExpiryDays: Machines whose certificates expire within so many days are replaced. Never when unset.
	// +optional
	// +kubebuilder:validation:Minimum=7
	// +kubebuilder:validation:Maximum=360
	CertificatesExpiryDays *int32 `json:"certificatesExpiryDays,omitempty"`
}

// QuoinControlPlaneRemediation says how often unhealthy Machines are replaced. Fields and meaning are those of
// KubeadmControlPlane.
// +kubebuilder:validation:MinProperties=1
type QuoinControlPlaneRemediation struct {
	// maxRetry is how often a replacement that turns out unhealthy itself is replaced; without limit when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRetry *int32 `json:"maxRetry,omitempty"`

	// retryPeriodSeconds is the time between two retries; none when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetryPeriodSeconds *int32 `json:"retryPeriodSeconds,omitempty"`

	// minHealthyPeriodSeconds after a remediation a failure is a new one and no retry; 3600 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinHealthyPeriodSeconds *int32 `json:"minHealthyPeriodSeconds,omitempty"`
}

// OperationType is what a control plane is doing.
// +kubebuilder:validation:Enum=Initialize;ScaleUp;ScaleDown;Rollout;Remediate;Repair;Depart;Backup;Recover;Delete
type OperationType string

const (
	// OperationInitialize makes the first Machine.
	OperationInitialize OperationType = "Initialize"
	// OperationScaleUp makes missing Machines.
	OperationScaleUp OperationType = "ScaleUp"
	// OperationScaleDown removes Machines that are not wanted any more.
	OperationScaleDown OperationType = "ScaleDown"
	// OperationRollout replaces outdated Machines, or brings add-ons and settings up to date.
	OperationRollout OperationType = "Rollout"
	// OperationRemediate replaces an unhealthy Machine.
	OperationRemediate OperationType = "Remediate"
	// OperationRepair clears what a failed join or a lost Machine left in etcd.
	OperationRepair OperationType = "Repair"
	// OperationDepart sees a Machine out that somebody deleted.
	OperationDepart OperationType = "Depart"
	// OperationBackup waits for a snapshot of etcd.
	OperationBackup OperationType = "Backup"
	// OperationRecover restores an etcd that has lost its quorum, at a person's word.
	OperationRecover OperationType = "Recover"
	// OperationDelete deletes the control plane.
	OperationDelete OperationType = "Delete"
)

// ControlPlaneOperation is what a control plane is doing, and what that waits for.
type ControlPlaneOperation struct {
	// type of the operation.
	// +required
	Type OperationType `json:"type,omitempty"`

	// machine that the operation is about; empty when it is about none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// waitingOn names, in a word or two, what has to happen first: a reason such as QuorumAtRisk, and the object that it
	// is about. Empty while the operation moves.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	WaitingOn string `json:"waitingOn,omitempty"`

	// message says in a sentence what is done or awaited, and what a person can do about it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`

	// since is when this step of the operation began.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
}

// ControlPlaneRevision counts the Machines of one revision.
type ControlPlaneRevision struct {
	// name of the revision: the Kubernetes version, a slash, and the name of the infrastructure template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`

	// current tells that the spec asks for this revision.
	// +optional
	Current *bool `json:"current,omitempty"`

	// replicas is the number of Machines of the revision, those that are being deleted included.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of those whose Ready condition is True.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
}

// LastRemediation is the latest replacement of an unhealthy Machine.
type LastRemediation struct {
	// machine that was replaced.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// time at which its replacement began.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`

	// retryCount is how often in a row a replacement was unhealthy itself; 0 for a first one.
	// +required
	// +kubebuilder:validation:Minimum=0
	RetryCount *int32 `json:"retryCount,omitempty"`
}
