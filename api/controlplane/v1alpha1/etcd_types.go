// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdStatus is an etcd membership as last read.
type EtcdStatus struct {
	// members of the cluster, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Members []EtcdMember `json:"members,omitempty"`

	// voters is the number of members that vote.
	// +optional
	Voters *int32 `json:"voters,omitempty"`

	// tolerates is how many more voters may fail now while a quorum stays: healthy voters less the quorum; negative
	// without a quorum.
	// +optional
	Tolerates *int32 `json:"tolerates,omitempty"`

	// leader is the name of the leading member; empty without one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Leader string `json:"leader,omitempty"`

	// agreed tells that a quorum confirmed the list of members; else it is what one member remembers.
	// +optional
	Agreed *bool `json:"agreed,omitempty"`

	// observedTime is when the membership was last read. It is renewed at least once a minute while etcd answers, and what
	// is admitted by it must not be older than a few of these.
	// +optional
	ObservedTime metav1.Time `json:"observedTime,omitempty,omitzero"`
}

// EtcdMember is a member of an etcd cluster.
type EtcdMember struct {
	// name of the member, which is that of its node; the member's id in hexadecimal while it has not started.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// id of the member, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	ID string `json:"id,omitempty"`

	// machine that the member runs on; empty when none is known.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// failureDomain of the Machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	FailureDomain string `json:"failureDomain,omitempty"`

	// role is Leader, Voter or Learner.
	// +optional
	// +kubebuilder:validation:Enum=Leader;Voter;Learner
	Role string `json:"role,omitempty"`

	// state is what the member is worth to etcd, by which everything is decided about it: Learner, which does not vote
	// yet; and of those that vote: Healthy; Full, whose database takes no writes; Unasked, of which nobody could tell
	// whether it works; Slow, which hangs while its disk goes on; Wavering, which was healthy a moment ago and may be
	// back as soon; and Dead, which has not been healthy, or has hung where it is, for so long that nobody counts on it
	// any more.
	// +optional
	// +kubebuilder:validation:Enum=Learner;Healthy;Full;Unasked;Slow;Wavering;Dead
	State string `json:"state,omitempty"`

	// healthy tells that the member answers, sees a leader and raises no alarm.
	// +optional
	Healthy *bool `json:"healthy,omitempty"`

	// problem says why the member is not healthy.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Problem string `json:"problem,omitempty"`

	// silentSince is since when the member has not been healthy, and has come no further, while others agreed; empty when
	// that is not so. It goes on where the manager starts again and reads etcd within five minutes.
	// +optional
	SilentSince metav1.Time `json:"silentSince,omitempty,omitzero"`

	// syncs is how often a member that hangs had written to its disk when it was last seen to come further, by its own
	// count.
	// +optional
	Syncs *int64 `json:"syncs,omitempty"`

	// lag is how many entries of the log the member has not applied yet that the furthest one has.
	// +optional
	Lag *int64 `json:"lag,omitempty"`

	// sizeBytes is the size of the member's database file.
	// +optional
	SizeBytes *int64 `json:"sizeBytes,omitempty"`
}
