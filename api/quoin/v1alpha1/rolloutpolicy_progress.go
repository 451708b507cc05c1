// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutPace is how fast new Machines of a MachineDeployment came of late, and what that lets one expect. It is
// measured from the admission until the Machine is healthy, without its soak. One that took longer than its deadline
// is left out. What a window has to hold is that, the soak, and the drain of the Machine that is replaced.
type RolloutPace struct {
	// lastMachineSeconds is how long the latest new Machine took from its admission until it was healthy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LastMachineSeconds *int32 `json:"lastMachineSeconds,omitempty"`

	// medianMachineSeconds is the median of recentMachineSeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MedianMachineSeconds *int32 `json:"medianMachineSeconds,omitempty"`

	// recentMachineSeconds is how long the latest new Machines took, the last one at the end.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Minimum=0
	RecentMachineSeconds []int32 `json:"recentMachineSeconds,omitempty"`

	// recentDrainSeconds is how long the latest Machines took to be drained, until their hosts could be given up, the last
	// one at the end. A drain that was given up, or took longer than its timeoutSeconds, is left out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Minimum=0
	RecentDrainSeconds []int32 `json:"recentDrainSeconds,omitempty"`

	// expectedEnd is when its rollout will be done if its Machines take as long as they took of late and nobody is waited
	// for; unset while nothing is replaced, while somebody is waited for or a Machine takes longer than any did of late,
	// and before anything was measured.
	// +optional
	ExpectedEnd *metav1.Time `json:"expectedEnd,omitempty"`
}

// RolloutTotals count the Machines of several MachineDeployments.
type RolloutTotals struct {
	// total is the number of Machines that are done, in flight, or to be replaced.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Total *int32 `json:"total,omitempty"`

	// done is the number of new Machines that count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Done *int32 `json:"done,omitempty"`

	// inFlight is the number of new Machines that were admitted and do not count yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InFlight *int32 `json:"inFlight,omitempty"`

	// held is the number of new Machines that may not claim a host yet. They are not among the total.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held *int32 `json:"held,omitempty"`
}

// RolloutGroupProgress is how far the MachineDeployments of one group are together.
type RolloutGroupProgress struct {
	// name of the group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	RolloutTotals `json:",inline"`
}
