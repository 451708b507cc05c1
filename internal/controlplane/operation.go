// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

// Operation is what a control plane is doing, in the words of its status.
type Operation string

const (
	// Initialize makes the first Machine.
	Initialize Operation = "Initialize"
	// ScaleUp makes missing Machines.
	ScaleUp Operation = "ScaleUp"
	// ScaleDown removes Machines that are not wanted any more.
	ScaleDown Operation = "ScaleDown"
	// Rollout replaces outdated Machines, or brings add-ons and settings up to date.
	Rollout Operation = "Rollout"
	// Remediate replaces an unhealthy Machine.
	Remediate Operation = "Remediate"
	// Repair clears what a failed join or a lost Machine left in etcd, or waits until what is broken works.
	Repair Operation = "Repair"
	// Depart sees a Machine out that somebody deleted.
	Depart Operation = "Depart"
	// SnapshotEtcd waits for a snapshot of etcd.
	SnapshotEtcd Operation = "Backup"
	// Recover restores an etcd that has lost its quorum, at a person's word.
	Recover Operation = "Recover"
	// Delete deletes the control plane.
	Delete Operation = "Delete"
)

// WaitingOn names what the step waits for: its reason, and the Machine that it is about. Empty when it waits for
// nothing.
func (s Step) WaitingOn() string {
	switch {
	case s.Fallback != nil:
		// What nothing depends on ends no waiting.
		return s.Fallback.WaitingOn()
	case s.Kind != Wait && s.Kind != Refuse:
		return ""
	case s.Machine != "":
		return s.Reason + " " + s.Machine
	}
	return s.Reason
}
