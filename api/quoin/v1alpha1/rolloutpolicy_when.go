// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// RolloutPolicyOrderConflictCondition is True while the Cluster's managed topology upgrades MachineDeployments in
	// another order than the policy's. Admission refuses such a policy; the Cluster may be edited later.
	RolloutPolicyOrderConflictCondition = "OrderConflict"

	// NoConflictReason says that the order of the policy is kept.
	NoConflictReason = "NoConflict"
	// TopologyOrderReason says that the topology has another order, and does not let all go at once.
	TopologyOrderReason = "TopologyOrder"
)

// RolloutDay is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type RolloutDay string

// RolloutWindow is a time of the week in which Machines may be replaced.
type RolloutWindow struct {
	// days on which the window opens; every day when unset. One that lasts over midnight is open on the day after as well.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []RolloutDay `json:"days,omitempty"`

	// start is the time of day at which it opens, such as "22:00". Where a change of the clock leaves that time out it
	// opens at the change, and where it comes twice at the first.
	// +required
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start,omitempty"`

	// durationMinutes is how long it stays open, by a clock that is never changed.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10080
	DurationMinutes *int32 `json:"durationMinutes,omitempty"`

	// timeZone of start and days, by its name in the IANA database, such as "Europe/Vienna"; UTC when unset.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}
