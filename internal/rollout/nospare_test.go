// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// without are pools that have as many hosts as replicas, or a few more, and may have no Machine missing.
func without(t *rapid.T) *fleet {
	f := drawn(t)
	f.policy.Strategy = nil
	if rapid.Bool().Draw(t, "inWaves") {
		f.policy.Strategy = ptr.To(strategy("3", ""))
		f.policy.Strategy.Waves = quoinv1.RolloutWavesFailureDomain
	}
	for _, d := range f.pools {
		d.surge, d.unavailable = max(1, d.surge), 0
		d.capacity = max(1, d.replicas) + rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "spare")
	}
	return f
}

func (d *deployment) have() int {
	return d.of(d.template, (*node).available) + d.of(d.template-1, (*node).available)
}

// A fleet without a spare is rolled out with never more than one Machine missing of any pool, no host is ever given to
// an outdated Machine again, and no more new Machines are made than were selected.
//
// Proves: S3-19, S3-30
func TestAFleetWithoutASpareIsRolledOutWithOneMissing(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := without(t)
		f.policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		for range 5 {
			f.step(t)
		}
		selected := map[string]int{}
		for _, d := range f.pools {
			d.template++
			selected[d.name] = d.replicas
		}
		admitted := map[string]int{}
		for range 3000 {
			f.policy.ContinueAfter = f.result.PausedAfter
			f.step(t)
			for _, d := range f.pools {
				if have := d.have(); have < d.replicas-1 {
					t.Fatalf("%s has %d of %d: %s", d.name, have, d.replicas, f.draw())
				}
				admitted[d.name] = max(admitted[d.name], d.of(d.template, (*node).occupies))
				if again := d.of(d.template-1, func(n *node) bool { return !n.admitted.IsZero() }); again > 0 {
					t.Fatalf("%s has %d outdated Machines admitted: %s", d.name, again, f.draw())
				}
				if admitted[d.name] > selected[d.name] {
					t.Fatalf("%s: %d new ones for %d", d.name, admitted[d.name], selected[d.name])
				}
			}
			if f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%v", f.draw(), f.says(), f.lines())
	})
}

// Whatever happens, nobody removes a Machine where one is missing already, or where the policy waits for a host.
func TestNoMachineIsRemovedWhereOneIsMissing(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := without(t)
		f.policy.WhenNoSpare = rapid.SampledFrom([]quoinv1.RolloutWithoutSpare{"", quoinv1.RolloutWithoutSpareWait,
			quoinv1.RolloutWithoutSpareRemoveFirst, quoinv1.RolloutWithoutSpareRemoveFirst}).Draw(t, "whenNoSpare")
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			f.disturb(t)
			was := f.state()
			for _, d := range f.decide() {
				if d.Reason == NoSpare && d.Action == Delete {
					judgeRemoval(t, was, d, f.policy.WhenNoSpare, f.unhealthy)
				}
				if d.Reason == Outdated && d.Action == Delete {
					f.pool(d.Pool).judgeWay(t, d.Machine)
				}
			}
			f.moves()
			f.now = f.now.Add(tick)
		}
		for _, d := range f.pools {
			d.capacity = 0 // hosts are added
		}
		for range 2000 {
			f.heal(true)
			f.policy.ContinueAfter = f.result.PausedAfter
			f.decide()
			f.moves()
			f.now = f.now.Add(tick)
			f.sleep()
			if f.settled() {
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%v", f.draw(), f.says(), f.lines())
	})
}

// judgeWay holds the deletion of a Machine that makes way for a new one against what is lost with it, which is nothing.
func (d *deployment) judgeWay(t *rapid.T, machine string) {
	awaits := d.of(d.template, func(n *node) bool { return n.deleted.IsZero() && !n.occupies() })
	if n := d.node(machine); n.template == d.template || !n.hosted.IsZero() || d.spare() || d.onDelete || awaits == 0 {
		t.Fatalf("%s makes way for %d and should not: %+v", machine, awaits, n)
	}
}

func judgeRemoval(t *rapid.T, was State, d Decision, when quoinv1.RolloutWithoutSpare, ill string) {
	if when != quoinv1.RolloutWithoutSpareRemoveFirst || ill != "" {
		t.Fatalf("%s is removed by %q while the control plane says %q", d.Machine, when, ill)
	}
	for _, p := range was.Pools {
		if p.Name != d.Pool {
			continue
		}
		rest, waiting := 0, 0
		victim := p.Machines[slices.IndexFunc(p.Machines, func(m Machine) bool { return m.Name == d.Machine })]
		for _, m := range p.Machines {
			if victim.Last && victim.inService() && m.stage() == outdated && m.Returns && m.Set == victim.Set && !m.Last &&
				!victim.Marked && !victim.Condemned {
				t.Fatalf("%s goes last and is removed before %s", d.Machine, m.Name)
			}
			switch {
			case m.Name == d.Machine:
				if !m.Outdated || m.Deleting || !m.Hosted {
					t.Fatalf("%s is removed and should not: %+v", d.Machine, m)
				}
			case m.Deleting && m.Hosted:
				t.Fatalf("%s is removed while %s leaves", d.Machine, m.Name)
			case !m.Deleting && m.NoHost != "" && !m.Outdated:
				waiting++
			case !m.Deleting && !m.Gated && m.Joined && m.Unhealthy == "":
				rest++
			}
		}
		if rest < p.Replicas-1 || waiting == 0 {
			t.Fatalf("%s is removed, %d of %d stay for %d that wait", d.Machine, rest, p.Replicas, waiting)
		}
	}
}

// Hosts that the new Machine could not have are not freed for it, and one that is being prepared is waited for.
func TestOnlyAHostThatHelpsIsFreed(t *testing.T) {
	f := newFleet()
	d := &deployment{name: "blue", template: 1, replicas: 2, surge: 1, capacity: 2}
	d.whole(f.now)
	f.pools = append(f.pools, d)
	f.policy.WhenNoSpare, f.policy.SoakSeconds = quoinv1.RolloutWithoutSpareRemoveFirst, ptr.To[int32](0)
	d.template++
	for _, n := range d.machines {
		n.holdsOn = true
	}
	for range 10 {
		f.decide()
		f.moves()
	}
	if reason := f.result.Progress[0].Reason; reason != NoSpare || len(d.machines) != 3 {
		t.Fatalf("%s: %s", reason, f.draw())
	}
	d.machines[1].holdsOn = false
	s := f.state()
	s.Pools[0].Coming = 1
	for _, decision := range Plan(s, &f.policy, f.now).Decisions {
		if decision.Reason == NoSpare && decision.Action == Delete {
			t.Fatalf("%+v", decision)
		}
	}
	if done := f.decide(); len(done) != 1 || done[0].Machine != "blue-2" {
		t.Fatalf("%+v", done)
	}
}

// Whoever does what the message of a pool without a spare says, and adds no host, has its rollout end.
func TestTheWayOutEndsTheRollout(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := newFleet()
		d := &deployment{name: "blue", template: 1, replicas: rapid.IntRange(1, 4).Draw(t, "replicas")}
		if d.onDelete = rapid.Bool().Draw(t, "onDelete"); !d.onDelete {
			d.surge, d.unavailable = rapid.IntRange(1, 2).Draw(t, "surge"), rapid.IntRange(0, 1).Draw(t, "unavailable")
		}
		d.capacity = d.replicas + rapid.IntRange(0, 1).Draw(t, "spare")
		d.whole(f.now)
		f.pools = append(f.pools, d)
		f.policy.WhenNoSpare = rapid.SampledFrom([]quoinv1.RolloutWithoutSpare{quoinv1.RolloutWithoutSpareWait,
			quoinv1.RolloutWithoutSpareRemoveFirst}).Draw(t, "whenNoSpare")
		d.template++
		f.tell(time.Duration(rapid.IntRange(0, 60).Draw(t, "after")) * tick)
		d.replicas += rapid.IntRange(0, 3).Draw(t, "more")
		for range 4 {
			f.tell(time.Hour)
			if d.completed == fmt.Sprint(d.template) {
				return
			}
			says := f.says()
			if _, to, is := strings.Cut(says, "or set replicas of MachineDeployment blue to "); is {
				if _, err := fmt.Sscanf(to, "%d", &d.replicas); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(says, "spec.whenNoSpare to RemoveFirst") {
				f.policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
			}
		}
		t.Fatalf("it does not end: %s %d of %d hosts\n%s", f.draw(), d.replicas, d.capacity, f.says())
	})
}

// What a new Machine that finds no host waits for, and whether an outdated one is deleted for it.
func TestWhatANewMachineWithoutAHostWaitsFor(t *testing.T) {
	const victim = "no free host. Machine blue-1 is deleted first, as whenNoSpare says"
	const but = "no free host, since 2026-11-23T08:00:00Z. whenNoSpare is RemoveFirst, but "
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutPolicySpec)
		says   string
	}{
		"one that serves makes room": {func(*Pool, *quoinv1.RolloutPolicySpec) {}, victim},
		"nobody consents": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) { policy.WhenNoSpare = "" },
			"no free host, since 2026-11-23T08:00:00Z. Add a host, or set spec.whenNoSpare to RemoveFirst, so that an " +
				"outdated Machine is deleted first and one is missing meanwhile"},
		"nobody consents, and all have to be available": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare, policy.Strategy = "", least(3)
		}, "no free host, since 2026-11-23T08:00:00Z. Add a host, or lower minAvailable, which asks for 3 of 3 Machines, and " +
			"set spec.whenNoSpare to RemoveFirst, so that an outdated Machine is deleted first and one is missing meanwhile"},
		"nobody consents, and nothing leaves its host": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare, policy.Strategy = "", &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, "no free host, since 2026-11-23T08:00:00Z. Add a host"},
		"Cluster API deletes one": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Stock.Unavailable = 1 },
			"no free host. Cluster API deletes one, because maxUnavailable of the MachineDeployment is not 0"},
		"as many are missing as Cluster API lets be": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Stock.Unavailable, p.Machines[0].Unhealthy = 1, "ill"
		}, victim},
		"nothing leaves its host": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, but + madeAgain},
		"nothing leaves its host, nor does what is deleted": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy, p.Machines[1].Deleting = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}, true
		}, but + madeAgain},
		"no host would help": {holds, but + "none of its outdated Machines has a host that the new one could have: add a " +
			"host"},
		"no host would help more replicas than there were": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			holds(p, policy)
			p.DoneOf = 2
		}, but + "none of its outdated Machines has a host that the new one could have: add a host, or set replicas of " +
			"MachineDeployment blue to 2, as before, until its rollout is done"},
		"all have to be available": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) { policy.Strategy = least(3) },
			but + "minAvailable asks for 3 of 3 Machines: add a host, or lower it"},
		"two have to be available": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) { policy.Strategy = least(2) }, victim},
		"fewer are available than there were": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Replicas, p.DoneOf = 5, 3
			p.Machines[2].Unhealthy, p.Machines[2].Returns = "ill", false
		}, but + "only 2 of 5 Machines are available, and one more would be missing: add a host, or mend what is not " +
			"available"},
		"one that does not serve makes room": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			p.Machines[0].Unhealthy, policy.Strategy = "ill", least(2)
		}, victim},
		"another one does not serve either": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines[0].Unhealthy, p.Machines[1].Unhealthy = "ill", "ill"
		}, but + "only 1 of 3 Machines are available, and one more would be missing: add a host, or mend what is not " +
			"available"},
		"more serve than replicas": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Replicas = 2 }, victim},
		"as many are available as there were": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Replicas, p.DoneOf = 5, 3 },
			but + "only 3 of 5 Machines are available, and one more would be missing: add a host, or mend what is not " +
				"available, or set replicas of MachineDeployment blue to 3, as before, until its rollout is done"},
		"no host would help as many replicas as there were": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			holds(p, policy)
			p.Replicas, p.DoneOf = 5, 3
		}, but + "none of its outdated Machines has a host that the new one could have: add a host"},
		"what would be made would not start": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Unsupported = "it is newer" },
			but + "what takes the place of a Machine would not start: it is newer"},
		"one leaves its host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Machines[1].Deleting = true },
			"no free host. Machine blue-2 leaves its host"},
		"one leaves a host that the new one cannot have": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines[1].Deleting, p.Machines[1].Returns = true, false
		}, but + "only 2 of 3 Machines are available, and one more would be missing: add a host, or mend what is not " +
			"available"},
		"nobody consents, and one leaves a host that the new one cannot have": {
			func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
				policy.WhenNoSpare, p.Machines[1].Deleting, p.Machines[1].Returns = "", true, false
			}, "no free host, since 2026-11-23T08:00:00Z. Add a host, or set spec.whenNoSpare to RemoveFirst, so that an " +
				"outdated Machine is deleted first and one is missing meanwhile"},
		"one leaves without a host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, Machine{Name: "blue-5", Outdated: true, Deleting: true})
		}, victim},
		"another one is on its way": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines[1].Outdated, p.Machines[1].Joined = false, false
		}, "no free host. Machine blue-2 is on its way, and frees a host when it counts"},
		"hosts are prepared": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Coming = 1 },
			"no free host. Hosts that it can have, 1, are free, being prepared or left"},
		"nobody consents, and one leaves its host": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare, p.Machines[1].Deleting = "", true
		}, "no free host. Machine blue-2 leaves its host"},
		"nothing is replaced, and one leaves its host": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare, p.Machines = "", p.Machines[2:]
			p.Machines[0].Outdated, p.Machines[0].Deleting = false, true
		}, "no free host. Machine blue-3 leaves its host"},
		"nothing is replaced, and another one is on its way": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare, p.Machines, p.Replicas = "", p.Machines[2:], 2
			p.Machines[0].Outdated, p.Machines[0].Joined = false, false
		}, "no free host, since 2026-11-23T08:00:00Z. Add a host, or set replicas of MachineDeployment blue to 1"},
		"another one could take the host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			for i := range 3 {
				p.Machines[i].Rivals = []Rival{{"amber-4", "amber"}, {"red-1", "red"}}
			}
		}, but + "Machine red-1 finds no host either and could take the one that becomes free, and nothing would " +
			"bring this pool another one: add a host, or have fewer replicas there"},
		"another one could take one of the hosts": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines[1].Rivals = []Rival{{"red-1", "red"}}
		}, victim},
		"another one could take the host, and gives one back": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			for i := range 3 {
				p.Machines[i].Rivals = []Rival{{"amber-4", "amber"}}
			}
		}, victim},
		"a rollout deletes Machines itself": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.OnDelete = true },
			"no free host, since 2026-11-23T08:00:00Z. Add a host"},
		"nothing is replaced, and nothing counts": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Replicas, p.Machines = 1, p.Machines[3:]
		}, "no free host, since 2026-11-23T08:00:00Z. Add a host"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pool := Pool{Name: "blue", Replicas: 3, Stock: Limits{Surge: 1}, Revision: "new", Completed: "old"}
			for i := range 3 {
				pool.Machines = append(pool.Machines, Machine{Name: fmt.Sprintf("blue-%d", i+1), Outdated: true, Hosted: true,
					Joined: true, Available: true, Returns: true, Created: now.Add(-time.Hour)})
			}
			pool.Machines = append(pool.Machines, Machine{Name: "blue-4", Admitted: now, Gated: true, NoHost: "no free host",
				Created: now})
			policy := &quoinv1.RolloutPolicySpec{WhenNoSpare: quoinv1.RolloutWithoutSpareRemoveFirst}
			c.change(&pool, policy)
			pools := []Pool{pool, {Name: "amber", Machines: []Machine{{Name: "amber-1", Outdated: true}}}, {Name: "red"}}
			result := Plan(State{Pools: pools}, policy, now)
			for _, d := range result.Decisions {
				if d.Machine == "blue-4" {
					g.Expect(d.Message).To(Equal(c.says))
					g.Expect(d.Reason == Provisioning).To(Equal(!strings.Contains(c.says, ", since ")), "%s", d.Reason)
				}
			}
			g.Expect(removes(result)).To(Equal(c.says == victim))
			g.Expect(result.Again == time.Minute).To(Equal(policy.WhenNoSpare != "" && !pool.OnDelete ||
				strings.HasSuffix(c.says, "leaves its host")), "hosts are looked at again")
		})
	}
}

func removes(r Result) bool {
	return slices.ContainsFunc(r.Decisions, func(d Decision) bool { return d.Action == Delete })
}

func holds(p *Pool, _ *quoinv1.RolloutPolicySpec) {
	for i := range p.Machines {
		p.Machines[i].Returns = false
	}
}

func least(machines int) *quoinv1.RolloutStrategy {
	strategy := &quoinv1.RolloutStrategy{}
	strategy.MinAvailable = ptr.To(intstr.FromInt(machines))
	return strategy
}

// An outdated Machine makes way for a new one only where nothing is lost with it, and nobody else takes it.
func TestWhoMakesWay(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutPolicySpec)
		makes  bool
	}{
		"one that finds no host": {func(*Pool, *quoinv1.RolloutPolicySpec) {}, true},
		"one that may find one":  {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Machines[1].NoHost = "" }, false},
		"one without its hooks": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) { policy.Drain = &quoinv1.RolloutDrain{} },
			false},
		"Cluster API makes one for each that is deleted": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.OnDelete, p.Completed = true, "old"
		}, false},
		"nothing leaves its host": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, false},
		"no new one waits": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Machines = p.Machines[:2] }, false},
		"something else holds the new one": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Unsupported = "it is newer" },
			false},
		"one that got a host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Machines[1].Hosted = true }, false},
		"another one leaves its host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, Machine{Name: "blue-0", Outdated: true, Deleting: true, Hosted: true})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pool := Pool{Name: "blue", Replicas: 1, Stock: Limits{Surge: 1}, Revision: "new", Completed: "old",
				Machines: []Machine{
					{Name: "blue-1", Hosted: true, Joined: true, Available: true, Created: now.Add(-2 * time.Hour)},
					{Name: "blue-2", Outdated: true, Admitted: now, NoHost: "no free host", Created: now.Add(-time.Hour)},
					{Name: "blue-3", Created: now},
				}}
			policy := &quoinv1.RolloutPolicySpec{}
			c.change(&pool, policy)
			result := Plan(State{Pools: []Pool{pool}}, policy, now)
			NewWithT(t).Expect(removes(result)).To(Equal(c.makes), "%+v", result.Decisions)
			// A new one of another pool that waits for its own is none of this pool's.
			amber := pool
			amber.Name, amber.Machines = "amber", slices.Clone(pool.Machines)
			for i := range amber.Machines {
				amber.Machines[i].NoHost = ""
			}
			pool.Machines = pool.Machines[:2]
			result = Plan(State{Pools: []Pool{amber, pool}}, policy, now)
			NewWithT(t).Expect(removes(result)).To(BeFalse(), "%+v", result.Decisions)
		})
	}
}

// Cluster API deletes one without anybody's consent where as many serve without it, or as many count as are to be.
func TestWhetherAHostIsFreedAnyway(t *testing.T) {
	ill := countedOne
	ill.Unhealthy = "ill"
	for _, c := range []struct {
		machines []Machine
		missing  int
		frees    bool
	}{
		{[]Machine{oldOne, oldOne, oldOne}, 0, true},
		{[]Machine{oldOne, oldOne, ill}, 0, false},
		{[]Machine{oldOne, oldOne, ill}, 1, true},
		{[]Machine{oldOne, ill}, 1, false},
		{[]Machine{oldOne, ill, ill}, 0, true},
	} {
		r := &rules{Pool: Pool{Stock: Limits{Unavailable: c.missing}, Machines: c.machines}}
		NewWithT(t).Expect(r.frees(2)).To(Equal(c.frees), "%+v", c)
	}
}

// The ways out for a new Machine that finds no host, beside one more: fewer replicas, consent, or both.
func TestTheWaysOutForAMachineWithoutAHost(t *testing.T) {
	const consent = " spec.whenNoSpare to RemoveFirst, so that an outdated Machine is deleted first and one is missing " +
		"meanwhile"
	hostless, leaver := Machine{Name: "hostless", Admitted: eight, Gated: true, NoHost: "none"}, countedOne
	leaver.Deleting = true
	less := func(to int) string { return fmt.Sprintf(", or set replicas of MachineDeployment blue to %d", to) }
	const before = ", as before, until its rollout is done"
	for name, c := range map[string]struct {
		pool Pool
		want string
	}{
		"nobody knows how many there were": {Pool{Replicas: 3, Machines: []Machine{oldOne, hostless}}, ", or set" + consent},
		"there were as many": {Pool{Replicas: 2, DoneOf: 2, Machines: []Machine{oldOne, hostless}},
			", or set" + consent},
		"there were fewer, and more serve": {Pool{Replicas: 3, DoneOf: 1, Machines: []Machine{oldOne, oldOne, hostless}},
			less(1) + before},
		"there were fewer, and all serve": {Pool{Replicas: 3, DoneOf: 2, Machines: []Machine{oldOne, oldOne, hostless}},
			less(2) + before + ", and" + consent},
		"a rollout deletes them": {Pool{Replicas: 3, DoneOf: 2, OnDelete: true,
			Machines: []Machine{oldOne, oldOne, hostless}}, less(2) + before},
		"nothing is replaced": {Pool{Replicas: 9, DoneOf: 9, Machines: []Machine{countedOne, movingOne, hostless, leaver,
			{Name: "waits"}}}, less(2)},
		"and as many count": {Pool{Replicas: 1, Machines: []Machine{countedOne, hostless}}, ""},
		"and none counts":   {Pool{Replicas: 3, Machines: []Machine{hostless, leaver}}, ""},
	} {
		c.pool.Name = "blue"
		NewWithT(t).Expect(waysOut(&rules{Pool: c.pool})).To(Equal(c.want), name)
	}
	const lower = " minAvailable, which asks for 3 of 3 Machines, and set" + consent
	scaled := Pool{Name: "blue", Replicas: 3, DoneOf: 2, Machines: []Machine{oldOne, oldOne, hostless}}
	edited, done := scaled, scaled
	edited.DoneOf, done.Machines = 3, []Machine{countedOne, hostless}
	off := &drainRules{off: true}
	for _, c := range []struct {
		rules rules
		want  string
	}{
		{rules{Pool: edited, leaving: leaving{least: 2}}, ", or set" + consent},
		{rules{Pool: edited, leaving: leaving{least: 3}}, ", or lower" + lower},
		{rules{Pool: scaled, leaving: leaving{least: 3}}, less(2) + before + ", lower" + lower},
		{rules{Pool: edited, drain: off}, ""},
		{rules{Pool: scaled, drain: off}, ""},
		{rules{Pool: done, drain: off, leaving: leaving{least: 3}}, less(1)},
	} {
		NewWithT(t).Expect(waysOut(&c.rules)).To(Equal(c.want), "%d of %d, %d asked for, %+v", c.rules.DoneOf, c.rules.Replicas,
			c.rules.least, c.rules.drain)
	}
}

// A policy consents to one that is missing where it says so, something leaves its host, and enough stay available.
func TestRemovesFirst(t *testing.T) {
	g := NewWithT(t)
	pool := Pool{Name: "blue", Replicas: 3}
	policy := &quoinv1.RolloutPolicySpec{WhenNoSpare: quoinv1.RolloutWithoutSpareRemoveFirst, Strategy: least(2)}
	is := func(change func()) bool {
		saved, strategy := *policy, *policy.Strategy
		change()
		removes, err := RemovesFirst(policy, pool)
		g.Expect(err).NotTo(HaveOccurred())
		*policy = saved
		*policy.Strategy = strategy
		return removes
	}
	g.Expect(is(func() {})).To(BeTrue())
	g.Expect(is(func() { policy.WhenNoSpare = quoinv1.RolloutWithoutSpareWait })).To(BeFalse())
	g.Expect(is(func() { policy.Strategy.DrainAndTerminate = ptr.To(false) })).To(BeFalse())
	g.Expect(is(func() { policy.Strategy.MinAvailable = ptr.To(intstr.FromInt(3)) })).To(BeFalse())
	g.Expect(is(func() { policy.Groups = []quoinv1.RolloutGroup{{Name: "none"}} })).To(BeFalse(), "it is not selected")
	policy.Strategy.MinAvailable = ptr.To(intstr.FromString("x"))
	_, err := RemovesFirst(policy, pool)
	g.Expect(err).To(HaveOccurred())
}
