// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// What is waited for before a Machine in deletion is drained or terminated has its time anew after a pause of the
// policy that came later, and whatever was paused before takes nothing of it.
func TestWhatIsWaitedForAfterAPause(t *testing.T) {
	ago := func(of time.Duration) time.Time { return eight.Add(-of) }
	const drains = "Drain (DrainStarted): its Node is cordoned, taken out of load balancers and drained"
	drained := func(m *Machine) {
		m.Leave.PreDrain, m.Leave.Began, m.Leave.Passed, m.Leave.Node.Listed = false, ago(time.Hour), ago(time.Hour), true
	}
	for name, c := range map[string]struct {
		change func(*State, *Machine)
		paused string
		before string
	}{
		"for what takes its place": {func(_ *State, m *Machine) { m.Deleted = ago(time.Hour) },
			"Replace (ReplacementFirst): another Machine is made in its place, and it is drained when that is Available",
			drains + ", and none is made in its place before: it was deleted at 2026-11-23T07:00:00Z"},
		"for what takes its place and has no Node": {func(s *State, m *Machine) {
			m.Deleted, m.Replacement = ago(time.Hour), "c"
			s.Pools[0].Machines = append(s.Pools[0].Machines, Machine{Name: "c", Hosted: true,
				Succession: Succession{Replaces: "a"}})
		}, "HoldDrain (ReplacementFirst): Machine c takes its place and is waited for, until 2026-11-23T08:19:50Z at the " +
			"latest; 19m50s", drains + ". Machine c, which was made in its place, is not Available after 20m0s: it does not " +
			"count yet, or its minReadySeconds are not over"},
		"for others that serve": {func(s *State, m *Machine) {
			m.Deleted, m.Condemned, m.Leave.Excluded = ago(time.Hour), false, true
			s.Pools[0].Machines = append(s.Pools[0].Machines, Machine{Name: "c", Hosted: true, Gated: true})
		}, "HoldDrain (MaxUnavailable): 2 of at least 2 serve; Machine c does not: it does not count yet, and more are " +
			"waited for until 2026-11-23T08:19:50Z; 19m50s", drains},
		"for its Node to be known": {func(_ *State, m *Machine) {
			m.Condemned, m.Leave.Node.Known, m.Leave.Held = true, false, ago(time.Hour)
		}, "HoldDrain (NodeUnknown): its Node cannot be read; it is drained at 2026-11-23T08:00:50Z all the same; 20s",
			drains},
		"after its drain": {func(_ *State, m *Machine) {
			drained(m)
		}, "HoldTermination (PostDrainDelay): its Node is drained; it is terminated at 2026-11-23T08:00:20Z; 20s",
			"Terminate (Drained): its Node is drained; it is the last one"},
		"for its volumes": {func(_ *State, m *Machine) {
			drained(m)
			m.Leave.Node.Volumes, m.Leave.Node.Emptied = []string{"data"}, ago(time.Hour)
		}, "HoldTermination (Evicting): volumes are attached to its Node: data; it is terminated at 2026-11-23T08:04:50Z " +
			"all the same; 20s", "Terminate (Drained): its Node is drained; it is the last one"},
		"after its drain, while Cluster API waited for its volumes": {func(_ *State, m *Machine) {
			drained(m)
			m.Leave.Node.Volumes = []string{"data"}
		}, "HoldTermination (PostDrainDelay): its Node is drained; it is terminated at 2026-11-23T08:00:20Z; 20s",
			"Terminate (Drained): its Node is drained; it is the last one"},
	} {
		for _, resumed := range []time.Time{ago(10 * time.Second), ago(2 * time.Hour), {}} {
			m := serving("a")
			m.Deleting = true
			s := State{Resumed: resumed, Pools: []Pool{{Name: "blue", Replicas: 2, Revision: "1", Completed: "1",
				Stock: Limits{Surge: 1}, Room: Room{Hosts: 1, Replicas: 2}, Machines: []Machine{m, serving("b")}}}}
			for i := range s.Pools[0].Machines {
				s.Pools[0].Machines[i].Outdated = false
			}
			c.change(&s, &s.Pools[0].Machines[0])
			want := c.before
			if resumed.Equal(ago(10 * time.Second)) {
				want = c.paused
			}
			policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{PostDrainDelaySeconds: ptr.To[int32](30)}}
			NewWithT(t).Expect(decided(s, policy, eight, "a")).To(Equal(want), "%s, resumed at %s", name, resumed)
		}
	}
}

// A Node that cannot be changed is waited for anew after a pause.
func TestANodeIsWaitedForAfterAPause(t *testing.T) {
	g := NewWithT(t)
	leave := Leave{Held: eight.Add(-time.Hour)}
	g.Expect(leave.Waited(time.Time{}, eight)).To(BeTrue())
	g.Expect(leave.Waited(eight.Add(-2*time.Hour), eight)).To(BeTrue())
	g.Expect(leave.Waited(eight.Add(-time.Minute), eight)).To(BeTrue())
	g.Expect(leave.Waited(eight.Add(time.Second-time.Minute), eight)).To(BeFalse())
	g.Expect(Leave{}.Waited(eight.Add(-time.Hour), eight)).To(BeFalse(), "nobody asked for the hooks")
}
