// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// Observation is what is known of a control plane: its inventory, and what the workload cluster, etcd and the hosts
// say. It does not change once it is made.
type Observation struct {
	// Inventory, in which the Nodes are named that were found, and the control plane is initialized if kubeadm init has
	// run.
	Inventory
	// At is when it was made; zero when nothing was observed.
	At time.Time
	// steps by which the clock was set forward that At was read from.
	steps steady.Steps
	// ahead are the times that earlier observations saw lie ahead of the clock, aheadStill those of them that this one
	// met, and what it saw so itself.
	ahead      history.Since[int64]
	aheadStill []int64
	// Outdated says of each Machine what of the spec only a new one can have.
	Outdated map[string][]string
	Workload Workload
	Etcd     Membership
	// State is all this in the words of a decision.
	State controlplane.State
}

// Nothing is known of the subject but that it is there.
func Nothing(subject Subject) *Observation {
	return &Observation{Inventory: Inventory{Subject: subject}}
}

// Observed reports whether anything was observed.
func (o *Observation) Observed() bool { return !o.At.IsZero() }

// Observe reads what the Machines run, and makes the state of it.
func (s *Sources) Observe(ctx context.Context, inventory *Inventory) (*Observation, error) {
	outdated, err := inventory.compare(s.Clock.Now())
	if err != nil {
		return nil, err
	}
	o := &Observation{Inventory: *inventory, Outdated: outdated}
	switch {
	case !o.ControlPlane.DeletionTimestamp.IsZero():
	case inventory.awaitsNodes():
		// The name of a Node is that of its etcd member.
		o.Workload, o.Machines = s.readWorkload(ctx, inventory)
		o.Etcd = s.readEtcd(ctx, &o.Inventory)
	default:
		// At once: each may take its whole time when hosts are down.
		var readings sync.WaitGroup
		readings.Go(func() { o.Workload, o.Machines = s.readWorkload(ctx, inventory) })
		readings.Go(func() { o.Etcd = s.readEtcd(ctx, inventory) })
		readings.Wait()
	}
	return s.conclude(o), nil
}

// etcdFreshness is how old a reading of etcd may be that a second observation rests on.
const etcdFreshness = 2 * time.Second

// Holds reports whether what a cached observation shows of Machines and etcd may be acted upon, when the API server has
// these Machines. If they are the very ones that the cache showed, they did not change from before etcd was read until
// after it, so a second reading would rest on the same ones. Etcd without a quorum, or that was not read just now, is
// read again.
func (o *Observation) Holds(machines collections.Machines, now time.Time) bool {
	return (!desired.StackedEtcd(o.ControlPlane) || o.Etcd.fresh(now)) && !o.awaitsNodes() &&
		sameMachines(o.Machines, machines)
}

// Again reads the workload cluster live, and makes the state of that and what the observation before shows of
// everything else.
func (s *Sources) Again(ctx context.Context, before *Observation, lists *Lists) *Observation {
	o := &Observation{Inventory: before.Inventory, Outdated: before.Outdated, Etcd: before.Etcd}
	o.Cached, o.all, o.LeftBehind, o.Window = false, lists.all, lists.leftBehind, lists.window
	if o.ControlPlane.DeletionTimestamp.IsZero() {
		o.Workload, o.Machines = s.readWorkload(ctx, &o.Inventory)
	}
	return s.conclude(o)
}

// conclude makes the state of what was read and of what is remembered, and remembers what came of it.
func (s *Sources) conclude(o *Observation) *Observation {
	o.At, o.steps = s.Clock.Now(), steady.StepsOf(s.Clock)
	concluded, past := buildState(o, s.History.Past(o.ControlPlane.UID), s.Delays)
	s.History.Remember(o.ControlPlane.UID, past)
	return concluded
}

// buildState makes the state of what was read, and what the next one is to know of it. It changes neither what was read
// nor what was known.
func buildState(read *Observation, past history.Past, delays Delays) (*Observation, history.Past) {
	o := *read
	o.ahead = past.Ahead
	if o.Workload.ConfigVersion != "" && !ptr.Deref(o.ControlPlane.Status.Initialization.ControlPlaneInitialized, false) {
		o.ControlPlane = o.ControlPlane.DeepCopy()
		o.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	}
	o.fillState()
	past.Snapshot = o.noteRequest(past.Snapshot)
	o.judgeKubeadm()
	o.State.DeadMemberTimeout, o.State.OrphanedMemberTimeout = delays.DeadMember, delays.OrphanedMember
	if !past.Recalled {
		past.Unhealthy, past.Recalled = o.recallUnhealthy(), true
	}
	past.Unhealthy = noteUnhealthy(past.Unhealthy, &o.State.Etcd, o.Etcd.ReadAt)
	leaveOutRecalled(past.Unhealthy, &o.State.Etcd, o.Etcd.ReadAt, delays.DeadMember)
	past.NoQuorum, past.NoneSeen = o.awaitQuorum(past.NoQuorum, past.NoneSeen)
	past.PreCreation = o.recallPreCreations(past.PreCreation)
	past.Undrained, o.State.DrainInGrace = debounceDrains(past.Undrained, o.State.Machines, o.At, delays.SkippedDrain)
	o.fillAPIServers(delays.APIServerStop)
	o.fillHealth()
	o.State.Recovery = o.recovery()
	past.Ahead = o.noteAhead()
	return &o, past
}

// ago is how long ago something was that is known by its time alone. By how much the clock was set forward since does
// not count.
func (o *Observation) ago(t time.Time) time.Duration { return o.At.Sub(o.began(t)) }

// began is when something began that is known by its time alone, as the clock would have shown it then. What lies ahead
// of the clock was written down before that was set back, nobody knows how long ago: it began when it was first seen
// so. What lies between is neither time that has passed, nor waited for. It stays at that once the clock has come so
// far, and begins anew after a restart, which waits once more.
func (o *Observation) began(t time.Time) time.Time {
	shifted, second := o.steps.Shift(t), t.Unix()
	if _, noted := o.ahead.Of(second); !noted && !shifted.After(o.At) {
		return shifted
	}
	o.aheadStill = append(o.aheadStill, second)
	first, _ := o.noteAhead().Of(second)
	return first
}

// noteAhead is what the next observation is to know of times ahead of the clock. They are written down in seconds.
func (o *Observation) noteAhead() history.Since[int64] {
	return o.ahead.Note(o.At.UTC().Truncate(time.Second), o.aheadStill)
}

// silence of a host; 0 when it answers.
func (o *Observation) silence(host *infrav1.QuoinHost) time.Duration {
	if host.Status.UnreachableSince == nil {
		return 0
	}
	return o.ago(host.Status.UnreachableSince.Time)
}

// sameMachines reports whether two readings show the same Machines in the same state. A synthetic one is in no state.
func sameMachines(a, b collections.Machines) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a.UnsortedList(), func(machine *clusterv1.Machine) bool {
		other := b[machine.Name]
		return other == nil || machine.ResourceVersion == "" || other.UID != machine.UID ||
			other.ResourceVersion != machine.ResourceVersion
	})
}
