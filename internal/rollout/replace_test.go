// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// succession is what is known of it.
func (d *deployment) succession(n *node) Succession {
	s := Succession{Deleted: n.deleted, Replacement: n.replacement}
	if slices.Contains(d.machines, n.replaces) {
		s.Replaces = n.replaces.name
	}
	return s
}

// replace makes another Machine of the same MachineSet, beside what that counts.
func (d *deployment) replace(n *node, now time.Time) {
	if n.replacement != "" {
		panic("a second one in the place of " + n.name)
	}
	d.made++
	n.replacement = fmt.Sprintf("%s-%d", d.name, d.made)
	d.machines = append(d.machines, &node{name: n.replacement, template: n.template, created: now, replaces: n})
}

// What the annotation of another Machine says, as a template or a move brings it, is not true of this one.
func TestAReplacementIsOfOneMachine(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	g.Expect(SuccessionOf(machine)).To(Equal(Succession{}))
	machine.Annotations = map[string]string{quoinv1.RolloutReplacementAnnotation: ReplacementOf(machine, "b")}
	g.Expect(SuccessionOf(machine).Replacement).To(Equal("b"))
	machine.UID = "2"
	g.Expect(SuccessionOf(machine).Replacement).To(BeEmpty())
	machine.DeletionTimestamp = ptr.To(metav1.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
	g.Expect(SuccessionOf(machine)).To(Equal(Succession{Deleted: machine.DeletionTimestamp.Time}))
	machine.UID = ""
	machine.Annotations[quoinv1.RolloutReplacementAnnotation] = "b"
	g.Expect(SuccessionOf(machine).Replacement).To(BeEmpty())
}

// Whether another Machine is made, or waited for, before one that a person deleted is drained.
func TestWhatTakesThePlaceOfAMachine(t *testing.T) {
	const none = "its Node is cordoned, taken out of load balancers and drained, and none is made in its place before: "
	const made = "its Node is cordoned, taken out of load balancers and drained. Machine blue-3, which was made in its place, "
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	third := func(s *State, m Machine) {
		m.Name, m.Hosted = "blue-3", m.NoHost == ""
		s.Pools[0].Machines = append(s.Pools[0].Machines, m)
	}
	replaced := func(s *State, m Machine) {
		s.Pools[0].Machines[1].Replacement, m.Replaces, m.Admitted = "blue-3", "blue-2", now
		third(s, m)
	}
	for name, c := range map[string]struct {
		change func(*State, *Machine)
		action Action
		says   string
	}{
		"it serves": {func(*State, *Machine) {}, Replace, "another Machine is made in its place"},
		"it is ill": {func(_ *State, m *Machine) { m.Unhealthy = "ill" }, Drain, none + "it does not serve"},
		"another one is to be replaced": {func(s *State, _ *Machine) {
			s.Pools[0].Machines[0].NeedsUpdate, s.Pools[0].Stock.Unavailable = "old", 1
		}, Drain, none + "its MachineDeployment is rolled out"},
		"another one is, and may not be missing": {func(s *State, _ *Machine) {
			s.Pools[0].Machines[0].NeedsUpdate, s.Pools[0].Stock.Surge = "old", 1
		}, Replace, "another Machine is made in its place"},
		"its pool is left alone": {func(s *State, _ *Machine) { s.Pools[0].Paused = true }, Drain,
			none + "the MachineDeployment is paused"},
		"the control plane is ill": {func(s *State, _ *Machine) { s.Unhealthy = "etcd" }, Drain,
			none + "the control plane is not healthy: etcd"},
		"the control plane comes first": {func(s *State, _ *Machine) { s.Outdated = "its version" }, Drain,
			none + "workers come after the control plane: its version"},
		"it was deleted long ago": {func(_ *State, m *Machine) { m.Deleted = now.Add(-20 * time.Minute) }, Drain,
			none + "it was deleted at 2026-11-23T07:40:00Z"},
		"it was deleted a while ago": {func(_ *State, m *Machine) { m.Deleted = now.Add(time.Second - 20*time.Minute) },
			Replace,
			"another Machine is made"},
		"one was made, which was not noted": {func(s *State, _ *Machine) {
			s.Pools[0].Room.Hosts = 0
			third(s, Machine{Succession: Succession{Replaces: "blue-2"}})
		}, Replace, "another Machine is made"},
		"that one is deleted": {func(s *State, _ *Machine) {
			s.Pools[0].Room.Hosts = 0
			third(s, Machine{Succession: Succession{Replaces: "blue-2"}, Deleting: true})
		}, Drain, none + "no host is free"},
		"one was made in the place of another one": {func(s *State, _ *Machine) {
			s.Pools[0].Machines[0].Replacement = "blue-3"
			third(s, Machine{Succession: Succession{Replaces: "blue-1"}})
		}, Replace, "another Machine is made"},
		"one is too many": {func(s *State, _ *Machine) { third(s, Machine{}) }, Drain,
			none + "there are 3 Machines for 2 replicas"},
		"none can be made": {func(s *State, _ *Machine) { s.Pools[0].Room.Unmade = "it has a name" }, Drain,
			none + "it has a name"},
		"it is deleted as well": {func(s *State, _ *Machine) { replaced(s, Machine{Deleting: true}) }, Drain,
			made + "is being deleted"},
		"it has no Node": {func(s *State, _ *Machine) { replaced(s, Machine{}) }, HoldDrain,
			"Machine blue-3 takes its place"},
		"it is not Available": {func(s *State, _ *Machine) { replaced(s, Machine{Joined: true}) }, HoldDrain,
			"Machine blue-3 takes its"},
		"it is": {func(s *State, _ *Machine) { replaced(s, Machine{Joined: true, Available: true}) }, Drain,
			made + "is Available"},
		"it finds no host": {func(s *State, _ *Machine) { replaced(s, Machine{NoHost: "none is free"}) }, Drain,
			made + "finds no host: none is free"},
		"it is gone": {func(_ *State, m *Machine) { m.Replacement = "blue-3" }, Drain, made + "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			leave := Leave{PreDrain: true, PreTerminate: true, Node: Node{Known: true}}
			s := State{Pools: []Pool{{Name: "blue", Replicas: 2, Revision: "1", Completed: "1",
				Room: Room{Hosts: 1, Replicas: 2},
				Machines: []Machine{
					{Name: "blue-1", Hosted: true, Joined: true, Available: true, Leave: leave},
					{Name: "blue-2", Hosted: true, Joined: true, Available: true, Leave: leave, Deleting: true,
						Succession: Succession{Deleted: now}},
				}}}}
			c.change(&s, &s.Pools[0].Machines[1])
			leaves := Plan(s, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, now).Leaves
			g.Expect(leaves).To(ContainElement(And(HaveField("Machine", "blue-2"), HaveField("Action", c.action),
				HaveField("Message", HavePrefix(c.says)))))
		})
	}
}

// What comes before a Machine is drained, of the Machine that takes its place or of one that is made, and what is left
// of the hosts that are free.
func TestWhatComesBeforeADrain(t *testing.T) {
	const makes = "Replace ReplacementFirst another Machine is made in its place, and it is drained when that is Available"
	const waits = "HoldDrain ReplacementFirst Machine c takes its place and is waited for, until "
	const none, made = "  , and none is made in its place before: ", "  . Machine c, which was made in its place, "
	replaced := func(l *leaver, m *Machine, by Machine) {
		m.Replacement, by.Name, by.Replaces = "c", "c", "b"
		l.pool.Machines = append(l.pool.Machines, by)
	}
	third := func(l *leaver, m Machine) {
		l.pool.Replicas, l.pool.Room.Replicas, m.Name = 3, 3, "c"
		l.pool.Machines = append(l.pool.Machines, m)
	}
	for name, c := range map[string]struct {
		change func(*leaver, *Machine)
		want   string
		hosts  int
		again  time.Duration
	}{
		"another one is made":      {func(*leaver, *Machine) {}, makes, 0, 0},
		"two hosts are free":       {func(l *leaver, _ *Machine) { l.pool.Room.Hosts = 2 }, makes, 1, 0},
		"its template is replaced": {func(_ *leaver, m *Machine) { m.Outdated = true }, "  ", 1, 0},
		"a rollout deleted it":     {func(_ *leaver, m *Machine) { m.Condemned = true }, "  ", 1, 0},
		"nobody deleted it":        {func(_ *leaver, m *Machine) { m.Deleted = time.Time{} }, "  ", 1, 0},
		"it is not drained":        {func(_ *leaver, m *Machine) { m.Leave.Excluded = true }, "  ", 1, 0},
		"its template is replaced, and one was made": {func(_ *leaver, m *Machine) {
			m.Outdated, m.Replacement = true, "c"
		}, made + "is gone", 1, 0},
		"one may be missing":         {func(l *leaver, _ *Machine) { l.pool.limits.Unavailable = 1 }, makes, 0, 0},
		"another one wants the host": {func(l *leaver, _ *Machine) { third(l, Machine{}) }, none + "no host is free", 1, 0},
		"one that leaves wants none": {func(l *leaver, _ *Machine) { third(l, Machine{Deleting: true}) }, makes, 0, 0},
		"one that has one wants none": {func(l *leaver, _ *Machine) { third(l, Machine{Hosted: true}) }, makes, 0,
			0},
		"one of two hosts is wanted": {func(l *leaver, _ *Machine) {
			third(l, Machine{})
			l.pool.Room.Hosts = 2
		}, makes, 1, 0},
		"its MachineSet has fewer": {func(l *leaver, _ *Machine) { l.pool.Room.Replicas = 1 },
			none + "its MachineSet has 1 of 2 replicas", 1, 0},
		"its templates are gone": {func(l *leaver, _ *Machine) { l.pool.Blocked = "KubeadmConfigTemplate b does not exist" },
			none + "KubeadmConfigTemplate b does not exist", 1, 0},
		"two are too many": {func(l *leaver, _ *Machine) { l.pool.Replicas = 0 },
			none + "there are 2 Machines for 0 replicas", 1, 0},
		"the other one has no Node": {func(l *leaver, m *Machine) { replaced(l, m, Machine{Available: true}) },
			waits + "2026-11-23T08:20:00Z at the latest", 1, 20 * time.Minute},
		"the other one is ill": {func(l *leaver, m *Machine) {
			replaced(l, m, Machine{Joined: true, Available: true, Unhealthy: "ill"})
		}, waits + "2026-11-23T08:20:00Z at the latest", 1, 20 * time.Minute},
		"its template is replaced as well": {func(l *leaver, m *Machine) { replaced(l, m, Machine{Outdated: true}) },
			made + "is of an earlier template by now and gets no host", 1, 0},
		"its template is replaced, and it has a host": {func(l *leaver, m *Machine) {
			replaced(l, m, Machine{Outdated: true, Hosted: true})
		}, waits + "2026-11-23T08:20:00Z at the latest", 1, 20 * time.Minute},
		"a second is left": {func(l *leaver, m *Machine) {
			replaced(l, m, Machine{})
			m.Deleted = eight.Add(time.Second - 20*time.Minute)
		}, waits + "2026-11-23T08:00:01Z at the latest", 1, time.Second},
		"no time is left": {func(l *leaver, m *Machine) {
			replaced(l, m, Machine{Unhealthy: "ill"})
			m.Deleted = eight.Add(-20 * time.Minute)
		}, made + "is not Available after 20m0s: ill", 1, 0},
		"nothing ails it": {func(l *leaver, m *Machine) {
			replaced(l, m, Machine{})
			m.Deleted = eight.Add(-20 * time.Minute)
		}, made + "is not Available after 20m0s: it does not count yet, or its minReadySeconds are not over", 1, 0},
		"the policy has a deadline": {func(l *leaver, m *Machine) {
			replaced(l, m, Machine{})
			l.policy.DeadlineSeconds = ptr.To[int32](60)
		}, waits + "2026-11-23T08:01:00Z at the latest", 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := Machine{Name: "b", Hosted: true, Joined: true, Available: true, Deleting: true, Leave: Leave{PreDrain: true},
				Succession: Succession{Deleted: eight}}
			pool := Pool{Name: "blue", Replicas: 2, Revision: "1", Completed: "1", Room: Room{Hosts: 1, Replicas: 2},
				Machines: []Machine{{Name: "a", Hosted: true, Joined: true, Available: true}, m}}
			l := &leaver{planner: &planner{now: eight, policy: &quoinv1.RolloutPolicySpec{}}, pool: &rules{Pool: pool}}
			c.change(l, &m)
			action, reason, why := l.replaceFirst(m)
			g.Expect(fmt.Sprintf("%s %s %s", action, reason, why)).To(Equal(c.want))
			g.Expect(l.pool.Room.Hosts).To(Equal(c.hosts))
			g.Expect(l.result.Again).To(Equal(c.again))
		})
	}
}

// Of two that a person deletes the second one has no host left that the first one's replacement takes.
func TestEachReplacementTakesAHost(t *testing.T) {
	g := NewWithT(t)
	pool := &rules{Pool: Pool{Name: "blue", Replicas: 2, Revision: "1", Completed: "1", Room: Room{Hosts: 1, Replicas: 2}}}
	for _, name := range []string{"a", "b"} {
		pool.Machines = append(pool.Machines, Machine{Name: name, Hosted: true, Joined: true, Available: true, Deleting: true,
			Leave: Leave{PreDrain: true}, Succession: Succession{Deleted: eight}})
	}
	l := &leaver{planner: &planner{now: eight, policy: &quoinv1.RolloutPolicySpec{}}, pool: pool}
	replaces := func(i int) bool {
		action, _, _ := l.replaceFirst(pool.Machines[i])
		return action == Replace
	}
	g.Expect(replaces(0)).To(BeTrue())
	g.Expect(replaces(1)).To(BeFalse())
	pool.Room.Hosts = 1
	pool.Machines = append(pool.Machines, Machine{Name: "c", Hosted: true, Succession: Succession{Replaces: "a"}})
	g.Expect(replaces(0)).To(BeTrue(), "it was made, which was not noted")
	g.Expect(replaces(1)).To(BeTrue())
}

// The pool says which of its Machines waits for the one that takes its place.
func TestWhichMachineIsReplacedFirst(t *testing.T) {
	g := NewWithT(t)
	p := &planner{result: Result{Leaves: []Decision{{Pool: "green", Machine: "x", Reason: ReplacementFirst},
		{Pool: "blue", Machine: "a", Reason: Interval}, {Pool: "blue", Machine: "b", Reason: ReplacementFirst,
			Message: "another one comes"}}}}
	reason, why := p.replaces(&rules{Pool: Pool{Name: "blue"}})
	g.Expect(reason).To(Equal(ReplacementFirst))
	g.Expect(why).To(Equal("Machine b: another one comes"))
	reason, why = p.replaces(&rules{Pool: Pool{Name: "red"}})
	g.Expect(string(reason) + why).To(BeEmpty())
}
