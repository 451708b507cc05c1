// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"each Machine is tried, and none is on its way": {func(_ *planner, r *rules, _ *room) {
			r.pause = quoinv1.RolloutPauseEachMachine
		}, ": "},
		"another pool comes first": {func(p *planner, _ *rules, _ *room) { p.current = []string{"cyan"} },
			"WaitingForPrevious: MachineDeployment cyan comes first"},
		"its own predecessor comes first": {func(p *planner, r *rules, _ *room) {
			p.current, r.behind = []string{"cyan"}, []string{"amber"}
		}, "WaitingForPrevious: MachineDeployment amber comes first"},
		"what counts is not healthy": {func(_ *planner, r *rules, _ *room) {
			r.failing = &Machine{Name: "n", Unhealthy: "ill"}
		}, "GroupUnhealthy: Machine n is new and not healthy any more: ill. Mend or delete it"},
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
	const alone = "Hold c (Canary): the first Machine of the present template is tried alone until it counts"
	const taken = "it is of an earlier template and its place is taken: Cluster API takes it away when all new Machines " +
		"are Available, at the latest; Machine b is not yet"
	closed := func(_ *State, policy *quoinv1.RolloutPolicySpec) {
		policy.Windows = []quoinv1.RolloutWindow{{Start: "20:00", DurationMinutes: ptr.To[int32](60)}}
	}
	counted := func(s *State) { s.Pools[0].Machines = append(s.Pools[0].Machines, countedOne) }
	looked := func(s *State, policy *quoinv1.RolloutPolicySpec) {
		policy.Validation, s.Pools[0].Machines[1].Gated = &quoinv1.RolloutValidation{}, false
	}
	const many = "minAvailable asks for 2 Machines of MachineDeployment blue, which has 1 replicas: lower it, or " +
		"give a percentage"
	for name, c := range map[string]struct {
		change func(*State, *quoinv1.RolloutPolicySpec)
		want   []string
		stalls Reason
		again  time.Duration
	}{
		"it soaks": {func(_ *State, policy *quoinv1.RolloutPolicySpec) { policy.SoakSeconds = ptr.To[int32](90) },
			[]string{"Wait b (Soaking): healthy since 2026-11-23T07:59:00Z, counts at 2026-11-23T08:00:30Z", alone}, "",
			30 * time.Second},
		"it soaked for a second": {func(_ *State, policy *quoinv1.RolloutPolicySpec) { policy.SoakSeconds = ptr.To[int32](1) },
			[]string{"Count b (Validated): it was healthy for 1s", alone}, "", 0},
		"a person is waited for": {func(_ *State, policy *quoinv1.RolloutPolicySpec) {
			policy.PauseAfter = quoinv1.RolloutPauseCanary
		}, []string{"Wait b (PausedAfter): it is validated; set spec.continueAfter to b to go on",
			"Hold c (PausedAfter): Machine b is validated; set spec.continueAfter to b to go on"}, "", 0},
		"it takes too long": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Machines[1].Unhealthy, policy.DeadlineSeconds = "ill", ptr.To[int32](3600)
		}, []string{"Wait b (NotHealthy): ill", alone}, DeadlineExceeded, 0},
		"it may take another second": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Machines[1].Unhealthy, policy.DeadlineSeconds = "ill", ptr.To[int32](3601)
		}, []string{"Wait b (NotHealthy): ill", alone}, "", time.Second},
		"it has no Node": {func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Pools[0].Machines[1].Joined = false },
			[]string{"Wait b (Provisioning): it has no Node yet", alone}, "", 0},
		"it has no Node, and was admitted just now": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Machines[1].Joined, s.Pools[0].Machines[1].Admitted = false, eight
		}, []string{"Wait b (Provisioning): it has no Node yet", alone}, "", 0},
		"it is outdated meanwhile": {func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Pools[0].Machines[1].Outdated = true },
			[]string{"Count b (Validated): it is healthy",
				"Admit c (Canary): nothing is at the present template: one is tried alone; gated"}, "", 0},
		"the control plane is ill": {func(s *State, _ *quoinv1.RolloutPolicySpec) { s.Unhealthy = "no quorum" },
			[]string{"Wait b (ControlPlane): workers wait until the control plane is healthy: no quorum",
				"Hold c (ControlPlane): workers wait until the control plane is healthy: no quorum"}, "", 0},
		"no window is open": {closed, []string{
			"Wait b (WindowClosed): no window is open; the next one opens Mon 2026-11-23 20:00 UTC",
			"Hold c (WindowClosed): no window is open; the next one opens Mon 2026-11-23 20:00 UTC"}, "", 12 * time.Hour},
		"no window is open, and nothing is replaced": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			closed(s, policy)
			s.Pools[0].Machines[0].Outdated, s.Pools[0].Completed = false, "2"
		}, []string{"Count b (Validated): it is healthy", "Admit c (NoRollout): nothing is being replaced"}, "", 0},
		"nothing is replaced by a revision that nobody knows": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Machines[0].Outdated = false
		}, []string{"Count b (Validated): it is healthy", "Admit c (NoRollout): nothing is being replaced; gated"}, "", 0},
		"nothing leaves its host": {func(_ *State, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, []string{"Wait b (DrainAndTerminateFalse): it is validated and does not count, so that nothing is deleted in " +
			"exchange: " + madeAgain,
			"Admit c (Canary): nothing is at the present template: one is tried alone; gated"}, "", 0},
		"nothing leaves its host, and it soaks": {func(_ *State, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
			policy.SoakSeconds = ptr.To[int32](90)
		}, []string{"Wait b (Soaking): healthy since 2026-11-23T07:59:00Z, counts at 2026-11-23T08:00:30Z", alone}, "",
			30 * time.Second},
		"a person let it go on": {func(_ *State, policy *quoinv1.RolloutPolicySpec) {
			policy.PauseAfter, policy.ContinueAfter = quoinv1.RolloutPauseCanary, "b"
		}, []string{"Count b (Validated): it is healthy", alone}, "", 0},
		"one was tried before": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			counted(s)
			policy.PauseAfter = quoinv1.RolloutPauseCanary
		}, []string{"Count b (Validated): it is healthy",
			"Hold c (MaxSurge): 3 Machines for 1 replicas, and 2 more may be: one has to leave first"}, "", 0},
		"each is looked at": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			counted(s)
			policy.PauseAfter = quoinv1.RolloutPauseEachMachine
		}, []string{"Wait b (PausedAfter): it is validated; set spec.continueAfter to b to go on",
			"Hold c (PausedAfter): Machine b is validated; set spec.continueAfter to b to go on"}, "", 0},
		"nobody looks at what is not replaced": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Machines[0].Outdated, policy.PauseAfter = false, quoinv1.RolloutPauseEachMachine
		}, []string{"Count b (Validated): it is healthy", "Admit c (NoRollout): nothing is being replaced; gated"}, "", 0},
		"an outdated one waits, and nothing is missing": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Replicas, s.Pools[0].Machines[2].Outdated = 2, true
		}, []string{"Count b (Validated): it is healthy", "Hold c (Outdated): " + taken}, "", 0},
		"an outdated one waits, and one is missing": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Replicas, s.Pools[0].Machines[2].Outdated = 3, true
		}, []string{"Count b (Validated): it is healthy", "Admit c (Replacement): an outdated Machine is gone before its " +
			"turn, and this one takes its place"}, "", 0},
		"a new one comes before an outdated one": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			counted(s)
			s.Pools[0].Replicas, s.Pools[0].Machines[2].Outdated = 4, true
			s.Pools[0].Machines = append(s.Pools[0].Machines, Machine{Name: "d"})
		}, []string{"Count b (Validated): it is healthy", "Admit d (Next): there is room for one more; gated",
			"Hold c (Outdated): " + taken}, "", 0},
		"there is a place for one more": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			counted(s)
			s.Pools[0].Replicas, s.Pools[0].Stock.Unavailable = 2, 3
			s.Pools[0].Machines = append(s.Pools[0].Machines, Machine{Name: "d"})
		}, []string{"Count b (Validated): it is healthy", "Admit c (Next): there is room for one more; gated",
			"Hold d (MaxSurge): 4 Machines for 2 replicas, and 2 more may be: one has to leave first"}, "", 0},
		"one more may be on its way": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			counted(s)
			s.Pools[0].Replicas = 9
			s.Pools[0].Machines = append(s.Pools[0].Machines, Machine{Name: "d"})
		}, []string{"Count b (Validated): it is healthy", "Admit c (Next): there is room for one more; gated",
			"Hold d (InFlight): 2 on their way, and 2 may be: one has to count first"}, "", 0},
		"too many have to be available": {func(_ *State, policy *quoinv1.RolloutPolicySpec) { policy.Strategy = least(2) },
			[]string{"Wait b (LimitsConflict): " + many, "Hold c (LimitsConflict): " + many}, "", 0},
		"the one that leaves next is marked, and another one is not": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy = &quoinv1.RolloutStrategy{}
			policy.Strategy.Waves = quoinv1.RolloutWavesFailureDomain
			fresh, marked := s.Pools[0].Machines[1], old("a", "x")
			marked.Marked, marked.MarkedByUs = true, true
			second := fresh
			second.Name = "c"
			s.Pools[0].Replicas, s.Pools[0].Machines = 2, []Machine{marked, old("z", "y"), fresh, second}
		}, []string{"Count b (Validated): it is healthy", "Wait c (WaitingForWave): Machines that leave first are marked " +
			"before Cluster API may delete any"}, "", 0},
		"the Cluster is looked at first": {looked, []string{
			"Hold c (Validating): the Cluster is validated: 0 of 2 looks in a row found nothing"}, "", 0},
		"it was looked at before one was deleted": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			looked(s, policy)
			s.Pools[0].OnDelete, s.Pools[0].Replicas = true, 3
		}, []string{"Admit c (Next): there is room for one more; gated",
			"Keep a (InFlight): 1 on their way, and 1 may be: one has to count first"}, "", 0},
		"it was looked at before one was selected": {func(s *State, policy *quoinv1.RolloutPolicySpec) {
			looked(s, policy)
			pool := &s.Pools[0]
			pool.Stock.Unavailable, pool.Completed, pool.Selected, pool.Replicas = 1, "2", "gone", 3
			pool.Machines[0].Outdated = false
		}, []string{"Admit c (Selected): it takes the place of Machine gone; gated"}, "", 0},
		"it takes the place of one that was selected": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			pool := &s.Pools[0]
			pool.Stock.Unavailable, pool.Completed, pool.Selected = 1, "2", "gone"
			pool.Machines[0].Outdated, pool.Machines[1].Unhealthy, pool.Replicas = false, "ill", 3
		}, []string{"Wait b (NotHealthy): ill", "Admit c (Selected): it takes the place of Machine gone; gated"}, "", 0},
		"what takes that place is there": {func(s *State, _ *quoinv1.RolloutPolicySpec) {
			pool := &s.Pools[0]
			pool.Stock.Unavailable, pool.Completed, pool.Selected = 1, "2", "gone"
			pool.Machines[0].Outdated, pool.Machines[1].Unhealthy, pool.Replicas = false, "ill", 2
		}, []string{"Wait b (NotHealthy): ill", "Admit c (Next): there is room for one more; gated"}, "", 0},
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
				line := fmt.Sprintf("%s %s (%s): %s", d.Action, d.Machine, d.Reason, d.Message)
				if d.Gate {
					line += "; gated"
				}
				said = append(said, line)
			}
			g.Expect(said).To(Equal(c.want))
			g.Expect(result.PausedAfter == "b").To(Equal(strings.Contains(said[0], "(PausedAfter)")))
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

// A new Machine that does not serve in time keeps the place of an outdated one that is gone no longer: Cluster API takes
// none away while the new one is not available. There are never more than may surge.
func TestWhoTakesThePlaceOfAnOutdatedMachine(t *testing.T) {
	const held = "Hold (Outdated)"
	const admitted = "Admit (Replacement)"
	fresh := func(p *Pool) *Machine { return &p.Machines[2] }
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutPolicySpec)
		want   string
		again  time.Duration
	}{
		"the new one is broken": {func(*Pool, *quoinv1.RolloutPolicySpec) {}, admitted, 0},
		"the new one has no Node": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			fresh(p).Joined, fresh(p).Unhealthy = false, ""
		}, admitted, 0},
		"the new one has another second": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			fresh(p).Admitted = eight.Add(time.Second - 30*time.Minute)
		}, held, time.Second},
		"the new one has twenty minutes where nobody says": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			fresh(p).Admitted, policy.DeadlineSeconds = eight.Add(time.Second-20*time.Minute), nil
		}, held, time.Second},
		"nobody says, and they are over": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			fresh(p).Admitted, policy.DeadlineSeconds = eight.Add(-20*time.Minute), nil
		}, admitted, 0},
		"nobody knows since when the new one may come": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			fresh(p).Admitted, fresh(p).Created, fresh(p).Joined = time.Time{}, eight.Add(-time.Minute), false
		}, held, 29 * time.Minute},
		"the new one was proved until just now": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Proofs = []Proof{{Machine: "c1", Since: eight.Add(-time.Hour), Lost: eight.Add(-time.Minute)}}
		}, held, 29 * time.Minute},
		"its Cluster was paused until just now": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			fresh(p).Resumed = eight.Add(-time.Minute)
		}, held, 29 * time.Minute},
		"the new one serves": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			fresh(p).Unhealthy, policy.PauseAfter = "", quoinv1.RolloutPauseCanary
		}, held, 0},
		"the new one finds no host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			fresh(p).Hosted, fresh(p).Joined, fresh(p).NoHost = false, false, "none is free"
		}, held, 0},
		"the policy consents to one that is missing": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		}, held, 0},
		"as many are there as may surge": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			broken := *fresh(p)
			broken.Name = "c0"
			p.Machines = append(p.Machines, broken)
		}, held, 0},
		"two may surge": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			broken := *fresh(p)
			broken.Name = "c0"
			p.Machines, p.Stock.Surge = append(p.Machines, broken), 2
		}, admitted, 0},
		"the policy lets none surge": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.Strategy = ptr.To(strategy("0", "1"))
		}, held, 0},
		"Cluster API lets one be missing": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.Stock.Unavailable = 1 }, held, 0},
		"and two are": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			broken := *fresh(p)
			broken.Name, p.Machines[1] = "c0", broken
			p.Stock.Unavailable = 1
		}, admitted, 0},
		"nothing is drained": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			fresh(p).Unhealthy, policy.Strategy = "", &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, "Hold (DrainAndTerminateFalse)", 0},
		"nothing is drained, and the new one counts": {func(p *Pool, policy *quoinv1.RolloutPolicySpec) {
			*fresh(p), policy.Strategy = countedOne, &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, held, 0},
		"another one takes its place": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines[3].Created, p.Stock.Surge = eight, 2
			p.Machines = append(p.Machines, Machine{Name: "a0", Outdated: true})
		}, held, 0},
	} {
		pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Completed: "1", Stock: Limits{Surge: 1}, Machines: []Machine{
			oldOne, oldOne, {Name: "c1", Hosted: true, Joined: true, Gated: true, Unhealthy: "ill",
				Admitted: eight.Add(-30 * time.Minute), Since: eight.Add(-30 * time.Minute)}, {Name: "a4", Outdated: true}}}
		policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800)}
		c.change(&pool, policy)
		result, said := Plan(State{Pools: []Pool{pool}}, policy, eight), ""
		for _, d := range result.Decisions {
			if d.Machine == "a4" {
				said = fmt.Sprintf("%s (%s)", d.Action, d.Reason)
			}
		}
		NewWithT(t).Expect(said).To(Equal(c.want), name)
		NewWithT(t).Expect(result.Again).To(Equal(c.again), name)
	}
}

// While a new Machine that is not Available has its place, Cluster API may not take an outdated one away: that one is
// named.
func TestWhoTakesAnOutdatedMachineAway(t *testing.T) {
	const nobody = "it is of an earlier template and nothing is missing: Cluster API takes it away"
	const late = "it is of an earlier template and its place is taken: Cluster API takes it away when all new Machines " +
		"are Available, at the latest; Machine c1 is not yet"
	fresh := func(p *Pool) *Machine { return &p.Machines[2] }
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutPolicySpec)
		want   string
	}{
		"the policy consents to one that is missing": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		}, late},
		"as many are there as may surge": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, oldOne)
		}, late},
		"the new one has no host": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, oldOne)
			fresh(p).Admitted, fresh(p).Hosted, fresh(p).Joined, fresh(p).Gated = time.Time{}, false, false, false
		}, late},
		"the new one leaves": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, oldOne)
			fresh(p).Deleting = true
		}, nobody},
		"Cluster API does not know yet that the new one serves": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, oldOne)
			fresh(p).Gated, fresh(p).Unhealthy = false, ""
		}, late},
		"the new one serves": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) {
			p.Machines = append(p.Machines, oldOne)
			*fresh(p) = countedOne
		}, nobody},
		"there is no new one":    {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { *fresh(p) = oldOne }, nobody},
		"a rollout deletes them": {func(p *Pool, _ *quoinv1.RolloutPolicySpec) { p.OnDelete = true }, nobody},
	} {
		pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Completed: "1", Stock: Limits{Surge: 1}, Machines: []Machine{
			oldOne, oldOne, {Name: "c1", Hosted: true, Joined: true, Gated: true, Unhealthy: "ill",
				Admitted: eight.Add(-30 * time.Minute), Since: eight.Add(-30 * time.Minute)}, {Name: "x", Outdated: true}}}
		policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800)}
		c.change(&pool, policy)
		said := ""
		for _, d := range Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions {
			if d.Machine == "x" && d.Reason == Outdated {
				said = d.Message
			}
		}
		NewWithT(t).Expect(said).To(Equal(c.want), name)
	}
}

// A Machine that was late is late until it was healthy for its whole soak, and validated where it is asked: that it is
// healthy for a moment is no progress.
//
// Proves: C16
func TestWhatFlapsStaysLate(t *testing.T) {
	const late = "Machine b was admitted at 2026-11-23T07:00:00Z and does not count yet: "
	ago := func(of time.Duration) time.Time { return eight.Add(-of) }
	for name, c := range map[string]struct {
		change func(*State, *Machine, *quoinv1.RolloutPolicySpec)
		want   string
	}{
		"it soaks": {func(*State, *Machine, *quoinv1.RolloutPolicySpec) {},
			late + "healthy since 2026-11-23T07:59:50Z, counts at 2026-11-23T08:00:50Z"},
		"it soaks, and was healthy just after its deadline": {func(_ *State, m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Since, p.SoakSeconds = ago(30*time.Minute-time.Second), ptr.To[int32](3600)
		}, late + "healthy since 2026-11-23T07:30:01Z, counts at 2026-11-23T08:30:01Z"},
		"it soaks, and was healthy in time": {func(_ *State, m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Since, p.SoakSeconds = ago(30*time.Minute), ptr.To[int32](3600)
		}, ""},
		"it is looked at": {func(_ *State, m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Since, p.Validation = ago(time.Minute), &quoinv1.RolloutValidation{}
		}, late + "the Cluster is validated: 0 of 2 looks in a row found nothing"},
		"it has soaked": {func(_ *State, m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Since, p.PauseAfter = ago(time.Minute), quoinv1.RolloutPauseCanary
		}, ""},
		"it has its deadline anew since it was lost": {func(s *State, m *Machine, _ *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Proofs = []Proof{{Machine: "b", Since: ago(50 * time.Minute), Lost: ago(time.Minute)}}
		}, ""},
		"it was lost for long": {func(s *State, m *Machine, _ *quoinv1.RolloutPolicySpec) {
			s.Pools[0].Proofs = []Proof{{Machine: "b", Since: ago(50 * time.Minute), Lost: ago(31 * time.Minute)}}
		}, "Machine b is not healthy any more since 2026-11-23T07:29:00Z and does not count yet: healthy since " +
			"2026-11-23T07:59:50Z, counts at 2026-11-23T08:00:50Z"},
		"nobody has a deadline": {func(_ *State, _ *Machine, p *quoinv1.RolloutPolicySpec) { p.DeadlineSeconds = nil }, ""},
	} {
		s := State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1}, Machines: []Machine{
			oldOne, {Name: "b", Hosted: true, Joined: true, Gated: true, Admitted: eight.Add(-time.Hour),
				Since: ago(10 * time.Second)}}}}}
		policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800), SoakSeconds: ptr.To[int32](60)}
		c.change(&s, &s.Pools[0].Machines[1], policy)
		NewWithT(t).Expect(Plan(s, policy, eight).Stalled).To(Equal(c.want), name)
	}
}

// What takes longer than it may is said, with what keeps it and what a person can do; of several the first.
func TestWhatTakesTooLong(t *testing.T) {
	const b, mend = "Machine b was admitted at 2026-11-23T07:00:00Z and does not count yet: ",
		". Mend or delete the Machine, or take the template before"
	for name, c := range map[string]struct {
		change func(*State, *Machine)
		want   string
	}{
		"it counts":      {func(*State, *Machine) {}, ""},
		"it is ill":      {func(_ *State, m *Machine) { m.Unhealthy = "ill" }, b + "ill" + mend},
		"it has no Node": {func(_ *State, m *Machine) { m.Joined = false }, b + "it has no Node yet" + mend},
		"its conditions say why": {func(_ *State, m *Machine) { m.Joined, m.Unhealthy = false, "it boots" },
			b + "it boots" + mend},
		"its host fails": {func(_ *State, m *Machine) { m.Joined, m.Unhealthy, m.HostFailed = false, "it boots", "no disk" },
			b + "no disk. Delete the Machine, as a MachineHealthCheck does, and another host is tried"},
		"it finds no host": {func(_ *State, m *Machine) { m.Joined, m.Hosted, m.NoHost = false, false, "none is free" },
			b + "none is free, since 2026-11-23T07:00:00Z. Add a host, or set spec.whenNoSpare to RemoveFirst, so that an " +
				"outdated Machine is deleted first and one is missing meanwhile"},
		"it finds no host, and another template came": {func(_ *State, m *Machine) {
			m.Joined, m.NoHost, m.Outdated, m.Unhealthy = false, "none is free", true, "it has no host"
		}, b + "it has no host"},
		"it was not admitted": {func(_ *State, m *Machine) {
			m.Unhealthy, m.Admitted, m.Created = "ill", time.Time{}, eight.Add(-time.Hour)
		}, "Machine b was made at 2026-11-23T07:00:00Z and does not count yet: ill" + mend},
		"it was not admitted, and is new": {func(_ *State, m *Machine) {
			m.Unhealthy, m.Admitted, m.Created = "ill", time.Time{}, eight.Add(time.Second-30*time.Minute)
		}, ""},
		"it fell ill long after": {func(s *State, m *Machine) {
			m.Unhealthy, s.Pools[0].Proofs = "ill", []Proof{{Machine: "b", Since: eight.Add(-50 * time.Minute),
				Lost: eight.Add(-30 * time.Minute)}}
		}, "Machine b is not healthy any more since 2026-11-23T07:30:00Z and does not count yet: ill" + mend},
		"its Cluster was paused for long": {func(_ *State, m *Machine) {
			m.Unhealthy, m.Resumed = "ill", eight.Add(-30*time.Minute)
		}, "Machine b goes on after a pause since 2026-11-23T07:30:00Z and does not count yet: ill" + mend},
		"its Cluster was paused until now": {func(_ *State, m *Machine) {
			m.Unhealthy, m.Resumed = "ill", eight.Add(time.Second-30*time.Minute)
		}, ""},
		"its Cluster was paused before": {func(_ *State, m *Machine) {
			m.Unhealthy, m.Resumed = "ill", eight.Add(-2*time.Hour)
		}, b + "ill" + mend},
		"it fell ill just now": {func(s *State, m *Machine) {
			m.Unhealthy, s.Pools[0].Proofs = "ill", []Proof{{Machine: "b", Since: eight.Add(-50 * time.Minute),
				Lost: eight.Add(time.Second - 30*time.Minute)}}
		}, ""},
		"another one is first": {func(s *State, m *Machine) {
			m.Unhealthy = "ill"
			first := *m
			first.Name, first.Unhealthy = "a2", "worse"
			s.Pools[0].Machines = append(s.Pools[0].Machines, first)
		}, "Machine a2 was admitted at 2026-11-23T07:00:00Z and does not count yet: worse" + mend},
	} {
		s := State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1}, Machines: []Machine{
			oldOne, {Name: "b", Hosted: true, Joined: true, Gated: true, Admitted: eight.Add(-time.Hour),
				Since: eight.Add(-time.Hour)}}}}}
		c.change(&s, &s.Pools[0].Machines[1])
		result := Plan(s, &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800)}, eight)
		NewWithT(t).Expect(result.Stalled).To(Equal(c.want), name)
		NewWithT(t).Expect(result.Cause == DeadlineExceeded).To(Equal(c.want != ""), name)
	}
}

// What is counted of a pool, and remembered of its Machines.
func TestWhatAPlanRemembers(t *testing.T) {
	g := NewWithT(t)
	flies := Machine{Name: "flies", Hosted: true, Joined: true, Gated: true, Admitted: eight.Add(-time.Hour),
		Since: eight.Add(-50 * time.Minute)}
	ill, marked, former, waits := flies, countedOne, flies, Machine{Name: "waits"}
	ill.Name, ill.Unhealthy, marked.NeedsUpdate = "ill", "ill", "marked"
	former.Name, former.Outdated, former.Unhealthy = "former", true, "ill"
	lost := func(name string) Proof { return Proof{Machine: name, Since: eight.Add(-time.Hour), Lost: eight} }
	pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Completed: "1", Stock: Limits{Surge: 2}, LastTermination: eight,
		Proofs:   []Proof{lost("ill"), lost("flies"), lost("former")},
		Machines: []Machine{oldOne, former, flies, ill, marked, countedOne, waits}}
	policy := &quoinv1.RolloutPolicySpec{Groups: []quoinv1.RolloutGroup{{Name: "a",
		MachineDeployments: quoinv1.RolloutSelector{Names: []string{"blue"}}}}}
	progress := Plan(State{Pools: []Pool{pool}}, policy, eight).Progress[0]
	progress.Reason, progress.Message, progress.Left = "", "", Left{}
	g.Expect(progress).To(Equal(Progress{Pool: "blue", Group: "a", Limits: pool.Stock, Completed: "1", InFlight: 2,
		Outdated: 3, Done: 1, Works: true, Held: 1, DoneOf: 3, Pace: Pace{10 * time.Minute}, LastTermination: eight,
		Proofs: []Proof{lost("former"), lost("ill")}}), "what counts now is proved")

	// An outdated Machine with a gate would never be Available to Cluster API, which might delete none beside it.
	former.Unhealthy = ""
	pool.Machines = []Machine{oldOne, former}
	g.Expect(Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions).To(ContainElement(And(
		HaveField("Machine", "former"), HaveField("Action", Count))))
}

// What is said of a pool is what it waits for with most reason, and whether Cluster API deletes Machines all the same.
func TestWhatIsSaidOfAPool(t *testing.T) {
	said := func(action Action, reason Reason) Decision {
		return Decision{Pool: "blue", Machine: "a", Action: action, Reason: reason, Message: string(action)}
	}
	all := []Decision{said(Mark, Order), said(Keep, Order), said(Hold, Surge), said(Delete, Next), said(Count, Validated),
		said(Admit, Next), said(Wait, Soaking)}
	const early = ". Cluster API may delete 1 Machines all the same: set maxUnavailable of MachineDeployment blue to 0"
	type given struct {
		*planner
		pool *rules
	}
	const idle = "NoMachineMade: Cluster API is to make or delete a Machine, and the conditions of MachineDeployment " +
		"blue and its MachineSets, and their events, say what keeps it from that"
	none := func(given) {}
	one := func(action Action, reason Reason) []Decision { return []Decision{said(action, reason)} }
	for name, c := range map[string]struct {
		decided []Decision
		change  func(given)
		want    string
	}{
		"one soaks":         {all, none, "RollingOut: Machine a: Wait"},
		"one is admitted":   {all[:6], none, "RollingOut: Machine a: Admit"},
		"one counts":        {all[:5], none, "RollingOut: Machine a: Count"},
		"one is deleted":    {all[:4], none, "RollingOut: Machine a: Delete"},
		"one is held":       {all[:3], none, "MaxSurge: Machine a: Hold"},
		"one is kept":       {all[:2], none, "NextToLeave: Machine a: Keep" + early},
		"one is marked":     {all[:1], none, idle},
		"a person is asked": {one(Wait, Paused), none, "PausedAfter: Machine a: Wait" + early},
		"one is on its way": {one(Keep, InFlight), none, "RollingOut: Machine a: Keep"},
		"one is tried":      {one(Keep, First), none, "RollingOut: Machine a: Keep"},
		"a drain failed":    {all, func(g given) { g.pool.failed = "it hangs" }, "DrainFailed: it hangs"},
		"one is made first": {all, func(g given) { g.result.Leaves = one(Replace, ReplacementFirst) },
			"ReplacementFirst: Machine a: Replace"},
		"a person marked one": {nil, func(g given) {
			g.pool.Machines = []Machine{{Name: "a", Hosted: true, Joined: true,
				NeedsUpdate: "marked"}}
		}, "LimitsConflict: Machine a is to be replaced (marked), and no Machine may be missing " +
			"meanwhile: set the policy's maxUnavailable to 1 or more, or spec.whenNoSpare to RemoveFirst"},
		"one is drained": {nil, func(g given) { g.result.Leaves = one(Draining, Evicting) },
			"RollingOut: Machine a: Draining"},
		"one is drained, and another pool comes first": {nil, func(g given) {
			g.result.Leaves, g.current = one(Draining, Evicting), []string{"amber"}
		}, "WaitingForPrevious: MachineDeployment amber comes first" + early},
		"nothing is replaced": {nil, func(g given) { g.pool.Machines, g.pool.Completed = nil, "2" }, "UpToDate: "},
		"it is suspended":     {nil, func(g given) { g.pool.suspended = "it rests" }, "Suspended: it rests" + early},
		"all are there": {nil, func(g given) { g.pool.Machines = append(g.pool.Machines, countedOne, countedOne) },
			idle},
		"one leaves": {nil, func(g given) { g.pool.Machines = []Machine{oldOne, {Name: "b", Deleting: true}} },
			"RollingOut: Cluster API replaces Machines"},
		"one was made just now": {nil, func(g given) {
			g.pool.Machines = []Machine{oldOne, countedOne}
			g.pool.Machines[1].Created = eight.Add(-59 * time.Second)
		}, "RollingOut: Cluster API replaces Machines"},
	} {
		p := &planner{policy: &quoinv1.RolloutPolicySpec{}, now: eight, current: []string{"blue"}}
		pool := &rules{Pool: Pool{Name: "blue", Replicas: 2, Revision: "2", Completed: "1", Machines: []Machine{oldOne},
			Stock: Limits{Surge: 1, Unavailable: 1}, Said: NoneMade}, limits: Limits{Surge: 1}}
		c.change(given{p, pool})
		reason, why := p.summary(pool, c.decided)
		NewWithT(t).Expect(string(reason)+": "+why).To(Equal(c.want), name)
	}
}

// It is said that Cluster API deletes Machines where a rollout that waits does not keep it from that.
func TestWhetherMachinesLeaveAllTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		reason Reason
		change func(*rules)
		says   bool
	}{
		"no window is open":            {Closed, func(*rules) {}, true},
		"there are as many as may be":  {Surge, func(*rules) {}, false},
		"limits contradict each other": {Limited, func(*rules) {}, false},
		"none may be missing":          {Closed, func(r *rules) { r.Stock.Unavailable = 0 }, false},
		"the policy drains":            {Closed, func(r *rules) { r.drain = &drainRules{} }, false},
		"no host is free":              {NoSpare, func(*rules) {}, true},
		"no host is free for more":     {NoSpare, func(r *rules) { r.Machines = nil }, false},
		"nothing is to be replaced":    {Closed, func(r *rules) { r.Machines = nil }, true},
	} {
		r := &rules{Pool: Pool{Name: "blue", Stock: Limits{Unavailable: 1}, Machines: []Machine{oldOne}}}
		c.change(r)
		NewWithT(t).Expect(early(r, c.reason) != "").To(Equal(c.says), name)
	}
}

// The policy is stalled where no window is long enough for a pool, unless that is suspended; the first is said.
func TestWhatFitsIntoNoWindow(t *testing.T) {
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{Windows: []quoinv1.RolloutWindow{{Start: "20:00",
		DurationMinutes: ptr.To[int32](60)}}}
	var pools []Pool
	for _, name := range []string{"amber", "blue", "cyan"} {
		pools = append(pools, Pool{Name: name, Replicas: 1, Revision: "2", Stock: Limits{Surge: 1}, Pace: Pace{2 * time.Hour},
			Machines: []Machine{oldOne}})
	}
	pools[0].Paused = true
	result := Plan(State{Pools: pools}, policy, eight)
	g.Expect(result.Stalled).To(HavePrefix("MachineDeployment blue: a Machine takes 2h0m0s here"))
	g.Expect(result.Cause).To(Equal(WillNotFit))
	pools[1].Pace, pools[2].Pace = nil, nil
	g.Expect(Plan(State{Pools: pools}, policy, eight).Stalled).To(BeEmpty())

	policy.DeadlineSeconds, pools[1].Pace = ptr.To[int32](60), Pace{2 * time.Hour}
	pools[2].Machines = append(pools[2].Machines, Machine{Name: "late", Hosted: true, Gated: true,
		Admitted: eight.Add(-time.Hour)})
	g.Expect(Plan(State{Pools: pools}, policy, eight).Cause).To(Equal(DeadlineExceeded), "what is stalled already is said")

	policy.Strategy = ptr.To(strategy("x", ""))
	g.Expect(Plan(State{Pools: pools}, policy, eight).Problem).To(HavePrefix("MachineDeployment amber: maxSurge: "))
}

// What was written down before the clock was set back, and lies ahead of it, keeps nothing waiting until then, and
// proves nothing that long: it counts from now.
func TestWhatWasWrittenDownAheadOfTheClock(t *testing.T) {
	g, ahead := NewWithT(t), metav1.NewTime(eight.Add(24*time.Hour))
	leaves, stays := serving("a"), serving("b")
	leaves.Deleting, leaves.Outdated, stays.Outdated = true, false, false
	validation := &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Since: ahead, LastLookTime: ahead, Successes: ptr.To[int32](2),
		Machines: []quoinv1.RolloutValidatedMachine{{MachineDeployment: "blue", Name: "b", LastLookTime: ahead, Successes: 2}}}
	s := State{Validation: validation, Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "1", Completed: "1", LastTermination: ahead.Time,
		Trial: Trial{Revision: "1", Since: ahead.Time}, Machines: []Machine{leaves, stays}}}}
	before := validation.DeepCopy()
	is := s.asOf(eight)
	g.Expect(is.Validation.Since.Time).To(Equal(eight))
	g.Expect(is.Validation.LastLookTime.IsZero()).To(BeTrue())
	g.Expect(is.Validation.Successes).To(BeNil())
	g.Expect(is.Validation.Machines).To(BeEmpty())
	g.Expect(is.Pools[0].LastTermination).To(Equal(eight))
	g.Expect(is.Pools[0].Trial.Since).To(Equal(eight))
	g.Expect(s.Validation).To(Equal(before), "what is given stays as it is")
	g.Expect(s.Pools[0].LastTermination).To(Equal(ahead.Time))
	g.Expect(s.asOf(ahead.Time)).To(Equal(s), "it is not ahead by then")
	g.Expect(State{}.asOf(eight)).To(Equal(State{}))

	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{IntervalSeconds: ptr.To[int32](60)}}
	plan := Plan(s, policy, eight)
	g.Expect(plan.Leaves).To(ContainElement(HaveField("Reason", Interval)))
	g.Expect(plan.Again).To(Equal(time.Minute))
	g.Expect(plan.Progress[0].LastTermination).To(Equal(eight), "it is written down, and passes")
}

// A pause that ended ahead of a clock that was set back is none: what looks find counts all the same.
func TestAPauseThatEndedAheadOfTheClockIsNone(t *testing.T) {
	s, policy := lookedAt()
	s.Validation.Machines[0].Successes, s.Resumed = 2, eight.Add(24*time.Hour)
	NewWithT(t).Expect(Plan(s, policy, eight).Decisions[0]).To(And(HaveField("Machine", "new"),
		HaveField("Action", Count)))
	// Clocks of two managers differ by moments.
	for _, ahead := range []time.Duration{time.Second, time.Minute} {
		s.Resumed = eight.Add(ahead)
		NewWithT(t).Expect(s.asOf(eight).Resumed).To(Equal(eight))
	}
	s.Resumed = eight.Add(time.Minute + 1)
	NewWithT(t).Expect(s.asOf(eight).Resumed.IsZero()).To(BeTrue())
	s.Resumed = eight
	NewWithT(t).Expect(s.asOf(eight).Resumed).To(Equal(eight))
}
