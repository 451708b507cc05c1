// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// old is an outdated Machine that is in service.
func old(name, domain string) Machine {
	return Machine{Name: name, Outdated: true, Hosted: true, Joined: true, Available: true,
		Departure: Departure{Domain: domain, Set: "1"}}
}

// Of Machines that may leave the one goes whose deletion is known, then what is no loss, then what is marked.
func TestTheForemostLeaves(t *testing.T) {
	g := NewWithT(t)
	last, plain, marked, broken, condemned := old("last", ""), old("plain", ""), old("marked", ""), old("broken", ""),
		old("condemned", "")
	last.Last, marked.Marked, marked.Last, broken.Unhealthy, condemned.Condemned = true, true, true, "gone", true
	machines := []*Machine{&last, &plain, &marked, &broken, &condemned}
	for i := len(machines); i > 0; i-- {
		g.Expect(foremost(machines[:i])).To(BeIdenticalTo(machines[i-1]))
	}
	g.Expect(foremost(nil)).To(BeNil())
}

// A pool with OnDelete has as many deleted as may be, and says of the next one why it stays.
func TestWhatARolloutDeletes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutStrategy)
		want   []string
	}{
		"two at once": {nil, []string{"Delete a (Next)", "Delete b (Next)",
			"Keep c (InFlight): 2 on their way, and 2 may be: one has to count first"}},
		"one alone where nothing is at the present template": {func(p *Pool, _ *quoinv1.RolloutStrategy) {
			p.Replicas, p.Machines = 3, p.Machines[:3]
		}, []string{"Delete a (Canary)", "Keep b (Canary): the first Machine of the present template is tried alone until it " +
			"counts"}},
		"as many stay as are asked for": {func(_ *Pool, asked *quoinv1.RolloutStrategy) {
			asked.MinAvailable = ptr.To(intstr.FromInt32(3))
		}, []string{"Delete a (Next)", "Keep b (MinAvailable): 3 of 4 Machines are available, and no fewer than 3 may be: " +
			"see those that are not"}},
		"one that is broken is no loss": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.MinAvailable, p.Machines[1].Unhealthy = ptr.To(intstr.FromInt32(2)), "gone"
		}, []string{"Delete b (Next)", "Delete a (Next)",
			"Keep c (InFlight): 2 on their way, and 2 may be: one has to count first"}},
		"others are, beside one that is broken": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.MinAvailable, p.Machines[1].Unhealthy = ptr.To(intstr.FromInt32(3)), "gone"
		}, []string{"Delete b (Next)", "Keep a (MinAvailable): 3 of 4 Machines are available, and no fewer than 3 may be: " +
			"see those that are not"}},
		"one leaves already": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.MaxUnavailable, p.Machines[0].Deleting = ptr.To(intstr.FromInt32(1)), true
		}, []string{"Keep b (InFlight): Machine a is being deleted, see its condition Deleting: what takes its place has " +
			"to count first"}},
		"one leaves, and one is on its way": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.MaxUnavailable, p.Machines[0].Deleting = ptr.To(intstr.FromInt32(1)), true
			p.Machines = append(p.Machines, Machine{Name: "next", Hosted: true, Gated: true})
		}, []string{"Wait next (Provisioning)", "Keep b (InFlight): 1 on their way, and 1 may be: one has to count first; " +
			"Machine a is being deleted, see its condition Deleting"}},
		"one failure domain at a time": {func(_ *Pool, asked *quoinv1.RolloutStrategy) {
			asked.Waves = quoinv1.RolloutWavesFailureDomain
		}, []string{"Delete a (Next)", "Keep b (WaitingForWave): failure domain x is replaced, and Machine a of it has to " +
			"be gone before another one begins"}},
		"one of another failure domain leaves its host": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.Waves, p.Machines[0].Deleting = quoinv1.RolloutWavesFailureDomain, true
		}, []string{"Keep b (WaitingForWave): failure domain x is replaced, and Machine a of it has to be gone before " +
			"another one begins"}},
		"one of another failure domain left its host": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.Waves, p.Machines[0].Deleting = quoinv1.RolloutWavesFailureDomain, true
			p.Machines[0].Hosted = false
		}, []string{"Delete b (Next)", "Keep c (InFlight): Machine a is being deleted, see its condition Deleting: what " +
			"takes its place has to count first"}},
		"one is there above replicas": {func(p *Pool, _ *quoinv1.RolloutStrategy) {
			p.Machines = append(p.Machines, old("d", "z"))
		}, []string{"Keep a (MaxSurge): 4 Machines for 4 replicas, and 0 more may be: one has to leave first"}},
		"nothing is terminated": {func(p *Pool, asked *quoinv1.RolloutStrategy) {
			asked.DrainAndTerminate = ptr.To(false)
			guard(p.Machines)
		}, []string{"Keep a (DrainAndTerminateFalse): " + byHand}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := Pool{Name: "blue", Replicas: 4, OnDelete: true, Revision: "2", Completed: "1",
				Machines: []Machine{old("a", "x"), old("b", "y"), old("c", "z"), {Name: "new", Hosted: true, Joined: true,
					Available: true}}}
			asked := &quoinv1.RolloutStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(2))}
			if c.change != nil {
				c.change(&pool, asked)
			}
			var said []string
			for _, d := range Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{Strategy: asked},
				time.Now()).Decisions {
				line := fmt.Sprintf("%s %s (%s)", d.Action, d.Machine, d.Reason)
				if d.Action == Keep {
					line += ": " + d.Message
				}
				said = append(said, line)
			}
			NewWithT(t).Expect(said).To(Equal(c.want))
		})
	}
}

// A mark, or what was written down about a deletion, is taken back from what does not leave, and not from what does.
func TestMarksAreTakenBack(t *testing.T) {
	g := NewWithT(t)
	did := func(pool Pool) (did []string) {
		for _, d := range Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{}, time.Now()).Decisions {
			line := string(d.Action) + " " + d.Machine
			if d.Action == Unmark {
				line += ": " + d.Message
			}
			did = append(did, line)
		}
		return did
	}
	pool := Pool{Name: "blue", Replicas: 2, Revision: "2", Completed: "2", Stock: Limits{Surge: 1, Unavailable: 1}}
	for _, name := range []string{"a", "b"} {
		m := old(name, "")
		m.Outdated, m.Marked, m.MarkedByUs = false, true, true
		pool.Machines = append(pool.Machines, m)
	}
	pool.Machines[0].NeedsUpdate = "marked"
	g.Expect(did(pool)).To(Equal([]string{"Delete a", "Unmark b: it is of the present template and stays"}))
	for _, onDelete := range []bool{false, true} {
		for _, outdated := range []bool{false, true} {
			m := old("a", "")
			m.Outdated, m.Condemned = outdated, true
			of := Pool{Name: "blue", Replicas: 1, OnDelete: onDelete, Revision: "2", Stock: Limits{Surge: 1},
				Completed: map[bool]string{false: "2", true: "1"}[outdated], Machines: []Machine{m}}
			want := []string{"Unmark a: it is of the present template and stays"}
			switch {
			case onDelete && outdated:
				want = []string{"Delete a"}
			case outdated:
				want = []string{"Unmark a: others leave first"}
			}
			g.Expect(did(of)).To(Equal(want), "OnDelete %t, outdated %t", onDelete, outdated)
		}
	}
}

// Beside a Machine that is drained those of other failure domains wait, where they serve and leave in waves.
func TestWhoIsDrainedBesideWhom(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rules, m, other *Machine)
		waits  bool
	}{
		"one is drained":                {func(_ *rules, _, _ *Machine) {}, true},
		"there are no waves":            {func(r *rules, _, _ *Machine) { r.waves = false }, false},
		"a person deletes what is old":  {func(r *rules, _, _ *Machine) { r.OnDelete = true }, false},
		"it is of the present template": {func(_ *rules, m, _ *Machine) { m.Outdated = false }, false},
		"it serves nothing":             {func(_ *rules, m, _ *Machine) { m.Unhealthy = "gone" }, false},
		"they are of one domain":        {func(_ *rules, m, other *Machine) { m.Domain = other.Domain }, false},
		"the other stays":               {func(_ *rules, _, other *Machine) { other.Deleting = false }, false},
		"the other is broken":           {func(_ *rules, _, other *Machine) { other.Leave.Remediated = true }, false},
		"the other waits for its drain": {func(_ *rules, _, other *Machine) { other.Leave.PreDrain = true }, false},
		"the other waits and comes first": {func(_ *rules, _, other *Machine) {
			other.Leave.PreDrain, other.Marked = true, true
		}, true},
		"both come first": {func(_ *rules, m, other *Machine) {
			m.Marked, other.Leave.PreDrain, other.Marked = true, true, true
		}, false},
	} {
		m, other := old("m", "x"), old("other", "y")
		other.Deleting = true
		r := &rules{leaving: leaving{waves: true}}
		c.change(r, &m, &other)
		r.Machines = []Machine{m, other}
		NewWithT(t).Expect(r.besides(m, nil) != "").To(Equal(c.waits), name)
	}
	g := NewWithT(t)
	m, other := old("m", "x"), old("other", "y")
	other.Deleting, other.Leave.PreDrain = true, true
	r := &rules{leaving: leaving{waves: true}}
	r.Name, r.Machines = "blue", []Machine{m, other}
	drain := Decision{Pool: "blue", Machine: "other", Action: Drain, Reason: DrainStarted}
	g.Expect(r.besides(m, []Decision{drain})).NotTo(BeEmpty())
	for _, change := range []func(*Decision){func(d *Decision) { d.Pool = "green" }, func(d *Decision) { d.Machine = "m" },
		func(d *Decision) { d.Action = HoldDrain }, func(d *Decision) { d.Reason = NoNode }} {
		another := drain
		change(&another)
		g.Expect(r.besides(m, []Decision{another})).To(BeEmpty(), "%v", another)
	}
}

// The failure domain that is replaced is that of what leaves, then of what a person marked, then the most crowded.
func TestWhichFailureDomainIsReplaced(t *testing.T) {
	g := NewWithT(t)
	wave := func(marks string, also ...Machine) string {
		r := &rules{leaving: leaving{waves: true}}
		r.Machines = append([]Machine{old("a", "x"), old("b", "y"), old("c", "y")}, also...)
		for i, mark := range marks {
			r.Machines[i].Marked, r.Machines[i].MarkedByUs = mark != '-', mark == 'o'
		}
		return r.wave(r.old())
	}
	goes := func(domain string) Machine {
		m := old("goes", domain)
		m.Deleting = true
		return m
	}
	g.Expect(wave("")).To(Equal("y"), "it is the most crowded")
	fresh := Machine{Name: "new", Departure: Departure{Domain: "x"}}
	g.Expect(wave("", fresh, old("d", "y"))).To(Equal("y"), "the new one has no host yet")
	fresh.Hosted = true
	g.Expect(wave("", fresh, old("d", "y"))).To(Equal("x"), "the new one is there")
	fresh.Joined = true
	g.Expect(wave("", fresh, old("d", "y"))).To(Equal("x"), "one that counts is there")
	g.Expect(wave("", old("d", "x"))).To(Equal("x"), "the names decide between two that are as crowded")
	g.Expect(wave("o--")).To(Equal("x"))
	g.Expect(wave("to-")).To(Equal("x"), "a person marked it")
	g.Expect(wave("ot-")).To(Equal("y"), "a person marked it")
	g.Expect(wave("", old("d", "x"), old("e", "x"))).To(Equal("x"), "it is the most crowded")
	g.Expect(wave("o--", goes("z"))).To(Equal("z"), "one of it leaves")
	g.Expect(wave("o--", goes("z"), goes("y"))).To(Equal("y"), "one of it leaves, and others are to be replaced")
	g.Expect(wave("", goes("z"), goes("w"))).To(Equal("z"), "one of it leaves first")
	g.Expect(wave("o--", goes(""))).To(Equal("x"), "what leaves is in none")
	left, ill, last := goes("z"), old("ill", "w"), old("last", "x")
	left.Hosted, ill.Unhealthy, ill.Marked, last.Last = false, "gone", true, true
	g.Expect(wave("o--", left)).To(Equal("x"), "it left its host")
	g.Expect(wave("o--", ill)).To(Equal("x"), "nothing is lost with what is marked and broken")
	g.Expect(wave("", last, last)).To(Equal("x"), "those that go last are there as well")
	younger := old("younger", "x")
	younger.Set, younger.SetMade = "2", time.Unix(1, 0)
	r := &rules{leaving: leaving{waves: true}, Pool: Pool{Machines: []Machine{old("a", "y"), younger, younger}}}
	g.Expect(r.wave(r.old())).To(Equal("y"), "Cluster API shrinks one MachineSet after another")
	r.OnDelete = true
	g.Expect(r.wave(r.old())).To(Equal("x"), "a rollout deletes of all")
	r.Machines = []Machine{old("a", "y"), last, last}
	g.Expect(r.wave(r.old())).To(Equal("y"), "others go before those that go last")
	g.Expect(r.wave(nil)).To(BeEmpty())
	r.waves = false
	g.Expect(r.wave(r.old())).To(BeEmpty())
}

// One more counts only when Cluster API would delete nothing by it but what leaves first.
func TestWhatHasToBeMarkedBeforeOneMoreCounts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rules)
		reason Reason
	}{
		"two are taken, and two are marked":  {func(*rules) {}, ""},
		"one more counts as of now":          {func(r *rules) { r.counted = 1 }, Wave},
		"fewer may be missing":               {func(r *rules) { r.Replicas, r.Stock.Unavailable = 2, 1 }, ""},
		"more may be missing than there are": {func(r *rules) { r.Replicas, r.Stock.Unavailable = 1, 2 }, Wave},
		"all may be missing":                 {func(r *rules) { r.Replicas, r.Stock.Unavailable = 2, 2 }, Wave},
		"there are no waves":                 {func(r *rules) { r.waves, r.counted = false, 1 }, ""},
		"three are taken, and three are marked": {func(r *rules) {
			r.Stock.Unavailable, r.Machines[2].Set, r.Machines[2].Marked = 2, "1", true
		}, ""},
		"a mark that is to be taken back is of no MachineSet that is reached": {func(r *rules) {
			r.Machines[2].Marked, r.Machines[2].MarkedByUs, r.Machines[2].Domain = true, true, "y"
		}, ""},
		"a mark is to be taken back": {func(r *rules) {
			r.Machines[2].Marked, r.Machines[2].MarkedByUs, r.Machines[2].Domain = true, true, "y"
			r.Machines[3].Marked, r.Machines[2].Available, r.Machines[3].Available, r.counted = true, true, true, 1
			r.Replicas = 3
		}, Wave},
		"all of two MachineSets are taken, and all are marked": {func(r *rules) {
			r.Machines[2].Marked, r.Machines[3].Marked, r.counted = true, true, 3
		}, ""},
		"all of two are taken and one of a third, which is not marked": {func(r *rules) {
			third := old("e", "x")
			third.Set, third.Available = "3", false
			r.Machines[2].Marked, r.Machines[3].Marked, r.counted = true, true, 3
			r.Machines = append(r.Machines, third)
		}, Wave},
		"none is taken, and a mark is to be taken back": {func(r *rules) {
			r.Replicas, r.Machines[0].MarkedByUs, r.Machines[1].Available = 2, true, false
		}, ""},
		"one leaves, and one more counts as of now": {func(r *rules) {
			gone := old("gone", "x")
			gone.Deleting, r.counted = true, 1
			r.Machines = append(r.Machines, gone)
		}, Wave},
		"a person deletes":                         {func(r *rules) { r.OnDelete, r.counted = true, 1 }, ""},
		"too few would be left":                    {func(r *rules) { r.least = 3 }, Limited},
		"nothing is replaced that could be missed": {func(r *rules) { r.least = 3; r.Machines = nil; r.Completed = "2" }, ""},
	} {
		r := &rules{leaving: leaving{waves: true}}
		r.Pool = Pool{Name: "blue", Replicas: 1, Revision: "2", Completed: "1"}
		for _, name := range []string{"a", "b", "c", "d"} {
			m := old(name, "x")
			m.Marked = name < "c"
			m.Available = name < "c"
			if name > "b" {
				m.Set = "2"
			}
			r.Machines = append(r.Machines, m)
		}
		c.change(r)
		reason, why := r.beforeCounting()
		NewWithT(t).Expect(reason).To(Equal(c.reason), name)
		NewWithT(t).Expect(why != "").To(Equal(reason != ""), name)
	}
}

// Outdated Machines are known by the age of their MachineSets, and of sets that are as old by name.
func TestTheOldestMachineSetComesFirst(t *testing.T) {
	r := &rules{}
	for i, name := range []string{"c", "b", "a"} {
		m := old(name, "")
		m.Set, m.SetMade = name, time.Unix(map[string]int64{"c": 2}[name], 0)
		m.Created = time.Unix(int64(i), 0)
		r.Machines = append(r.Machines, m)
	}
	var names []string
	for _, m := range r.old() {
		names = append(names, m.Name)
	}
	NewWithT(t).Expect(names).To(Equal([]string{"a", "b", "c"}))
}
