// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Maintenance says why nothing new is started on a host.
type Maintenance struct {
	// reason in the words of the person who set it; shown wherever something waits for its end.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// DiskRoleName says what may be done to a disk.
// +kubebuilder:validation:Enum=System;Data;Wipe
type DiskRoleName string

const (
	// DiskRoleSystem is a disk that is neither partitioned, formatted nor wiped.
	DiskRoleSystem DiskRoleName = "System"
	// DiskRoleData is a disk whose content outlives every claim: bootstrap data may format it while it is empty, and
	// mounts what it finds later. A reset unmounts it and touches nothing on it.
	DiskRoleData DiskRoleName = "Data"
	// DiskRoleWipe is a disk that belongs to one claim: its signatures are erased at the end.
	DiskRoleWipe DiskRoleName = "Wipe"
)

// DiskRole gives a disk its role.
type DiskRole struct {
	// id of the disk as in status.facts.disks: a WWN, a by-id name or a serial number, never a kernel name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._:+@-]*$`
	ID string `json:"id,omitempty"`

	// role of the disk.
	// +required
	Role DiskRoleName `json:"role,omitempty"`
}

// Cleaning tunes the release of a host.
// +kubebuilder:validation:MinProperties=1
type Cleaning struct {
	// reboot after the reset, and verify once more: what only a boot brings back is then found.
	// +optional
	Reboot *bool `json:"reboot,omitempty"`

	// ignoreChanges lets users, keys, jobs, units and others pass that came or changed since the host was last inspected
	// as a free one: they are named, and no more. When false, they are found after the reset and the host is quarantined.
	// When unset, it is false for a host that other namespaces may claim, and true for others.
	// +optional
	IgnoreChanges *bool `json:"ignoreChanges,omitempty"`
}

// UnreachableRelease says when a claim may end without a reset of its host.
// +kubebuilder:validation:Enum=WhenFenced;AfterTimeout
type UnreachableRelease string

const (
	// UnreachableReleaseWhenFenced waits until the power is confirmed off or a person states that the host is gone.
	UnreachableReleaseWhenFenced UnreachableRelease = "WhenFenced"
	// UnreachableReleaseAfterTimeout lets the Machine go when the time has passed, although the host may still run.
	UnreachableReleaseAfterTimeout UnreachableRelease = "AfterTimeout"
)

// UnreachablePolicy says what becomes of a claim that must end while its host does not answer.
// +kubebuilder:validation:MinProperties=1
type UnreachablePolicy struct {
	// timeoutSeconds without an answer, after which the host counts as dead; 600 when unset. Counted only while a claim
	// must end: a host whose Machine is wanted is never given up for its silence.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// release says when the Machine of a dead host may go; WhenFenced when unset.
	// +optional
	Release UnreachableRelease `json:"release,omitempty"`
}

// OverriddenBy is the policy with what another one says in its place.
func (p UnreachablePolicy) OverriddenBy(other UnreachablePolicy) UnreachablePolicy {
	if other.TimeoutSeconds != nil {
		p.TimeoutSeconds = other.TimeoutSeconds
	}
	if other.Release != "" {
		p.Release = other.Release
	}
	return p
}
