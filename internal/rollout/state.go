// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout decides how the workers of a Cluster are replaced: which new Machine may claim a host, which one
// counts, and what the others wait for. It is pure. Cluster API makes and deletes the Machines; a rollout is led by two
// gates of each new one. The start gate keeps it from a host until it is admitted. The readiness gate keeps it from
// being Available until it was healthy for long enough, and so keeps Cluster API from deleting another one in exchange.
package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// State is what was read of a Cluster for one decision.
type State struct {
	// Namespace of the Cluster.
	Namespace string
	// Unhealthy says what the control plane lacks; no Machine is admitted and none counts meanwhile (K-8). Empty when it
	// lacks nothing.
	Unhealthy string
	// Outdated says what the control plane replaces itself; workers come after it (S3-6, C10). Empty when it is done.
	Outdated string
	// Resumed is since when the policy goes on after a pause of it or of its Cluster; zero where it was not paused.
	Resumed time.Time
	// Validation is what looks found so far; nil when there were none.
	Validation *quoinv1.RolloutValidationStatus
	Pools      []Pool
	// Topology of the Cluster; nil when it is not managed by one.
	Topology *Topology
}

// slack is by how much the clocks of two managers differ at most.
const slack = time.Minute

// asOf is the state as the clock has it. What a rollout wrote down, and lies ahead, was written before the clock was
// set back: it began now, and a look is to be made anew. Otherwise it would be waited for until the clock has come so
// far.
func (s State) asOf(now time.Time) State {
	past := func(t time.Time) time.Time {
		if t.After(now) {
			return now
		}
		return t
	}
	ahead := func(looked metav1.Time) bool { return looked.After(now) }
	// Looks from before a pause count for nothing, and would to the last were it always over as of now.
	if s.Resumed.Sub(now) > slack {
		s.Resumed = time.Time{}
	}
	s.Resumed = past(s.Resumed)
	s.Pools = slices.Clone(s.Pools)
	for i := range s.Pools {
		pool := &s.Pools[i]
		pool.LastTermination, pool.Trial.Since = past(pool.LastTermination), past(pool.Trial.Since)
	}
	if s.Validation == nil {
		return s
	}
	s.Validation = s.Validation.DeepCopy()
	s.Validation.Since.Time = past(s.Validation.Since.Time)
	if ahead(s.Validation.LastLookTime) {
		s.Validation.LastLookTime, s.Validation.Successes = metav1.Time{}, nil
	}
	s.Validation.Machines = slices.DeleteFunc(s.Validation.Machines, func(m quoinv1.RolloutValidatedMachine) bool {
		return ahead(m.LastLookTime)
	})
	return s
}

// Pool is a MachineDeployment.
type Pool struct {
	Name   string
	Labels map[string]string
	// Replicas that it is to have.
	Replicas int
	// Paused MachineDeployments are left as they are by Cluster API.
	Paused bool
	// OnDelete MachineDeployments have Machines replaced that somebody deletes, which a rollout does.
	OnDelete bool
	// Refused reports whether the API server refused what was decided about one of its Machines last. Those after it go
	// on meanwhile.
	Refused bool
	// Unsupported says why no Machine of the present template would start beside the API servers that run; empty when one
	// would.
	Unsupported string
	// Skewed says why Cluster API makes no Machine of the present template, where the control plane has another version;
	// empty when it makes them.
	Skewed string
	// Said and Since are the reason that was given last of how far it is, before it was suspended or paused, and since
	// when that is given.
	Said  Reason
	Since time.Time
	// Blocked is what Cluster API says keeps it from making Machines of it; empty when it says nothing.
	Blocked string
	// Stock are the limits of the MachineDeployment itself, which Cluster API keeps to.
	Stock Limits
	// Revision is the MachineSet of the present template; empty while there is none.
	Revision string
	// Completed is the MachineSet whose rollout was done last; empty when none was.
	Completed string
	// Selected is a Machine that was selected and deleted, as it was known last; empty when what took its place counts.
	Selected string
	// DoneOf is how many Machines count when the present template is done, or what takes the place of a selected Machine,
	// where others find no host; 0 while neither is on its way.
	DoneOf int
	// Pace of its Machines of late, and how long drains took.
	Pace, Drains Pace
	// Trial of a revision, and what was proved of its Machines, as they were known last.
	Trial  Trial
	Proofs []Proof
	// LastTermination is when the host of a Machine was given up last; zero when none was.
	LastTermination time.Time
	Machines        []Machine
	// Coming are the hosts that its Machines without one can have in a while.
	Coming int
	// Room for one more Machine, which is looked at while one that was deleted waits for its drain.
	Room Room
}

// Rival is a Machine of the Cluster that finds no host, and the MachineDeployment that it is of.
type Rival struct{ Machine, Pool string }

// Machine of a pool.
type Machine struct {
	Name    string
	Created time.Time
	// Outdated Machines belong to another MachineSet than that of the present template.
	Outdated bool
	Deleting bool
	// Hosted Machines have a host, which a Machine in deletion may still have.
	Hosted bool
	// Host is which one, as namespace/name; empty where that is not known.
	Host string
	// Admitted is since when the Machine may claim a host; zero when it may not.
	Admitted time.Time
	// Resumed is since when Cluster API goes on with the Machine after a pause; zero where it was not paused.
	Resumed time.Time
	// Gated Machines are not Available to Cluster API whatever their Node says.
	Gated bool
	// Joined Machines have a Node.
	Joined bool
	// Unhealthy says what the Machine lacks to be Available but for the gate; empty when it lacks nothing.
	Unhealthy string
	// HostFailed says why its host does not become a Node, where another one may; empty when nothing speaks against it.
	HostFailed string
	// NeedsUpdate says why the Machine is to be replaced although it is at the present template; empty when it is not.
	NeedsUpdate string
	// NoHost says why the Machine finds no host that is free; empty when it has one or may still find one.
	NoHost string
	// Returns: when the Machine leaves its host, those of the pool that found none can have it.
	Returns bool
	// Rivals could have its host as well: Machines of other pools that find none.
	Rivals []Rival
	// Wanted: the control plane waits for a host, and could have that of the Machine.
	Wanted bool
	// Since is when Unhealthy became empty, or ceased to be; zero where that is not known.
	Since time.Time
	// Available Machines are so to Cluster API, which knows later than their conditions.
	Available bool
	// AvailableAt is when its minReadySeconds are over; zero while it is not Ready.
	AvailableAt time.Time
	Departure
	Succession
	// Leave is how the Machine leaves.
	Leave Leave
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
	// Delete the Machine.
	Delete Action = "Delete"
	// Keep the Machine for now, which is the next to be deleted.
	Keep Action = "Keep"
	// Mark has Cluster API delete the Machine before others.
	Mark Action = "Mark"
	// Unmark takes that back.
	Unmark Action = "Unmark"
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
	// Closed: no window is open.
	Closed Reason = "WindowClosed"
	// DeadlineExceeded: a new Machine takes longer than it may, or waits for longer for one that is broken.
	DeadlineExceeded Reason = quoinv1.DeadlineExceededReason
	// WillNotFit: by what the last Machines took, one more would not be done before the window closes.
	WillNotFit Reason = quoinv1.WillNotFitReason
	// InFlight: as many as may be are on their way.
	InFlight Reason = "InFlight"
	// Surge: there are as many Machines above replicas as may be.
	Surge Reason = "MaxSurge"
	// Wave: Machines of another failure domain leave first.
	Wave Reason = "WaitingForWave"
	// Order: the Machine is among those that leave next.
	Order Reason = "NextToLeave"
	// Later: the Machine was among those that leave next, and is not any more.
	Later Reason = "LeavesLater"
	// MinAvailable: too few Machines would be available.
	MinAvailable Reason = "MinAvailable"
	// Limited: the lower limits of policy and MachineDeployment leave no room for any replacement.
	Limited Reason = "LimitsConflict"
	// Refused: the API server refuses what was decided about a Machine.
	Refused Reason = quoinv1.WriteRefusedReason
	// Outdated: the Machine is of an earlier template, and nothing is missing.
	Outdated Reason = "Outdated"
	// NoSpare: the Machine finds no host, or is deleted for one that finds none.
	NoSpare Reason = "NoSpareHost"
	// Selected: somebody marked the Machine as one that is to be replaced.
	Selected Reason = "Selected"
	// Provisioning: the Machine has no Node yet.
	Provisioning Reason = "Provisioning"
	// NotHealthy: the Machine lacks something to be Available.
	NotHealthy Reason = "NotHealthy"
	// Soaking: the Machine is healthy, and has to be so for longer.
	Soaking Reason = "Soaking"

	// NoneMade: Cluster API is to make a Machine of the pool, or to delete one, and does not.
	NoneMade Reason = "NoMachineMade"
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
	// Took is how long a Machine that counts now was on its way; 0 where that is not known.
	Took time.Duration
	// Pace has what is measured of a Machine that counts now.
	Pace    Pace
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
	// Completed and Selected as of now.
	Completed, Selected string
	DoneOf              int
	// Pace, Drains, Trial and Proofs as of now.
	Pace, Drains Pace
	Trial        Trial
	Proofs       []Proof
	// LastTermination as of now.
	LastTermination time.Time
	// Left to be done.
	Left Left
	// Works: a Machine of its present template that counts is well.
	Works bool
	// RollsBack: its template is set back when it fails.
	RollsBack bool
	Reason    Reason
	// Before is the reason that it had before it was suspended; empty while it is not.
	Before  Reason
	Message string
}

// Result of a plan.
type Result struct {
	// Problem of the policy: nothing was decided.
	Problem string
	// Decisions about every Machine that waits or is in flight, in the order of the policy.
	Decisions []Decision
	// Leaves are about Machines that are deleted, or will be.
	Leaves   []Decision
	Progress []Progress
	// PausedAfter is the Machine that a person has to name; empty when nobody is waited for.
	PausedAfter string
	// Misordered says where the Cluster's topology has another order; empty when it has not.
	Misordered string
	// Stalled says what takes too long, or can never be, and Cause is its reason; both are empty when nothing does.
	Stalled string
	Cause   Reason
	// Look that is to be made; nil when none is needed.
	Look *Look
	// Validation is what is to be remembered of looks.
	Validation *quoinv1.RolloutValidationStatus
	// DrainFailed says which Machine could not be drained, and what keeps it; empty when none is.
	DrainFailed string
	// Failures are templates that are to be set back, where that may be.
	Failures []Failure
	// Again is when time alone changes something; 0 when it does not.
	Again time.Duration
	// topology of the Cluster; nil when it is not managed by one.
	topology *Topology
}
