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

// ongoing is what a step is part of that is about no Machine, or about one that joins, whatever its name.
func (s Snapshot) ongoing() Operation { return s.during(s.upkeep()) }

// during is the operation, unless there is no cluster yet, or a Machine leaves meanwhile.
func (s Snapshot) during(operation Operation) Operation {
	if !s.Initialized {
		return Initialize
	}
	for _, machine := range s.Machines {
		if machine.Deleting {
			return s.departureOf(machine)
		}
	}
	return operation
}

// operationOf is what a step is part of that is about the Machine.
func (s Snapshot) operationOf(machine Machine) Operation {
	switch {
	case s.Deleting || s.ClusterDeleting:
		return Delete
	case !s.Initialized:
		return Initialize
	case machine.Deleting:
		return s.departureOf(machine)
	}
	return s.upkeep()
}

// upkeep says what the Machines that stay lack.
func (s Snapshot) upkeep() Operation {
	if s.outdated() > 0 || len(s.active()) != s.Replicas || s.joining() != "" {
		return s.refill()
	}
	return Repair
}

// refill says why a Machine is missing: what took one away goes on until its replacement is there.
func (s Snapshot) refill() Operation {
	if s.outdated() > 0 {
		return Rollout
	}
	switch s.Doing.Operation {
	case Rollout, Remediate, Depart:
		if len(s.active()) >= s.Replicas-1 {
			return s.Doing.Operation
		}
	}
	return ScaleUp
}

// departureOf says why a Machine leaves. What was said when it was deleted holds; where nothing was, an outdated
// Machine leaves for a rollout, and another because somebody deleted it.
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

// WaitingOn names what the step waits for: its reason, and the Machine that it is about. Empty when it waits for
// nothing.
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
