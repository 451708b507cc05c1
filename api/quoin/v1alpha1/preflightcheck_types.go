// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// PreflightCheckCompletedAnnotation has the time at which the verdict was reached and the verdict, because clusterctl
// move drops the status, and the name, Cluster and version of the PreflightCheck that this was for.
const PreflightCheckCompletedAnnotation = "quoin.cluster.x-k8s.io/preflight-completed"

// Condition types and reasons of a PreflightCheck.
const (
	// PreflightCheckCompletedCondition is True once every check has its verdict; the verdicts never change after that.
	PreflightCheckCompletedCondition = "Completed"
	// PreflightCheckPassedCondition is True when nothing stands in the way of the version, and False when something does.
	// It is Unknown until the checks are completed.
	PreflightCheckPassedCondition = "Passed"
	// PreflightCheckPausedCondition is True while the Cluster or the PreflightCheck is paused: nothing is looked at then.
	PreflightCheckPausedCondition = clusterv1.PausedCondition

	// CompletedReason: every check has its verdict.
	CompletedReason = "Completed"
	// MovedReason: the checks had their verdict before the PreflightCheck was moved, and only that came along.
	MovedReason = "Moved"
	// RunningReason: the checks are looking.
	RunningReason = "Running"
	// ClusterNotFoundReason: there is no Cluster of that name.
	ClusterNotFoundReason = "ClusterNotFound"
	// WaitingForControlPlaneInitializedReason: nothing runs yet that could be looked at.
	WaitingForControlPlaneInitializedReason = "WaitingForControlPlaneInitialized"
	// PassedReason: no check has anything to say.
	PassedReason = "Passed"
	// PassedWithWarningsReason: nothing stands in the way, and some checks advise something.
	PassedWithWarningsReason = "PassedWithWarnings"
	// BlockedReason: at least one check forbids to begin.
	BlockedReason = "Blocked"
)

// Verdict of a check, or of all of them.
// +kubebuilder:validation:Enum=Pass;Warn;Block;Skipped
type Verdict string

const (
	// VerdictPass means that nothing was found.
	VerdictPass Verdict = "Pass"
	// VerdictWarn means that the upgrade may begin, and that something is better seen to before.
	VerdictWarn Verdict = "Warn"
	// VerdictBlock means that the upgrade must not begin.
	VerdictBlock Verdict = "Block"
	// VerdictSkipped means that the check did not look, because spec.skip names it.
	VerdictSkipped Verdict = "Skipped"
)

// PreflightCheckSpec says which upgrade is asked about. It never changes: whoever wants to know again makes another
// PreflightCheck, and compares.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a PreflightCheck is one look at a Cluster and never changes: make another one"
type PreflightCheckSpec struct {
	// clusterName is the Cluster, of the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// version of Kubernetes that the Cluster is to get, with a leading v.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// via lists a version of each minor that lies between, where there are some and a plan is asked about that goes by
	// these. The versions of a managed topology are those of its ClusterClass.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Via []string `json:"via,omitempty"`

	// workers says which MachineDeployments are to get the version: with AsNeeded, nothing is asked of those that stay
	// where they are. A managed topology raises all of them.
	// +optional
	// +kubebuilder:default=All
	Workers UpgradeWorkers `json:"workers,omitempty"`

	// skip lists checks that are not made, each with why that is right. They are named in the verdict.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Skip []SkippedCheck `json:"skip,omitempty"`
}

// SkippedCheck is a check that is not made.
type SkippedCheck struct {
	// name of the check, as in status.checks.
	// +required
	// +kubebuilder:validation:Enum=Artifacts;Backup;Certificates;Connectivity;ControlPlane;DeprecatedAPIs;Disruption;Etcd;Management;Network;Nodes;Supply;VersionPath;Volumes;Webhooks
	Name string `json:"name,omitempty"`

	// reason why it need not be made, for whoever reads the result later.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// PreflightCheckStatus is what was found.
// +kubebuilder:validation:MinProperties=1
type PreflightCheckStatus struct {
	// conditions of the PreflightCheck.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// verdict of all checks together: the worst of theirs.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`

	// completionTime is when the last check had its verdict.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitempty,omitzero"`

	// checks by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Checks []CheckResult `json:"checks,omitempty"`
}

// CheckResult is what one check found.
type CheckResult struct {
	// name of the check.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name,omitempty"`

	// verdict: the worst of its findings.
	// +required
	Verdict Verdict `json:"verdict,omitempty"`

	// message says what was looked at, or why it was not.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Message string `json:"message,omitempty"`

	// findings, the worst first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Findings []Finding `json:"findings,omitempty"`

	// omitted is how many further findings there are.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Omitted *int32 `json:"omitted,omitempty"`

	// durationMilliseconds is how long the check took.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DurationMilliseconds *int64 `json:"durationMilliseconds,omitempty"`
}

// Finding is one thing that a check found.
type Finding struct {
	// verdict that the finding leads to.
	// +required
	Verdict Verdict `json:"verdict,omitempty"`

	// object that it is about, for people: "Node worker-3".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Object string `json:"object,omitempty"`

	// reason in one word.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says what is wrong.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// fix says what to do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Fix string `json:"fix,omitempty"`
}

// PreflightCheck looks once whether a Cluster could be upgraded to a version now. It changes nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=preflightchecks,shortName=qpc,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Cluster that is looked at"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version",description="Version that it is to get"
// +kubebuilder:printcolumn:name="Verdict",type="string",JSONPath=".status.verdict",description="Pass, Warn or Block"
// +kubebuilder:printcolumn:name="Message",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Passed")].message`,description="What stands in the way"
// +kubebuilder:printcolumn:name="Paused",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Nothing is looked at while paused"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type PreflightCheck struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which upgrade is asked about.
	// +required
	Spec PreflightCheckSpec `json:"spec,omitempty,omitzero"`
	// status is what was found.
	// +optional
	Status PreflightCheckStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the PreflightCheck.
func (c *PreflightCheck) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets the conditions of the PreflightCheck.
func (c *PreflightCheck) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// PreflightCheckList is a list of PreflightChecks.
//
// +kubebuilder:object:root=true
type PreflightCheckList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	// +required
	Items []PreflightCheck `json:"items"`
}

func init() {
	objectTypes = append(objectTypes, &PreflightCheck{}, &PreflightCheckList{})
}
