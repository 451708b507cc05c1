// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// Every Machine that is marked is replaced once and no other one is, whatever else is edited meanwhile; no more are
// missing than may be, and with a canary where all are marked.
//
// Proves: S3-3, S3-5, S3-25, S3-30
func TestSelectedMachinesAreReplaced(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		f.policy.Strategy = nil
		consents := rapid.Bool().Draw(t, "consents")
		for _, d := range f.pools {
			if d.unavailable == 0 && !consents {
				d.unavailable = 1
			}
		}
		if consents {
			f.policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		}
		for range 5 {
			f.step(t)
		}
		made, marked, first := map[string]int{}, map[string]int{}, map[string]map[string]bool{}
		for _, d := range f.pools {
			made[d.name], first[d.name] = d.made, map[string]bool{}
			for _, n := range d.machines {
				if rapid.Bool().Draw(t, "marked") {
					n.needsUpdate = "needs-update on its Node"
					marked[d.name]++
				} else {
					first[d.name][n.name] = true
				}
			}
		}
		for range 2000 {
			f.policy.ContinueAfter = f.result.PausedAfter
			f.step(t)
			for _, decision := range f.result.Decisions {
				if decision.Action == Admit && !decision.Gate {
					t.Fatalf("%s is admitted without a gate: %s", decision.Machine, f.draw())
				}
			}
			left := 0
			for _, d := range f.pools {
				have, most := d.of(d.template, (*node).available), max(d.unavailable, 1)
				if f.policy.PauseAfter == quoinv1.RolloutPauseEachMachine {
					most = 1
				}
				if have < d.replicas-most {
					t.Fatalf("%s has %d of %d: %s", d.name, have, d.replicas, f.draw())
				}
				if d.made-made[d.name] > marked[d.name] {
					t.Fatalf("%s: %d new ones for %d", d.name, d.made-made[d.name], marked[d.name])
				}
				left += d.of(d.template, func(n *node) bool { return n.needsUpdate != "" })
			}
			if left == 0 && f.settled() {
				judgeSelected(t, f, made, marked, first)
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%v", f.draw(), f.says(), f.lines())
	})
}

// judgeSelected holds the end against what was to be replaced.
func judgeSelected(t *rapid.T, f *fleet, made, marked map[string]int, first map[string]map[string]bool) {
	for _, d := range f.pools {
		if d.made-made[d.name] != marked[d.name] {
			t.Fatalf("%s: %d new ones for %d", d.name, d.made-made[d.name], marked[d.name])
		}
		stayed := d.of(d.template, func(n *node) bool { return first[d.name][n.name] })
		if stayed != len(first[d.name]) {
			t.Fatalf("%s: %d of %d stayed", d.name, stayed, len(first[d.name]))
		}
	}
}

// Where no Machine may be missing nobody is deleted, and the status says what would have to change.
func TestASelectedMachineStaysWhereNoneMayBeMissing(t *testing.T) {
	f := newFleet()
	d := &deployment{name: "blue", template: 1, replicas: 2, surge: 1}
	d.whole(f.now)
	f.pools = append(f.pools, d)
	d.machines[0].needsUpdate = "needs-update on its Node"
	for range 20 {
		if done := f.decide(); len(done) > 0 {
			t.Fatalf("%+v", done)
		}
		f.moves()
	}
	if p := f.result.Progress[0]; p.Reason != Limited || p.Outdated != 1 || p.Done != 1 {
		t.Fatalf("%+v", p)
	}
}

// Of a pool of three in which all but one are marked the oldest is deleted, and what keeps it is said.
func TestWhichSelectedMachineIsDeleted(t *testing.T) {
	hour := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	type state struct {
		*Pool
		policy *quoinv1.RolloutPolicySpec
	}
	minAvailable := func(s state, n int32) {
		s.policy.Strategy = &quoinv1.RolloutStrategy{}
		s.policy.Strategy.MinAvailable = ptr.To(intstr.FromInt32(n))
	}
	onItsWay := func(m *Machine) { m.Gated, m.Available, m.Admitted = true, false, hour }
	const says = "Machine a is to be replaced (marked)"
	const limited = says + ", and no Machine may be missing meanwhile: "
	for name, c := range map[string]struct {
		change func(state)
		// deleted is a Machine, and without one why is what the pool waits for.
		deleted string
		reason  Reason
		why     string
	}{
		"one is": {func(state) {}, "a", RollingOut, "Machine a: marked"},
		"one that is on its way is": {func(s state) {
			s.Machines[1].NeedsUpdate = ""
			onItsWay(&s.Machines[0])
		}, "a", RollingOut, "Machine a: it is healthy"},
		"one that waits for its admission is not": {func(s state) {
			s.Machines[0].Hosted, s.Machines[1].NeedsUpdate = false, ""
		}, "", RollingOut, "Machine a: nothing is being replaced"},
		"of a pool without replicas none is": {func(s state) { s.Replicas = 0 }, "", Limited, limited +
			"set the policy's maxUnavailable to 1 or more, or spec.whenNoSpare to RemoveFirst"},
		"of a pool of one that is asked for it is not": {func(s state) {
			s.Replicas, s.Machines = 1, s.Machines[:1]
			minAvailable(s, 1)
		}, "", Limited, limited + "minAvailable asks for 1 of 1: lower it"},
		"outdated ones come first": {func(s state) { s.Machines[2].Outdated = true }, "", RollingOut,
			says + " when the outdated ones are"},
		"nothing is terminated": {func(s state) {
			s.policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
			guard(s.Machines)
		}, "", DrainOff, says + ": " + byHand},
		"hooks come first": {func(s state) { s.policy.Drain = &quoinv1.RolloutDrain{} }, "", RollingOut, says},
		"as many are asked for": {func(s state) { minAvailable(s, 3) }, "", Limited,
			limited + "minAvailable asks for 3 of 3: lower it"},
		"more are asked for": {func(s state) { minAvailable(s, 4) }, "", Limited,
			limited + "minAvailable asks for 4 of 3: lower it"},
		"fewer are asked for": {func(s state) { minAvailable(s, 2) }, "a", RollingOut, "Machine a: marked"},
		"the limits let none be missing": {func(s state) {
			minAvailable(s, 1)
			s.Stock.Unavailable = 0
		}, "", Limited, limited + "set maxUnavailable of MachineDeployment blue to 1 or more, or spec.whenNoSpare to " +
			"RemoveFirst"},
		"one is missing": {func(s state) { s.Machines[2].Available = false }, "", RollingOut,
			says + ": 2 of 3 Machines are available, and 1 may be missing"},
		"two may be": {func(s state) {
			s.Machines[2].Available, s.Stock.Unavailable = false, 2
		}, "a", RollingOut, "Machine a: marked"},
		"two may be, and none that is not marked counts": {func(s state) {
			s.Machines[2].Available, s.Machines[2].NeedsUpdate, s.Stock.Unavailable = false, "marked", 2
		}, "", RollingOut, says + ": 2 of 3 Machines are available, and 1 may be missing"},
		"one that is broken is, whatever is missing": {func(s state) {
			s.Machines[1].Unhealthy, s.Machines[2].Available = "gone", false
		}, "b", RollingOut, "Machine b: marked"},
		"of two that are broken the place of one is awaited": {func(s state) {
			s.Machines[1].Unhealthy, s.Machines[2].Deleting, s.Machines[2].NeedsUpdate = "gone", true, "marked"
		}, "", RollingOut, "Machine b is to be replaced (marked): 1 of 3 Machines are available, and 1 may be missing"},
		"its pool is left alone": {func(s state) { s.Paused = true }, "", Suspended,
			says + ": the MachineDeployment is paused: resume it"},
		"nobody looked yet whether the Cluster is in order": {func(s state) {
			s.policy.Validation = &quoinv1.RolloutValidation{}
		}, "", Validating, says + ": the Cluster is validated: 0 of 2 looks in a row found nothing"},
		"what takes its place is marked too": {func(s state) {
			onItsWay(&s.Machines[1])
			s.Machines[1].Unhealthy = "gone"
		}, "b", RollingOut, "Machine b: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pool := Pool{Name: "blue", Replicas: 3, Revision: "1", Completed: "1", Stock: Limits{Surge: 1, Unavailable: 1}}
			for _, name := range []string{"a", "b", "c"} {
				pool.Machines = append(pool.Machines, Machine{Name: name, Hosted: true, Joined: true, Available: true,
					Since: hour, NeedsUpdate: map[string]string{"a": "marked", "b": "marked"}[name]})
			}
			policy := &quoinv1.RolloutPolicySpec{}
			c.change(state{&pool, policy})
			result := Plan(State{Pools: []Pool{pool}}, policy, hour)
			deleted := ""
			for _, d := range result.Decisions {
				if d.Action == Delete {
					deleted += d.Machine
				}
			}
			g.Expect(deleted).To(Equal(c.deleted))
			if deleted != "" {
				g.Expect(result.Progress[0].Selected).To(Equal(deleted))
			}
			g.Expect(result.Progress[0].Reason).To(Equal(c.reason))
			g.Expect(result.Progress[0].Message).To(Equal(c.why))
		})
	}
}

// A selected Machine is known while it leaves, and until as many count as there were, unless all are replaced.
func TestWhichMachineWasSelected(t *testing.T) {
	counting, leaving := Machine{Name: "a", Hosted: true, Joined: true}, Machine{Name: "b", Hosted: true, Joined: true}
	leaving.Deleting, leaving.NeedsUpdate = true, "marked"
	remediated := leaving
	remediated.Leave.Remediated = true
	for name, c := range map[string]struct {
		before   string
		replicas int
		machines []Machine
		want     string
		doneOf   int
	}{
		"it leaves":                  {"", 2, []Machine{counting, leaving}, "b", 2},
		"it leaves after another":    {"c", 2, []Machine{counting, leaving}, "b", 2},
		"it leaves and all count":    {"", 1, []Machine{counting, leaving}, "b", 1},
		"it is gone":                 {"b", 2, []Machine{counting}, "b", 2},
		"its place is taken":         {"b", 1, []Machine{counting}, "", 0},
		"what is remediated was not": {"", 2, []Machine{counting, remediated}, "", 0},
		"all are replaced":           {"b", 2, []Machine{counting, leaving, old("c", "")}, "", 2},
	} {
		pool := Pool{Name: "blue", Replicas: c.replicas, Revision: "1", Completed: "1", Selected: c.before,
			Machines: c.machines, Stock: Limits{Surge: 1}}
		progress := Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{}, time.Now()).Progress[0]
		NewWithT(t).Expect(progress.Selected).To(Equal(c.want), name)
		NewWithT(t).Expect(progress.DoneOf).To(Equal(c.doneOf), name)
	}
}

// Where somebody consents one may be missing, unless all are asked for; where none may be, selected ones are stuck.
func TestHowManySelectedMachinesMayBeMissing(t *testing.T) {
	for _, c := range []struct {
		unavailable, least int
		consents           bool
		miss               int
	}{{1, 0, false, 1}, {0, 0, false, 0}, {0, 0, true, 1}, {2, 0, true, 2}, {2, 2, false, 1},
		{1, 3, true, 0}, {1, 4, true, 0}, {0, 2, true, 1}} {
		g := NewWithT(t)
		r := &rules{Pool: Pool{Replicas: 3, Revision: "1", Completed: "1"}, limits: Limits{Unavailable: c.unavailable},
			leaving: leaving{least: c.least}, consents: c.consents}
		g.Expect(r.mayMiss()).To(Equal(c.miss), "%+v", c)
		g.Expect(r.stuck()).To(Equal(c.miss == 0), "%+v", c)
		r.Machines = []Machine{old("a", "")}
		g.Expect(r.onlySelected()).To(BeFalse())
		r.Machines, r.Completed = nil, "0"
		g.Expect(r.onlySelected()).To(BeFalse())
	}
}

// guard the Machines as the controller does before a rollout deletes them.
func guard(machines []Machine) {
	for i := range machines {
		machines[i].Leave.PreDrain, machines[i].Leave.PreTerminate = true, true
	}
}
