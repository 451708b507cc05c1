// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// RolloutAdmittedAnnotation on a Machine says that its QuoinMachine may claim a host: the time of the admission and
	// the UID of the Machine, so that a template cannot admit what is made of it.
	RolloutAdmittedAnnotation = "quoin.cluster.x-k8s.io/rollout-admitted"
	// MachineRolloutValidatedCondition is the readiness gate of a Machine that a RolloutPolicy admitted: the Machine is
	// not Available before it is True, so that Cluster API deletes no Machine in exchange for it. The gate is taken off
	// then.
	MachineRolloutValidatedCondition = "quoin.cluster.x-k8s.io/RolloutValidated"
)

// Condition types and reasons of a RolloutPolicy.
const (
	// RolloutPolicyProgressingCondition is True while Machines are replaced, and False while there is nothing to replace
	// or something has to be done first, which its message says.
	RolloutPolicyProgressingCondition = "Progressing"
	// RolloutPolicyStalledCondition is True when a new Machine does not count for spec.deadlineSeconds, or waits as long
	// for the room of one that is broken, when a Cluster was not validated in time, or a Machine not drained, when a write
	// to one is refused, and when no window is as long as a Machine takes. The rollout goes on as soon as it can.
	RolloutPolicyStalledCondition = "Stalled"
	// RolloutPolicyPausedCondition is True while the Cluster or the RolloutPolicy is paused: nothing but that is written.
	RolloutPolicyPausedCondition = clusterv1.PausedCondition

	// RollingOutReason: Machines are replaced.
	RollingOutReason = "RollingOut"
	// UpToDateReason: there is nothing to replace.
	UpToDateReason = "UpToDate"
	// HeldReason: nothing is replaced until what the message says is so.
	HeldReason = "Held"
	// AnotherPolicyReason: another RolloutPolicy of the Cluster was made earlier, and holds alone.
	AnotherPolicyReason = "AnotherPolicy"
	// WillNotFitReason: a Machine takes longer than any window is open.
	WillNotFitReason = "WillNotFit"
	// ValidationFailedReason: a Cluster was not validated within spec.validation.timeoutSeconds.
	ValidationFailedReason = "ValidationFailed"
	// WriteRefusedReason: the API server, or an admission that it asked, refuses what is to be written of a Machine.
	WriteRefusedReason = "WriteRefused"
	// SelectorInvalidReason: a label selector of the RolloutPolicy cannot be read.
	SelectorInvalidReason = "SelectorInvalid"
)

// RolloutPause says after which new Machines a rollout waits for a person.
// +kubebuilder:validation:Enum=None;Canary;EachMachine
type RolloutPause string

const (
	// RolloutPauseNone waits for nobody.
	RolloutPauseNone RolloutPause = "None"
	// RolloutPauseCanary waits after the first new Machine of each MachineDeployment.
	RolloutPauseCanary RolloutPause = "Canary"
	// RolloutPauseEachMachine waits after every new Machine, and has one made at a time.
	RolloutPauseEachMachine RolloutPause = "EachMachine"
)

// RolloutStrategy is how Machines of a MachineDeployment are replaced.
// +kubebuilder:validation:XValidation:rule="!has(self.maxSurge) || !has(self.maxUnavailable) || !(self.maxSurge == 0 || self.maxSurge == '0%') || self.maxUnavailable != 0",message="maxSurge and maxUnavailable cannot both be 0, or nothing could ever be replaced: give one of them a number above 0"
// +kubebuilder:validation:XValidation:rule="!has(self.maxSurge) || type(self.maxSurge) == string || self.maxSurge >= 0",message="maxSurge cannot be negative: give a number from 0 on, or a percentage such as 25%"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || type(self.maxUnavailable) == string || self.maxUnavailable >= 0",message="maxUnavailable cannot be negative: give a number from 0 on, or a percentage such as 25%"
// +kubebuilder:validation:XValidation:rule="!has(self.minAvailable) || self.minAvailable != '100%' || !has(self.maxSurge) || !(self.maxSurge == 0 || self.maxSurge == '0%')",message="minAvailable 100% leaves no Machine to replace where maxSurge is 0: lower it, or give maxSurge a number above 0"
type RolloutStrategy struct {
	RolloutVictims `json:",inline"`

	// maxSurge is how many Machines there may be above replicas; percentages are rounded up. The MachineDeployment's own
	// limit counts where that is lower. Unset together with maxUnavailable, it alone counts; 1 when only that is set.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,3})%$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many Machines may be missing from replicas; percentages are rounded down, and are at least 1.
	// The MachineDeployment's own limit counts where that is lower. Unset, it is 1 where maxSurge is 0, and else 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,3})%$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// drainAndTerminate false has the Nodes of outdated Machines tainted and new Machines made up to maxSurge, and nothing
	// drained or terminated.
	// +optional
	DrainAndTerminate *bool `json:"drainAndTerminate,omitempty"`
}

// RolloutSelector names MachineDeployments of the Cluster.
// +kubebuilder:validation:MinProperties=1
type RolloutSelector struct {
	// names of MachineDeployments.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// labels select MachineDeployments by their labels, beside those that names lists.
	// +optional
	Labels *metav1.LabelSelector `json:"labels,omitempty"`
}

// RolloutGroup is MachineDeployments that are rolled out one after another, in alphabetical order, or so many at once.
type RolloutGroup struct {
	// name of the group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// machineDeployments of the group. One that several groups select belongs to the first of them.
	// +required
	MachineDeployments RolloutSelector `json:"machineDeployments,omitempty,omitzero"`

	// suspend leaves the group as it is: while Machines of it are outdated no new one claims a host. What takes the place
	// of a lost Machine, or is added, where none is outdated, does. Later groups do not wait for it, but a
	// managed topology may, whose topology.cluster.x-k8s.io/upgrade-concurrency it counts for.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// concurrency is how many MachineDeployments of the group are rolled out at once, of those that the policy's lets go;
	// as many as that when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Concurrency *int32 `json:"concurrency,omitempty"`

	// pauseAfter of the group; that of the policy when unset.
	// +optional
	PauseAfter RolloutPause `json:"pauseAfter,omitempty"`

	// soakSeconds of the group; those of the policy when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`

	// onFailure of the group; that of the policy when unset.
	// +optional
	OnFailure RolloutFailure `json:"onFailure,omitempty"`

	// strategy of the group. Each field of it that is unset is that of the policy's strategy.
	// +optional
	Strategy *RolloutStrategy `json:"strategy,omitempty"`

	// validation of the group; that of the policy when unset. A successThreshold of 0 does without.
	// +optional
	Validation *RolloutValidation `json:"validation,omitempty"`

	// drain of the group; that of the policy when unset.
	// +optional
	Drain *RolloutDrain `json:"drain,omitempty"`
}

// RolloutPolicySpec says how workers of a Cluster are replaced. A control plane has a strategy of its own and inherits
// nothing of this.
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName",message="clusterName never changes: delete this RolloutPolicy, which holds nothing any more then, and make another one"
type RolloutPolicySpec struct {
	// clusterName is the Cluster, of the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// groups of MachineDeployments in the order in which they are rolled out. MachineDeployments that no group selects are
	// replaced as if there were no policy. Without groups the policy is for all of them, in alphabetical order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Groups []RolloutGroup `json:"groups,omitempty"`

	// concurrency is how many MachineDeployments are rolled out at once, each with a canary of its own.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Concurrency *int32 `json:"concurrency,omitempty"`

	// windows are the times in which Machines may be replaced; any time when unset. Outside of them no new Machine of a
	// rollout claims a host, and none counts, so that no other is deleted in exchange for it. They are for the Cluster's
	// QuoinControlPlane too, of which no Machine's replacement begins outside of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Windows []RolloutWindow `json:"windows,omitempty"`

	// pauseAfter says after which new Machines a rollout waits until continueAfter names the Machine.
	// +optional
	// +kubebuilder:default=None
	PauseAfter RolloutPause `json:"pauseAfter,omitempty"`

	// continueAfter is the Machine after which a rollout that waits goes on, as status.pausedAfter names it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ContinueAfter string `json:"continueAfter,omitempty"`

	// soakSeconds is how long a new Machine must be healthy without a break before it counts.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`

	// deadlineSeconds is how long a new Machine may take from its admission until it counts besides its soak, before
	// condition Stalled names it. The rollout goes on all the same when it does.
	// +optional
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	DeadlineSeconds *int32 `json:"deadlineSeconds,omitempty"`

	// onFailure says what becomes of a template of which no Machine counts deadlineSeconds after the first one got a host,
	// or with whose first Machine the Cluster is not validated in time: the rollout stops, or the template whose rollout
	// was completed last is restored. That is not done under a managed topology, nor against somebody who applies the
	// fields.
	// +optional
	// +kubebuilder:default=Stop
	OnFailure RolloutFailure `json:"onFailure,omitempty"`

	// strategy of every group, but for the fields that it sets in a strategy of its own.
	// +optional
	Strategy *RolloutStrategy `json:"strategy,omitempty"`

	// validation looks at the Cluster before a rollout begins and before each new Machine counts. Unset, the conditions of
	// the Machine alone say whether it counts.
	// +optional
	Validation *RolloutValidation `json:"validation,omitempty"`

	// whenNoSpare says what is done when a new Machine finds no free host: Wait for one, or RemoveFirst, which consents to
	// one Machine missing from a MachineDeployment at a time.
	// +optional
	// +kubebuilder:default=Wait
	WhenNoSpare RolloutWithoutSpare `json:"whenNoSpare,omitempty"`

	// drain of every group that has none of its own. Unset, Machines leave as Cluster API lets them.
	// +optional
	Drain *RolloutDrain `json:"drain,omitempty"`
}

// RolloutPolicyStatus is how far rollouts are.
// +kubebuilder:validation:MinProperties=1
type RolloutPolicyStatus struct {
	// conditions of the RolloutPolicy.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// pausedAfter is the new Machine that waits for spec.continueAfter to name it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PausedAfter string `json:"pausedAfter,omitempty"`

	// progress is how many of all Machines are done: "4/9".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Progress string `json:"progress,omitempty"`

	// totals of all Machines; unset where there are none.
	// +optional
	Totals *RolloutTotals `json:"totals,omitempty"`

	// groups of the policy that select something, in their order, with their totals; unset where the policy has none. What
	// each waits for its MachineDeployments say.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Groups []RolloutGroupProgress `json:"groups,omitempty"`

	// expectedEnd is when all of it will be done, by what was measured; unset where that of a MachineDeployment that is to
	// be replaced is not known.
	// +optional
	ExpectedEnd *metav1.Time `json:"expectedEnd,omitempty"`

	// machineDeployments that the policy selects, in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	MachineDeployments []RolloutProgress `json:"machineDeployments,omitempty"`

	// validation is what the last looks found; unset where there were none.
	// +optional
	Validation *RolloutValidationStatus `json:"validation,omitempty"`
}

// RolloutProgress is how far one MachineDeployment is.
type RolloutProgress struct {
	// name of the MachineDeployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// group that it belongs to; unset when the policy has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Group string `json:"group,omitempty"`

	// outdated is the number of its Machines that are to be replaced.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Outdated *int32 `json:"outdated,omitempty"`

	// held is the number of new Machines that may not claim a host yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held *int32 `json:"held,omitempty"`

	// inFlight is the number of new Machines that were admitted and do not count yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InFlight *int32 `json:"inFlight,omitempty"`

	// done is the number of new Machines that count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Done *int32 `json:"done,omitempty"`

	// maxSurge in force: the lower of the policy's and the MachineDeployment's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxSurge *int32 `json:"maxSurge,omitempty"`

	// maxUnavailable in force: the lower of the policy's and the MachineDeployment's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`

	// completed is the MachineSet whose rollout was done last: Machines that are added to it later need no order.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Completed string `json:"completed,omitempty"`

	// selected is a Machine that was marked with quoin.cluster.x-k8s.io/needs-update and deleted, until what takes its
	// place counts.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Selected string `json:"selected,omitempty"`

	// doneOf is the number of its Machines that count when the present template, or what takes the place of the selected
	// ones, is done where others find no host: those of a scale-up meanwhile are none of them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DoneOf *int32 `json:"doneOf,omitempty"`

	// lastTermination is when a Machine of it was terminated last, after which the next one waits for
	// spec.drain.intervalSeconds.
	// +optional
	LastTermination metav1.Time `json:"lastTermination,omitempty,omitzero"`

	RolloutPace   `json:",inline"`
	RolloutRecord `json:",inline"`

	// reason why it is where it is, in one word.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// since when that is its reason, whatever its message is.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// reasonBeforePause is the reason that it had when the policy or its Cluster was paused, or it was suspended, by which
	// its place in the order is known when it goes on; unset while none of that is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ReasonBeforePause string `json:"reasonBeforePause,omitempty"`

	// message says what is waited for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// RolloutPolicy says in which order and how carefully the workers of a Cluster are replaced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rolloutpolicies,shortName=qrp,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Cluster whose workers are replaced"
// +kubebuilder:printcolumn:name="Progress",type="string",JSONPath=`.status.progress`,description="Machines that are done, of all"
// +kubebuilder:printcolumn:name="In flight",type="integer",JSONPath=`.status.totals.inFlight`,description="New Machines that were admitted and do not count yet"
// +kubebuilder:printcolumn:name="Held",type="integer",JSONPath=`.status.totals.held`,description="New Machines that may not claim a host yet"
// +kubebuilder:printcolumn:name="Expected end",type="string",JSONPath=".status.expectedEnd",description="When all of it will be done, by what was measured"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`,description="What goes on"
// +kubebuilder:printcolumn:name="Paused after",type="string",JSONPath=".status.pausedAfter",description="Machine that waits for spec.continueAfter"
// +kubebuilder:printcolumn:name="Stalled",type="string",JSONPath=`.status.conditions[?(@.type=="Stalled")].status`,description="A new Machine takes longer than its deadline"
// +kubebuilder:printcolumn:name="Message",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,description="What is waited for"
// +kubebuilder:printcolumn:name="Paused",type="string",priority=10,JSONPath=`.status.conditions[?(@.type=="Paused")].status`,description="Nothing but the status is written while paused"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type RolloutPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how workers are replaced.
	// +required
	Spec RolloutPolicySpec `json:"spec,omitempty,omitzero"`
	// status is how far rollouts are.
	// +optional
	Status RolloutPolicyStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the RolloutPolicy.
func (p *RolloutPolicy) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions sets the conditions of the RolloutPolicy.
func (p *RolloutPolicy) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// RolloutPolicyList is a list of RolloutPolicies.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	// +required
	Items []RolloutPolicy `json:"items"`
}

func init() {
	objectTypes = append(objectTypes, &RolloutPolicy{}, &RolloutPolicyList{})
}
