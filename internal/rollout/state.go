// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout decides how the workers of a Cluster are replaced: which new Machine may claim a host, which one
// counts, and what the others wait for. It is pure. Cluster API makes and deletes the Machines; a rollout is led by two
// gates of each new one. The start gate keeps it from a host until it is admitted. The readiness gate keeps it from
// being Available until it was healthy for long enough, and so keeps Cluster API from deleting another one in exchange.
package rollout

import "time"

// State is what was read of a Cluster for one decision.
type State struct {
	// Unhealthy says what the control plane lacks; no Machine is admitted and none counts meanwhile (K-8). Empty when it
	// lacks nothing.
	Unhealthy string
	// Outdated says what the control plane replaces itself; workers come after it (S3-6, C10). Empty when it is done.
	Outdated string
	Pools    []Pool
}

// Pool is a MachineDeployment.
type Pool struct {
	Name   string
	Labels map[string]string
	// Replicas that it is to have.
	Replicas int
	// Paused MachineDeployments are left as they are by Cluster API.
	Paused bool
	// OnDelete MachineDeployments have Machines replaced that a person deletes.
	OnDelete bool
	// Stock are the limits of the MachineDeployment itself, which Cluster API keeps to.
	Stock Limits
	// Revision is the MachineSet of the present template; empty while there is none.
	Revision string
	// Completed is the MachineSet whose rollout was done last; empty when none was.
	Completed string
	// Pace of its Machines of late.
	Pace Pace
	// Trial of a revision, as it was known last.
	Trial    Trial
	Machines []Machine
}

// Machine of a pool.
type Machine struct {
	Name    string
	Created time.Time
	// Outdated Machines belong to another MachineSet than that of the present template.
	Outdated bool
	Deleting bool
	// Hosted Machines have a host, which a Machine in deletion may still have.
	Hosted bool
	// Admitted is since when the Machine may claim a host; zero when it may not.
	Admitted time.Time
	// Gated Machines are not Available to Cluster API whatever their Node says.
	Gated bool
	// Joined Machines have a Node.
	Joined bool
	// Unhealthy says what the Machine lacks to be Available but for the gate; empty when it lacks nothing.
	Unhealthy string
	// Since is when Unhealthy became empty.
	Since time.Time
}

// stage of a Machine's life that a rollout tells apart.
type stage int

const (
	waits    stage = iota // for its admission
	inFlight              // admitted, and does not count yet
	counts                // at the present template
	outdated              // to be replaced
	leaves                // being deleted
)

func (m Machine) started() bool { return m.Hosted || !m.Admitted.IsZero() }

func (m Machine) stage() stage {
	switch {
	case m.Deleting:
		return leaves
	case !m.started():
		return waits
	case m.Outdated:
		return outdated
	case m.Gated || !m.Joined:
		return inFlight
	}
	return counts
}

// Action is what becomes of a Machine.
type Action string

const (
	// Admit lets the Machine claim a host.
	Admit Action = "Admit"
	// Hold keeps it from a host.
	Hold Action = "Hold"
	// Count takes its readiness gate off.
	Count Action = "Count"
	// Wait keeps the readiness gate.
	Wait Action = "Wait"
)

// Reason of a decision, in one word.
type Reason string

// Reasons.
const (
	// First: nothing of the pool is at the present template, and this one is tried alone.
	First Reason = "Canary"
	// Next: there is room for one more.
	Next Reason = "Next"
	// NoRollout: nothing is replaced, the pool only has fewer Machines than it is to have.
	NoRollout Reason = "NoRollout"
	// Replacement: an outdated Machine is gone before its turn, and one like it takes its place.
	Replacement Reason = "Replacement"
	// Validated: the Machine was healthy for long enough.
	Validated Reason = "Validated"

	// Suspended: the policy says to leave the group as it is.
	Suspended Reason = "Suspended"
	// ControlPlane: the control plane is not healthy, or comes first.
	ControlPlane Reason = "ControlPlane"
	// Previous: another pool comes first.
	Previous Reason = "WaitingForPrevious"
	// GroupUnhealthy: a Machine that counts is not healthy any more.
	GroupUnhealthy Reason = "GroupUnhealthy"
	// Paused: a person has to say that it goes on.
	Paused Reason = "PausedAfter"
	// InFlight: as many as may be are on their way.
	InFlight Reason = "InFlight"
	// Surge: there are as many Machines above replicas as may be.
	Surge Reason = "MaxSurge"
	// Limited: the lower limits of policy and MachineDeployment leave no room for any replacement.
	Limited Reason = "LimitsConflict"
	// Outdated: the Machine is of an earlier template, and nothing is missing.
	Outdated Reason = "Outdated"
	// Provisioning: the Machine has no Node yet.
	Provisioning Reason = "Provisioning"
	// NotHealthy: the Machine lacks something to be Available.
	NotHealthy Reason = "NotHealthy"
	// Soaking: the Machine is healthy, and has to be so for longer.
	Soaking Reason = "Soaking"

	// RollingOut: Machines of the pool are on their way.
	RollingOut Reason = "RollingOut"
	// UpToDate: there is nothing to replace.
	UpToDate Reason = "UpToDate"
)

// Decision about one Machine.
type Decision struct {
	Pool, Machine string
	Action        Action
	// Gate the Machine with its admission.
	Gate bool
	// Took is how long a Machine that counts now was on its way.
	Took    time.Duration
	Reason  Reason
	Message string
}

// Progress of one pool.
type Progress struct {
	Pool, Group string
	// Outdated, Held, InFlight and Done count Machines.
	Outdated, Held, InFlight, Done int
	// Limits in force.
	Limits Limits
	// Completed as of now.
	Completed string
	// Pace and Trial as of now.
	Pace  Pace
	Trial Trial
	// Left to be done.
	Left Left
	// RollsBack: its template is set back when it fails.
	RollsBack bool
	Reason    Reason
	Message   string
}

// Result of a plan.
type Result struct {
	// Problem of the policy: nothing was decided.
	Problem string
	// Decisions about every Machine that waits or is in flight, in the order of the policy.
	Decisions []Decision
	Progress  []Progress
	// PausedAfter is the Machine that a person has to name; empty when nobody is waited for.
	PausedAfter string
	// Stalled says which Machine takes too long, and why; empty when none does.
	Stalled string
	// Failures are templates that are to be set back, where that may be.
	Failures []Failure
	// Again is when time alone changes something; 0 when it does not.
	Again time.Duration
}
