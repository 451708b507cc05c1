// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package before

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

// partOf says which operation a step belongs to, where its rule did not say so itself.
func (s Snapshot) partOf(step Step) Operation {
	switch {
	case step.Kind == Done:
		return ""
	case s.Deleting || s.ClusterDeleting:
		return Delete
	case step.Remediates != "":
		return Remediate
	case step.Reason == ReasonBackup:
		return SnapshotEtcd
	case step.Reason == ReasonStrayMember, step.Reason == ReasonMemberWithoutMachine, step.Reason == ReasonQuorumLost:
		return Repair
	case !s.Initialized:
		return Initialize
	}
	// A Machine that joins is part of what goes on, whatever its name.
	anybody := step.Machine == "" || step.Kind == AdmitMachine
	for _, machine := range s.Machines {
		if machine.Deleting && (machine.Name == step.Machine || anybody || step.Reason == ReasonReplacementFirst || step.Reason == ReasonHostGone) {
			return s.departureOf(machine)
		}
	}
	switch step.Reason {
	case ReasonScaleUp:
		return s.refill()
	case ReasonScaleDown:
		return ScaleDown
	case ReasonReplaced, ReasonSurge, ReasonRemoveFirst, ReasonTakesPlace, ReasonVersionSkew, ReasonTooFewToRemove,
		ReasonNewVersion, ReasonAddonImages, ReasonAddonsUnknown:
		return Rollout
	}
	switch {
	case s.outdated() > 0:
		return Rollout
	case len(s.active()) != s.Replicas || s.joining() != "" || step.Reason == ReasonReplicas:
		return s.refill()
	}
	return Repair
}

// refill says why a Machine is missing: what took one away goes on until its replacement is there.
func (s Snapshot) refill() Operation {
	switch s.Doing.Operation {
	case Rollout, Remediate, Depart:
		if len(s.active()) >= s.Replicas-1 {
			return s.Doing.Operation
		}
	}
	return ScaleUp
}

// departureOf says why a Machine leaves. What was said when it was deleted holds; where nothing was, an outdated Machine
// leaves for a rollout, and another because somebody deleted it.
func (s Snapshot) departureOf(machine Machine) Operation {
	if s.Doing.Machine == machine.Name {
		switch s.Doing.Operation {
		case ScaleDown, Rollout, Remediate, Depart:
			return s.Doing.Operation
		}
	}
	if !machine.UpToDate {
		return Rollout
	}
	return Depart
}

// WaitingOn names what the step waits for: its reason, and the Machine that it is about. Empty when it waits for nothing.
func (s Step) WaitingOn() string {
	switch {
	case s.Otherwise != nil:
		// What nothing depends on ends no waiting.
		return s.Otherwise.WaitingOn()
	case s.Kind != Wait && s.Kind != Refuse:
		return ""
	case s.Machine != "":
		return s.Reason + " " + s.Machine
	}
	return s.Reason
}
