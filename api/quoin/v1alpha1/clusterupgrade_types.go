// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Annotations of a ClusterUpgrade. They are written by its controller, and not kept in the status because clusterctl
// move drops that.
const (
	// ClusterUpgradeBegunAnnotation has the time at which the preflight had passed, right before anything was touched,
	// and the name and version of the ClusterUpgrade that this was for.
	ClusterUpgradeBegunAnnotation = "quoin.cluster.x-k8s.io/upgrade-begun"
	// ClusterUpgradeCompletedAnnotation has the same of when everything was done: such a ClusterUpgrade does nothing
	// more.
	ClusterUpgradeCompletedAnnotation = "quoin.cluster.x-k8s.io/upgrade-completed"
)

// Condition types and reasons of a ClusterUpgrade.
const (
	// ClusterUpgradePlannedCondition is True when the way to the version is known; its message is the plan.
	ClusterUpgradePlannedCondition = "Planned"
	// ClusterUpgradeApprovedCondition is True when the plan may be carried out.
	ClusterUpgradeApprovedCondition = "Approved"
	// ClusterUpgradeProgressingCondition is True while a step is carried out, and False while nothing goes on until
	// somebody does what its message says.
	ClusterUpgradeProgressingCondition = "Progressing"
	// ClusterUpgradeCompletedCondition is True when all steps are done and the Cluster was found healthy after them.
	ClusterUpgradeCompletedCondition = "Completed"
	// ClusterUpgradeStalledCondition is True when spec.deadlineSeconds went by before the beginning, or from then before
	// the end. The upgrade goes on as soon as it can.
	ClusterUpgradeStalledCondition = "Stalled"
	// ClusterUpgradeStagedCondition is True when every free host that the next Machines would claim has what they are made
	// of. Nothing waits for it. Absent when nothing can be staged.
	ClusterUpgradeStagedCondition = "Staged"
	// ClusterUpgradePausedCondition is True while the Cluster or the ClusterUpgrade is paused: nothing is written then.
	ClusterUpgradePausedCondition = clusterv1.PausedCondition

	// PlannedReason: the way to the version is known.
	PlannedReason = "Planned"
	// StagedReason: the free hosts have what comes next.
	StagedReason = "Staged"
	// StagingReason: what comes next is being brought to free hosts.
	StagingReason = "Staging"
	// StagingFailedReason: a free host could not get what comes next; the message says why.
	StagingFailedReason = "StagingFailed"
	// NoFreeHostReason: no host is free for the next Machines.
	NoFreeHostReason = "NoFreeHost"
	// NoPlanReason: no legal way leads to the version; the message has the rule.
	NoPlanReason = "NoPlan"
	// HopsUnknownReason: the way leads over minors of which nobody said which patch to take.
	HopsUnknownReason = "HopsUnknown"
	// AutomaticReason: no person has to approve.
	AutomaticReason = "Automatic"
	// ApprovedReason: spec.approvedPlan is the plan.
	ApprovedReason = "Approved"
	// ApprovalRequiredReason: the plan waits until spec.approvedPlan has its id.
	ApprovalRequiredReason = "ApprovalRequired"
	// AnotherUpgradeReason: another ClusterUpgrade of the Cluster comes first.
	AnotherUpgradeReason = "AnotherUpgrade"
	// AddonsHeldReason: add-ons wait for kubelets that are too old for them, and that no pool has.
	AddonsHeldReason = "AddonsHeld"
	// RevertedReason: somebody set a version back that had been written; the message says who owns the field.
	RevertedReason = "Reverted"
	// AheadReason: a version is later than the plan has it, and none is ever lowered.
	AheadReason = "Ahead"
	// RefusedReason: an API server or a webhook did not take what was to be written; the message says why.
	RefusedReason = "Refused"
	// NotReadReason: something that the upgrade rests on may not be read, or is not there.
	NotReadReason = "NotRead"
	// ClusterDeletingReason: the Cluster is being deleted.
	ClusterDeletingReason = "ClusterDeleting"
	// UnhealthyReason: all have the version, and the Cluster is not healthy.
	UnhealthyReason = "Unhealthy"
	// DeadlineExceededReason: spec.deadlineSeconds went by.
	DeadlineExceededReason = "DeadlineExceeded"
	// OnTimeReason: spec.deadlineSeconds did not go by yet.
	OnTimeReason = "OnTime"
	// PausedReason: the Cluster is paused, or the ClusterUpgrade or the RolloutPolicy.
	PausedReason = clusterv1.PausedReason
	// NotPausedReason: neither the Cluster nor the ClusterUpgrade is paused.
	NotPausedReason = clusterv1.NotPausedReason
)

// UpgradeWorkers says which workers get the version.
// +kubebuilder:validation:Enum=All;AsNeeded
type UpgradeWorkers string

const (
	// UpgradeWorkersAll raises every MachineDeployment of the Cluster.
	UpgradeWorkersAll UpgradeWorkers = "All"
	// UpgradeWorkersAsNeeded raises a MachineDeployment only where its kubelets would become too old.
	UpgradeWorkersAsNeeded UpgradeWorkers = "AsNeeded"
)

// UpgradeApproval says whether a person has to approve the plan.
// +kubebuilder:validation:Enum=Auto;Manual
type UpgradeApproval string

const (
	// UpgradeApprovalAuto carries the plan out as soon as the preflight passed.
	UpgradeApprovalAuto UpgradeApproval = "Auto"
	// UpgradeApprovalManual waits until spec.approvedPlan has the id of the plan.
	UpgradeApprovalManual UpgradeApproval = "Manual"
)

// ClusterUpgradeSpec says which upgrade is wanted.
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName && self.version == oldSelf.version",message="clusterName and version never change: delete this ClusterUpgrade, which undoes nothing, and make another one"
type ClusterUpgradeSpec struct {
	// clusterName is the Cluster, of the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// version of Kubernetes that the Cluster is to get, with a leading v.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+].*)?$`
	Version string `json:"version,omitempty"`

	// via lists a version of each minor that lies between, where there are some: a control plane goes one minor at a time,
	// and nobody else knows which patches have artifacts. There is no plan for a managed topology that has some: its
	// versions are those of its ClusterClass.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+].*)?$`
	Via []string `json:"via,omitempty"`

	// workers says which MachineDeployments get the version. A managed topology raises all of them.
	// +optional
	// +kubebuilder:default=All
	Workers UpgradeWorkers `json:"workers,omitempty"`

	// approve says whether a person has to approve the plan before anything is touched.
	// +optional
	// +kubebuilder:default=Auto
	Approve UpgradeApproval `json:"approve,omitempty"`

	// approvedPlan is the id of the plan that a person approved, as status.plan has it. Another plan, which comes of a
	// world that changed, has another id.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ApprovedPlan string `json:"approvedPlan,omitempty"`

	// paused keeps the upgrade from writing anything. What Machines are being replaced goes on.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// deadlineSeconds is how long it may take until the upgrade begins, and from then until it ends, before condition
	// Stalled tells that it takes longer. The upgrade goes on all the same. While one that has not begun is paused its
	// lateness is not told, and the time in which windows of the RolloutPolicy are closed is none of one that has begun.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	DeadlineSeconds *int32 `json:"deadlineSeconds,omitempty"`

	// skip lists checks that are not made before the upgrade, nor after it, each with why that is right.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Skip []SkippedCheck `json:"skip,omitempty"`
}

// UpgradePlan is the way to the version.
type UpgradePlan struct {
	// id of the plan; another plan has another one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`

	// hops are the versions that the control plane gets, one after another.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Hops []string `json:"hops,omitempty"`

	// advice is what would be better and is not necessary.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Advice []string `json:"advice,omitempty"`

	// holds are what holds the steps that are left: all of them, or of a window those that replace Machines of a
	// QuoinControlPlane or of what the RolloutPolicy selects. They may change without another plan.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Holds []UpgradeHold `json:"holds,omitempty"`

	// changed says what is other than in the plan before this one; empty of the first.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Changed string `json:"changed,omitempty"`
}

// ClusterUpgradeStatus is how far the upgrade is.
// +kubebuilder:validation:MinProperties=1
type ClusterUpgradeStatus struct {
	// conditions of the ClusterUpgrade.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// plan that is carried out.
	// +optional
	Plan *UpgradePlan `json:"plan,omitempty"`

	// step that the upgrade is at, of how many: "4/9 ControlPlane".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Step string `json:"step,omitempty"`

	// steps in their order. Those of an earlier plan that were done stay, the last 500 of them. Of a plan with more than
	// 1000 steps those are listed that come next, and another plan lists others when they are done.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2000
	Steps []UpgradeStep `json:"steps,omitempty"`

	// preflightCheck is the name of the last PreflightCheck that was made.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PreflightCheck string `json:"preflightCheck,omitempty"`

	// controlPlaneVersions counts the Nodes of the control plane by what they run. Of one that is hosted, which
	// has none, each version that it tells counts once.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	ControlPlaneVersions []clusterv1.StatusVersion `json:"controlPlaneVersions,omitempty"`

	// addonsVersion is the version whose add-ons were applied last.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	AddonsVersion string `json:"addonsVersion,omitempty"`

	// versions counts all Nodes that have Machines by what they run.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`

	// version that the Cluster reached; set at the end.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// startTime is when the preflight had passed and the first thing was about to be touched.
	// +optional
	StartTime metav1.Time `json:"startTime,omitempty,omitzero"`

	// completionTime is when all steps were done.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitempty,omitzero"`
}

// ClusterUpgrade brings a Cluster to another version of Kubernetes: it plans, has the Cluster looked at, sets one
// version after another, and looks again.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterupgrades,shortName=qcu,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 200",message="a name has at most 200 characters: those of its PreflightChecks begin with it"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Cluster that is upgraded"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Version that it is to get"
// +kubebuilder:printcolumn:name="Step",type="string",JSONPath=".status.step",description="Step that the upgrade is at"
// +kubebuilder:printcolumn:name="Progress",type="string",JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`,description="What it does or waits for"
// +kubebuilder:printcolumn:name="Completed",type="string",JSONPath=`.status.conditions[?(@.type=="Completed")].status`,description="All steps are done"
// +kubebuilder:printcolumn:name="Stalled",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Stalled")].status`,description="It takes longer than its deadline"
// +kubebuilder:printcolumn:name="Staged",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Staged")].status`,description="The next hosts have what comes next"
// +kubebuilder:printcolumn:name="Message",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,description="What it does or waits for"
// +kubebuilder:printcolumn:name="Paused",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Nothing is written while paused"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type ClusterUpgrade struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which upgrade is wanted.
	// +required
	Spec ClusterUpgradeSpec `json:"spec,omitempty,omitzero"`
	// status is how far the upgrade is.
	// +optional
	Status ClusterUpgradeStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the ClusterUpgrade.
func (u *ClusterUpgrade) GetConditions() []metav1.Condition { return u.Status.Conditions }

// SetConditions sets the conditions of the ClusterUpgrade.
func (u *ClusterUpgrade) SetConditions(conditions []metav1.Condition) {
	u.Status.Conditions = conditions
}

// ClusterUpgradeList is a list of ClusterUpgrades.
//
// +kubebuilder:object:root=true
type ClusterUpgradeList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	// +required
	Items []ClusterUpgrade `json:"items"`
}

func init() {
	objectTypes = append(objectTypes, &ClusterUpgrade{}, &ClusterUpgradeList{})
}
