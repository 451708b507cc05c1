// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// BenchmarkPlan decides about a pool of which half is new and soaks. Each Machine costs the same.
func BenchmarkPlan(b *testing.B) {
	for _, machines := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) {
			now := newFleet().now
			pool := Pool{Name: "blue", Replicas: machines, Stock: Limits{Surge: machines / 2}, Revision: "2", Completed: "1"}
			for i := range machines {
				m := Machine{Name: fmt.Sprintf("blue-%05d", i), Hosted: true, Joined: true, Admitted: now, Since: now,
					Available: true}
				m.Outdated, m.Gated = i%2 == 0, i%2 == 1
				pool.Machines = append(pool.Machines, m)
			}
			policy := &quoinv1.RolloutPolicySpec{SoakSeconds: ptr.To[int32](60)}
			for b.Loop() {
				Plan(State{Pools: []Pool{pool}}, policy, now.Add(time.Second))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*machines), "ns/machine")
		})
	}
}

// What stops a pool is found once for all its Machines, and is what a look at each of them finds.
func TestWhatStopsAPoolIsFoundOnce(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.disturb(t)
			f.step(t)
		}
		pools, err := arrange(f.state().Pools, &f.policy)
		if err != nil {
			t.Fatal(err)
		}
		for i := range pools {
			pool, want := &pools[i], ""
			for _, m := range pool.Machines {
				if m.stage() == counts && m.Unhealthy != "" && m.NeedsUpdate == "" && want == "" {
					want = fmt.Sprintf("Machine %s is new and not healthy any more: %s. Mend or delete it", m.Name, m.Unhealthy)
				}
			}
			if pool.suspended != "" {
				want = pool.suspended
			}
			if _, why := (&planner{}).stops(pool); why != want {
				t.Fatalf("%s: %q instead of %q", f.draw(), why, want)
			}
		}
	})
}

// The first rule that holds a rollout says why.
func TestWhatHoldsARollout(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner, *rules, *room)
		want   string
	}{
		"nothing does":   {func(*planner, *rules, *room) {}, ": "},
		"a drain failed": {func(_ *planner, r *rules, _ *room) { r.failed = "it hangs" }, "DrainFailed: it hangs"},
		"a person is waited for": {func(_ *planner, r *rules, _ *room) { r.pausedAfter = "a" },
			"PausedAfter: Machine a is validated; set spec.continueAfter to a to go on"},
		"each Machine is tried": {func(_ *planner, r *rules, room *room) {
			r.pause, room.inFlight = quoinv1.RolloutPauseEachMachine, 1
		}, "InFlight: one is made at a time, because pauseAfter is EachMachine: the last one has to count first"},
		"as many as may be are on their way": {func(_ *planner, _ *rules, room *room) { room.inFlight = 2 },
			"InFlight: 2 on their way, and 2 may be: one has to count first"},
		"there are as many as may be": {func(_ *planner, _ *rules, room *room) { room.present = 3 },
			"MaxSurge: 3 Machines for 1 replicas, and 2 more may be: one has to leave first"},
		"what takes its place would not start": {func(_ *planner, r *rules, _ *room) { r.Unsupported = "it is newer" },
			"ControlPlane: what takes the place of a Machine would not start: it is newer"},
	} {
		p := &planner{policy: &quoinv1.RolloutPolicySpec{}, now: eight, current: []string{"blue"}}
		pool := &rules{Pool: Pool{Name: "blue", Replicas: 1, Revision: "2", Stock: Limits{Surge: 2},
			Machines: []Machine{{Name: "a", Hosted: true, Joined: true}}}, limits: Limits{Surge: 2}}
		room := &room{present: 1}
		c.change(p, pool, room)
		reason, why := p.holds(pool, room)
		NewWithT(t).Expect(string(reason)+": "+why).To(Equal(c.want), name)
	}
}

// What becomes of a Machine that is on its way, and of one that waits behind it.
func TestWhatANewMachineWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*State, *quoinv1.RolloutPolicySpec)
		want   []string
		stalls Reason
		again  time.Duration
	}{
		"it soaks": {func(_ *State, policy *quoinv1.RolloutPolicySpec) { policy.SoakSeconds = ptr.To[int32](90) },
			[]string{"Wait b (Soaking): healthy since 2026-11-23T07:59:00Z, counts at 2026-11-23T08:00:30Z",
				"Hold c (Canary): the first Machine of the present template is tried alone until it counts"}, "", 30 * time.Second},
		"it soaked for a second": {func(_ *State, policy *quoinv1.RolloutPolicySpec) { policy.SoakSeconds = ptr.To[int32](1) },
			[]string{"Count b (Validated): it was healthy for 1s",
				"Hold c (Canary): the first Machine of the present template is tried alone until it counts"}, "", 0},
		"a person is waited for": {func(_ *State, policy *quoinv1.RolloutPolicySpec) {
			policy.PauseAfter = quoinv1.RolloutPauseCanary
		}, []string{"Wait b (PausedAfter): it is validated; set spec.continueAfter to b to go on",
			"Hold c (PausedAfter): Machine b is validated; set spec.continueAfter to b to go on"}, "", 0},
		"it takes too long": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Machines[1].Unhealthy, policy.DeadlineSeconds = "ill", ptr.To[int32](3600)
		}, []string{"Wait b (NotHealthy): ill",
			"Hold c (Canary): the first Machine of the present template is tried alone until it counts"},
			DeadlineExceeded, 0},
		"it takes the place of one that was selected": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			pool := &s.Pools[0]
			pool.Stock.Unavailable, pool.Completed, pool.Selected = 1, "2", "gone"
			pool.Machines[0].Outdated, pool.Machines[1].Unhealthy, pool.Replicas = false, "ill", 3
		}, []string{"Wait b (NotHealthy): ill", "Admit c (Selected): it takes the place of Machine gone"}, "", 0},
		"what takes that place is there": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			pool := &s.Pools[0]
			pool.Stock.Unavailable, pool.Completed, pool.Selected = 1, "2", "gone"
			pool.Machines[0].Outdated, pool.Machines[1].Unhealthy, pool.Replicas = false, "ill", 2
		}, []string{"Wait b (NotHealthy): ill", "Admit c (Next): there is room for one more"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Stock: Limits{Surge: 2}, Machines: []Machine{
				{Name: "a", Outdated: true, Hosted: true, Joined: true, Available: true},
				{Name: "b", Hosted: true, Joined: true, Gated: true, Admitted: eight.Add(-time.Hour),
					Since: eight.Add(-time.Minute)}, {Name: "c"}}}}}
			policy := &quoinv1.RolloutPolicySpec{}
			c.change(&s, policy)
			result := Plan(s, policy, eight)
			var said []string
			for _, d := range result.Decisions {
				said = append(said, fmt.Sprintf("%s %s (%s): %s", d.Action, d.Machine, d.Reason, d.Message))
			}
			g.Expect(said).To(Equal(c.want))
			g.Expect(result.Cause).To(Equal(c.stalls))
			g.Expect(result.Again).To(Equal(c.again))
		})
	}
}

// A pool keeps others back while something of it is on its way, and not for what leaves or finds no host.
func TestWhatOtherPoolsWaitFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Machine)
		busy   bool
	}{
		"it is on its way":   {func(*Machine) {}, true},
		"it counts":          {func(m *Machine) { m.Gated = false }, false},
		"it is deleted":      {func(m *Machine) { m.Deleting = true }, false},
		"it finds no host":   {func(m *Machine) { m.NoHost = "none" }, false},
		"it is outdated":     {func(m *Machine) { m.Outdated = true }, true},
		"it waits as gated":  {func(m *Machine) { m.Hosted = false }, true},
		"a person marked it": {func(m *Machine) { m.NeedsUpdate = "marked" }, true},
	} {
		m := Machine{Hosted: true, Joined: true, Gated: true}
		c.change(&m)
		NewWithT(t).Expect(Pool{Machines: []Machine{m}}.busy()).To(Equal(c.busy), name)
	}
}

// How many Machines have to count before what is replaced is done.
func TestHowManyHaveToCount(t *testing.T) {
	is, was := Machine{Hosted: true, Joined: true}, Machine{Hosted: true, Joined: true, Outdated: true}
	leaves, marked, waiting := is, is, Machine{}
	leaves.Deleting, marked.Deleting, marked.NeedsUpdate = true, true, "marked"
	for name, c := range map[string]struct {
		pool     Pool
		selected string
		want     int
	}{
		"nothing is replaced":               {Pool{Replicas: 2, Revision: "2", Machines: []Machine{is, is}}, "", 0},
		"and nothing of it is completed":    {Pool{Replicas: 3, Revision: "2", Machines: []Machine{is, is}}, "", 0},
		"it is completed":                   {Pool{Replicas: 2, Revision: "2", DoneOf: 3, Machines: []Machine{is, is}}, "", 0},
		"it is completed but for one":       {Pool{Replicas: 3, Revision: "2", DoneOf: 3, Machines: []Machine{is, is}}, "", 3},
		"all are outdated":                  {Pool{Replicas: 2, Machines: []Machine{was, was}}, "", 2},
		"one of them is at work":            {Pool{Replicas: 2, Machines: []Machine{was, waiting, {Outdated: true}}}, "", 1},
		"more than are wanted are":          {Pool{Replicas: 1, Machines: []Machine{was, was}}, "", 1},
		"one counts already":                {Pool{Replicas: 3, Machines: []Machine{was, is}}, "", 3},
		"it is known":                       {Pool{Replicas: 3, DoneOf: 1, Machines: []Machine{was, was}}, "", 1},
		"more count than that":              {Pool{Replicas: 3, DoneOf: 1, Machines: []Machine{was, is, is}}, "", 2},
		"one is selected":                   {Pool{Replicas: 3, Machines: []Machine{is, marked}}, "a", 2},
		"another one is deleted beside it":  {Pool{Replicas: 3, Machines: []Machine{is, marked, leaves}}, "a", 2},
		"it was selected before":            {Pool{Replicas: 3, Selected: "a", Machines: []Machine{is, marked}}, "a", 3},
		"another one was, and more counted": {Pool{Replicas: 3, Selected: "b", DoneOf: 3, Machines: []Machine{is, marked}}, "a", 3},
	} {
		NewWithT(t).Expect(c.pool.doneOf(c.selected)).To(Equal(c.want), name)
	}
}

// A group's own rules come before those of the policy.
func TestAGroupHasRulesOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{SoakSeconds: ptr.To[int32](60), OnFailure: quoinv1.RolloutFailureRollback,
		Groups: []quoinv1.RolloutGroup{{Name: "a", MachineDeployments: quoinv1.RolloutSelector{Names: []string{"blue"}}}}}
	arranged := func() rules {
		pools, err := arrange([]Pool{{Name: "blue"}}, policy)
		g.Expect(err).NotTo(HaveOccurred())
		return pools[0]
	}
	g.Expect(arranged().soak).To(Equal(time.Minute))
	g.Expect(Plan(State{Pools: []Pool{{Name: "blue"}}}, policy, eight).Progress[0].RollsBack).To(BeTrue())
	policy.Groups[0].SoakSeconds, policy.Groups[0].OnFailure = ptr.To[int32](0), quoinv1.RolloutFailureStop
	g.Expect(arranged().soak).To(BeZero())
	g.Expect(Plan(State{Pools: []Pool{{Name: "blue"}}}, policy, eight).Progress[0].RollsBack).To(BeFalse())
}
