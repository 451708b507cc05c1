// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
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

// rollbacks is what a model of a MachineDeployment has to do with going back.
type rollbacks struct {
	trial    Trial
	proofs   []Proof
	topology bool
	// owner applies the template.
	owner string
	mark  Attempt
	times int
}

// rollBack sets templates back that failed, where nothing speaks against it.
func (f *fleet) rollBack() {
	var text strings.Builder
	for _, p := range f.result.Progress {
		if d := f.pool(p.Pool); p.Completed != "" && p.Completed != d.rolls.mark.Restored {
			d.rolls.mark = Attempt{} // another template was completed
		}
	}
	for _, failure := range f.result.Failures {
		d := f.pool(failure.Pool)
		way := Way{Cluster: "prod", Topology: d.rolls.topology, Present: fmt.Sprint(d.template), Recorded: failure.To,
			Attempt: d.rolls.mark}
		if d.rolls.owner != "" && !d.rolls.topology {
			way.Owner, way.Field = d.rolls.owner, "spec.template.spec.version"
		}
		if refusal := failure.Refuse(way); refusal != "" {
			fmt.Fprintf(&text, "  NOT ROLLED BACK: %s\n", refusal)
			continue
		}
		d.rolls.mark = Attempt{At: f.now, Failed: way.Present, Restored: way.Recorded, Why: failure.Why}
		d.template, _ = strconv.Atoi(failure.To)
		d.rolls.times++
		fmt.Fprintf(&text, "  ROLLED BACK %s to %s: %s\n", d.name, failure.To, failure.Why)
	}
	f.rolled = text.String()
}

func TestMarks(t *testing.T) {
	g := NewWithT(t)
	mark := Attempt{At: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC), Failed: "a", Restored: "b", Why: "Machine x: it is ill"}
	g.Expect(ParseAttempt(mark.String())).To(Equal(mark))
	for _, none := range []string{"", "x", "2026-11-23T08:00:00Z a", "2026-11-23T08:00:00Z a b", "yesterday a b c"} {
		g.Expect(ParseAttempt(none)).To(BeZero(), none)
	}
}

// Each refusal names what it is about and the way out.
//
// Proves: C2
func TestWhatIsNotRolledBack(t *testing.T) {
	ok := Way{Cluster: "prod", Present: "new", Recorded: "old"}
	failure := Failure{Pool: "blue", Machine: "blue-4", To: "blue-a", Why: "Machine blue-4 does not count"}
	NewWithT(t).Expect(failure.Refuse(ok)).To(BeEmpty())
	for name, c := range map[string]struct {
		change func(*Way)
		says   []string
	}{
		"a managed topology": {func(w *Way) { w.Topology = true }, []string{"Cluster prod", "spec.topology.version"}},
		"nothing recorded":   {func(w *Way) { w.Recorded = "" }, []string{"no template of MachineDeployment blue is recorded"}},
		"the same template":  {func(w *Way) { w.Present = "old" }, []string{"completed last", "blue-4"}},
		"somebody applies it": {func(w *Way) { w.Owner, w.Field = "flux (Apply)", "spec.template.spec.version" },
			[]string{"flux (Apply)", "spec.template.spec.version"}},
		"a template that is gone": {func(w *Way) { w.Missing = "QuoinMachineTemplate a" }, []string{"QuoinMachineTemplate a"}},
		"it failed before":        {func(w *Way) { w.Attempt = Attempt{Failed: "new", Restored: "old"} }, []string{"already", "works"}},
	} {
		t.Run(name, func(t *testing.T) {
			way := ok
			c.change(&way)
			for _, says := range c.says {
				NewWithT(t).Expect(failure.Refuse(way)).To(ContainSubstring(says))
			}
		})
	}
	again := ok
	again.Attempt, again.Owner, again.Field = Attempt{Failed: "new", Restored: "old"}, "flux (Apply)", "version"
	NewWithT(t).Expect(failure.Refuse(again)).To(HaveSuffix("give it one that works. flux (Apply) writes its version"))
	again.Owner = ""
	NewWithT(t).Expect(failure.Refuse(again)).To(HaveSuffix("give it one that works"))
	again = ok
	again.Attempt = Attempt{Failed: "new", Restored: "older"}
	NewWithT(t).Expect(failure.Refuse(again)).To(BeEmpty(), "another template was completed since")
	again.Attempt = Attempt{Failed: "another", Restored: "old"}
	NewWithT(t).Expect(failure.Refuse(again)).To(BeEmpty(), "another template failed")
}

// A Machine that has no host says nothing about its template, however long it waits for one.
func TestATemplateWithoutAHostIsNotJudged(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	policy := &quoinv1.RolloutPolicySpec{OnFailure: quoinv1.RolloutFailureRollback, DeadlineSeconds: ptr.To[int32](600)}
	machine := Machine{Name: "blue-2", Admitted: now.Add(-time.Hour), Gated: true, Unhealthy: "no host is free"}
	pool := Pool{Name: "blue", Replicas: 1, Stock: Limits{Surge: 1}, Revision: "new", Completed: "old"}
	look := func() Result {
		pool.Machines = []Machine{{Name: "blue-1", Outdated: true, Hosted: true, Joined: true}, machine}
		result := Plan(State{Pools: []Pool{pool}}, policy, now)
		pool.Trial = result.Progress[0].Trial
		return result
	}
	g.Expect(look().Stalled).To(ContainSubstring("no host is free"))
	g.Expect(pool.Trial).To(BeZero())
	machine.Hosted = true
	g.Expect(look().Failures).To(BeEmpty(), "its time begins with its host")
	g.Expect(pool.Trial).To(Equal(Trial{Revision: "new", Since: now}))
	now = now.Add(599 * time.Second)
	result := look()
	g.Expect(result.Failures).To(BeEmpty())
	now = now.Add(result.Again)
	g.Expect(result.Again).To(Equal(time.Second))
	g.Expect(look().Failures).To(ConsistOf(HaveField("To", "old")))
	for _, says := range []func(*Machine){
		func(m *Machine) { m.Hosted = false }, // it lost its host
		func(m *Machine) { m.Outdated = true },
	} {
		saved := machine
		says(&machine)
		g.Expect(look().Failures).To(BeEmpty())
		g.Expect(pool.Trial).NotTo(BeZero())
		machine = saved
	}
	pool.Paused = true
	g.Expect(look().Failures).To(BeEmpty())
	g.Expect(pool.Trial).To(BeZero(), "what is suspended begins anew")
}

// A drain that fails stops the pool and is no excuse for a template that does not work, which may be what the pods wait
// for.
func TestAFailedDrainExcusesNoTemplate(t *testing.T) {
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{OnFailure: quoinv1.RolloutFailureRollback, DeadlineSeconds: ptr.To[int32](1800),
		Drain: &quoinv1.RolloutDrain{}}
	leaves := Machine{Name: "blue-1", Outdated: true, Hosted: true, Joined: true, Deleting: true,
		Leave: Leave{PreTerminate: true, Began: eight, NodeName: "blue-1"}}
	fresh := Machine{Name: "blue-3", Hosted: true, Gated: true, Admitted: eight}
	pool := Pool{Name: "blue", Replicas: 2, Stock: Limits{Surge: 1, Unavailable: 1}, Revision: "new", Completed: "old",
		Machines: []Machine{leaves, old("blue-2", ""), fresh}}
	look := func(after time.Duration) Result {
		result := Plan(State{Pools: []Pool{pool}}, policy, eight.Add(after))
		pool.Trial = result.Progress[0].Trial
		return result
	}
	g.Expect(look(0).DrainFailed).To(BeEmpty())
	g.Expect(look(16 * time.Minute).DrainFailed).To(ContainSubstring("blue-1"))
	g.Expect(pool.Trial).To(Equal(Trial{Revision: "new", Since: eight}))
	g.Expect(look(30*time.Minute - time.Second).Failures).To(BeEmpty())
	g.Expect(look(30 * time.Minute).Failures).To(ConsistOf(HaveField("Machine", "blue-3")))
}

// What a host does says nothing about a template until another one fails too, whichever Machines have them; and what
// ran against the template since then runs on.
//
// Proves: C2
func TestWhatHostsSayOfATemplate(t *testing.T) {
	fails := func(name, host string) Machine {
		return Machine{Name: name, Host: host, HostFailed: "Unreachable: no route to host"}
	}
	comes := func(name, host string) Machine { return Machine{Name: name, Host: host} }
	type step struct {
		machines []Machine
		set      bool // back
	}
	const late = 600
	for name, steps := range map[string][]step{
		"the only spare host fails again": {
			{machines: []Machine{fails("a", "prod/h1")}}, {}, {machines: []Machine{comes("b", "prod/h1")}},
			{machines: []Machine{fails("b", "prod/h1")}}, {machines: []Machine{fails("b", "prod/h1")}},
		},
		"the only spare host joins and its Node is late": {
			{machines: []Machine{fails("a", "prod/h1")}}, {}, {machines: []Machine{comes("b", "prod/h1")}},
			{machines: []Machine{comes("b", "prod/h1")}, set: true},
		},
		"another host": {
			{machines: []Machine{fails("a", "prod/h1")}}, {}, {machines: []Machine{fails("b", "prod/h2")}},
			{machines: []Machine{fails("b", "prod/h2")}, set: true},
		},
		"a host that is not known is that of its Machine": {
			{machines: []Machine{fails("a", "")}}, {machines: []Machine{fails("a", "")}}, {machines: []Machine{fails("a", "prod/h1")}},
			{machines: []Machine{fails("b", "")}}, {machines: []Machine{fails("b", "")}, set: true},
		},
		"another host, and the first one again": {
			{machines: []Machine{fails("a", "prod/h1")}}, {machines: []Machine{fails("b", "prod/h2")}},
			{machines: []Machine{fails("c", "prod/h1")}, set: true},
		},
		"a host that answers now and then": {
			{machines: []Machine{fails("a", "prod/h1")}}, {machines: []Machine{comes("a", "prod/h1")}},
			{machines: []Machine{fails("a", "prod/h1")}, set: true},
		},
		"several at once": {
			{machines: []Machine{fails("a", "prod/h1"), fails("b", "prod/h2"), fails("c", "prod/h3")}},
			{machines: []Machine{fails("a", "prod/h1"), fails("b", "prod/h2"), fails("c", "prod/h3")}, set: true},
		},
		"another is late": {
			{machines: []Machine{fails("a", "prod/h1"), comes("b", "prod/h2")}},
			{machines: []Machine{fails("a", "prod/h1"), comes("b", "prod/h2")}, set: true},
		},
		"another is healthy, and soaks": {
			{machines: []Machine{fails("a", "prod/h1"), comes("b", "prod/h2")}},
			{machines: []Machine{fails("a", "prod/h1"), {Name: "b", Host: "prod/h2", Joined: true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
			policy := &quoinv1.RolloutPolicySpec{OnFailure: quoinv1.RolloutFailureRollback, SoakSeconds: ptr.To[int32](7200),
				DeadlineSeconds: ptr.To[int32](late)}
			pool := Pool{Name: "blue", Replicas: 3, Stock: Limits{Surge: 3}, Revision: "new", Completed: "old"}
			for i, step := range steps {
				pool.Machines = []Machine{{Name: "old", Outdated: true, Hosted: true, Joined: true}}
				for _, m := range step.machines {
					m.Hosted, m.Gated, m.Admitted, m.Since = true, true, now, now
					if !m.Joined {
						m.Unhealthy = "it is being provisioned"
					}
					pool.Machines = append(pool.Machines, m)
				}
				result := Plan(State{Pools: []Pool{pool}}, policy, now)
				NewWithT(t).Expect(len(result.Failures) > 0).To(Equal(step.set), "step %d: %+v", i, result.Progress[0].Trial)
				pool.Trial = result.Progress[0].Trial
				now = now.Add(late * time.Second)
			}
		})
	}
}

// blips are Machines that work and do not count yet, and are not healthy for a while.
type blips map[string]time.Time

// of the pool as of now: some of them begin and some end, and what was healthy for its soak is noted.
func (b blips) of(t *rapid.T, f *fleet, d *deployment) {
	for _, n := range d.machines {
		if n.template != d.template || !n.gated || !n.joined || !n.deleted.IsZero() || f.broken[n.template] {
			continue
		}
		switch {
		case rapid.IntRange(0, 19).Draw(t, "blip") > 0:
		case n.ill == "":
			n.ill = "NodeHealthy: gone"
		default:
			n.ill, n.healthy = "", f.now
		}
		if n.ill == "" && f.now.Sub(n.healthy) >= time.Duration(*f.policy.SoakSeconds)*time.Second {
			b[n.name] = f.now
		}
	}
}

// judge what was decided: who was healthy for its soak has the whole deadline again.
func (b blips) judge(t *rapid.T, f *fleet, at time.Time, names []string) {
	for _, name := range names {
		if was, known := b[name]; known && at.Sub(was) < time.Duration(*f.policy.DeadlineSeconds)*time.Second {
			t.Fatalf("%s was healthy at %s: %s\n%s", name, was, f.draw(), f.says())
		}
	}
}

// Whatever breaks, a template is set back at most once for each edit, only while none of it counts and none was well for
// its deadline, and where Cluster API may let no Machine be missing none was deleted for it.
func TestRollbacksEnd(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		f.policy.OnFailure = quoinv1.RolloutFailureRollback
		d := f.pools[0]
		d.replicas, d.surge, d.unavailable, f.policy.Strategy = max(1, d.replicas), max(1, d.surge), 0, nil
		f.policy.SoakSeconds = ptr.To(int32(rapid.IntRange(0, 120).Draw(t, "soak")))
		for range 20 {
			f.step(t)
		}
		edits, latest, blips := 0, d.template, blips{}
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			// An edit in the middle of a rollout has Cluster API take one of a former template that may be Available: which
			// one is not asked of gates.
			whole := f.settled()
			if rapid.Bool().Draw(t, "again") {
				d.template = latest // a tool writes what it wrote before
			} else {
				latest++
				d.template = latest
				f.broken[latest] = rapid.Bool().Draw(t, "broken")
			}
			edits++
			times := d.rolls.times
			for range rapid.IntRange(0, 200).Draw(t, "looks") {
				known := d.of(d.template, func(n *node) bool { return n.joined && !n.gated && n.deleted.IsZero() && n.ill == "" })
				was, template, at := d.rolls.times, d.template, f.now
				if rapid.IntRange(0, 9).Draw(t, "continues") == 0 {
					f.policy.ContinueAfter = f.result.PausedAfter
				}
				blips.of(t, f, d)
				f.step(t)
				if _, of, late := strings.Cut(f.result.Stalled, "Machine "); late {
					blips.judge(t, f, at, strings.Fields(of)[:1])
				}
				if d.rolls.times > was {
					blips.judge(t, f, at, d.names(template))
				}
				if why := f.lacking(); why != "" && whole {
					t.Fatalf("%s: %s", why, f.draw())
				}
				if d.rolls.times > was && known > 0 && f.broken[d.template] {
					t.Fatalf("set back to what is broken: %s", f.draw())
				}
			}
			if d.rolls.times > times+1 {
				t.Fatalf("set back %d times for one edit", d.rolls.times-times)
			}
		}
		if d.rolls.times > edits {
			t.Fatalf("set back %d times for %d edits", d.rolls.times, edits)
		}
	})
}

// A template is set back for its validation only where looks held something against its Machines for their whole time,
// and none of them counts; what they find elsewhere sets nothing back.
//
// Proves: C2, K-8
func TestOnlyWhatLooksHoldAgainstATemplateSetsItBack(t *testing.T) {
	rapidtest.CheckAll(t, 100, func(t *rapid.T) {
		f := drawn(t)
		timeout := rapid.IntRange(60, 600).Draw(t, "timeout")
		f.policy.OnFailure, f.policy.DeadlineSeconds = quoinv1.RolloutFailureRollback, ptr.To[int32](7200)
		f.policy.Validation = &quoinv1.RolloutValidation{TimeoutSeconds: ptr.To(int32(timeout))}
		d := f.pools[0]
		for range rapid.IntRange(1, 3).Draw(t, "edits") {
			d.template += 1 + 1000*d.made // none that was there before
			spoiled := time.Time{}        // first; a look or two before that may have found nothing
			f.looks.spoil(d.template, rapid.Bool().Draw(t, "spoiled"))
			for range rapid.IntRange(0, 200).Draw(t, "looks") {
				switch rapid.IntRange(0, 30).Draw(t, "elsewhere") {
				case 20:
					f.looks.finding = "Node plane-1 is not ready"
				case 21, 22:
					f.looks.finding = ""
				case 23:
					f.looks.spoil(d.template, !f.looks.spoiled[d.template])
				}
				if f.looks.spoiled[d.template] && spoiled.IsZero() {
					spoiled = f.now
				}
				known := d.of(d.template, func(n *node) bool { return n.joined && !n.gated })
				was, at := d.rolls.times, f.now
				f.policy.ContinueAfter = f.result.PausedAfter
				f.step(t)
				if d.rolls.times == was {
					continue
				}
				if spoiled.IsZero() || known > 0 || at.Sub(spoiled) < time.Duration(timeout)*time.Second-2*tick {
					t.Fatalf("set back at %s: spoiled at %s, %d count: %s\n%s%s", at, spoiled, known, f.draw(), f.says(), d.rolls.mark.Why)
				}
				break // what was restored may be what was spoiled before
			}
		}
	})
}

// names of the Machines of a template.
func (d *deployment) names(template int) (names []string) {
	for _, n := range d.machines {
		if n.template == template {
			names = append(names, n.name)
		}
	}
	return names
}

// What is known of the Machines that do not count yet is kept for each of them, however many others there are.
func TestProofsAreOfMachinesThatDoNotCountYet(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	pool := Pool{Name: "blue", Replicas: 70, Stock: Limits{Surge: 99}, Revision: "new", Completed: "old"}
	add := func(name string, m Machine) {
		m.Name, m.Created = name, now.Add(time.Duration(len(pool.Machines))*time.Second)
		m.Hosted, m.Since = true, now.Add(-time.Hour)
		pool.Machines = append(pool.Machines, m)
	}
	for i := range mostSubjects {
		add(fmt.Sprintf("old-%d", i), Machine{Outdated: true, Joined: true})
		add(fmt.Sprintf("coming-%d", i), Machine{Gated: true})
	}
	add("new", Machine{Gated: true, Joined: true})
	add("gated", Machine{Gated: true, Joined: true, Outdated: true})
	add("last", Machine{Gated: true})
	result := Plan(State{Pools: []Pool{pool}},
		&quoinv1.RolloutPolicySpec{PauseAfter: quoinv1.RolloutPauseEachMachine}, now)
	NewWithT(t).Expect(result.Progress[0].Proofs).To(ConsistOf(Proof{Machine: "new", Since: now},
		Proof{Machine: "gated", Since: now}))
	// One that counts from now on needs none.
	result = Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{}, now)
	NewWithT(t).Expect(result.Progress[0].Proofs).To(ConsistOf(Proof{Machine: "gated", Since: now}))
}

// What looks found proves that a Machine works, or that its template does not, or neither.
func TestWhatLooksSayOfATemplate(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	hour := now.Add(-time.Hour)
	type state struct {
		machine *Machine
		record  *quoinv1.RolloutValidationStatus
		policy  *quoinv1.RolloutPolicySpec
	}
	blamed := func(s state) {
		s.record.Results = []quoinv1.RolloutCheckResult{{Name: "Pods", Status: quoinv1.RolloutCheckFailed, Message: "ill",
			Machines: []string{"blue-2"}}}
	}
	for name, c := range map[string]struct {
		change         func(state)
		proves, failed bool
	}{
		"one look found nothing": {change: func(s state) {
			s.record.Machines = []quoinv1.RolloutValidatedMachine{{Name: "blue-2", MachineDeployment: "blue", Successes: 1,
				HealthySince: metav1.NewTime(hour), LastLookTime: metav1.NewTime(now)}}
		}, proves: true},
		"nobody looked":             {change: func(s state) { s.record.Digest = "another" }},
		"another pool is looked at": {change: func(s state) { s.record.MachineDeployment = "green" }, proves: true},
		"another pool was looked at": {change: func(s state) {
			s.record.MachineDeployment, s.record.Since = "green", metav1.Time{}
		}},
		"looks find something elsewhere": {change: func(s state) {
			blamed(s)
			s.record.Results[0].Machines = []string{"blue-1"}
		}, proves: true},
		"they found that before": {change: func(s state) {
			blamed(s)
			s.record.Results[0].Machines, s.record.LastLookTime = nil, metav1.NewTime(hour.Add(-time.Second))
		}},
		"looks find something with it": {change: blamed, failed: true},
		"with another pool's looks": {change: func(s state) {
			blamed(s)
			s.record.MachineDeployment = "green"
		}, proves: true},
		"they are over":                {change: func(s state) { blamed(s); s.record.Since = metav1.Time{} }},
		"it is of an earlier template": {change: func(s state) { blamed(s); s.machine.Outdated = true }},
		"nothing is set back":          {change: func(s state) { blamed(s); s.policy.OnFailure = "" }},
		"it is healthy for 14 minutes": {change: func(s state) {
			blamed(s)
			s.machine.Since = now.Add(-14 * time.Minute)
		}},
		"for a second less than 15 minutes": {change: func(s state) {
			blamed(s)
			s.record.Since = metav1.NewTime(now.Add(-899 * time.Second))
		}},
		"for 15 minutes, and that is long enough": {change: func(s state) {
			blamed(s)
			s.record.Since = metav1.NewTime(now.Add(-900 * time.Second))
		}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy := &quoinv1.RolloutPolicySpec{OnFailure: quoinv1.RolloutFailureRollback,
				Validation: &quoinv1.RolloutValidation{}}
			machine := Machine{Name: "blue-2", Admitted: hour, Hosted: true, Joined: true, Gated: true, Since: hour}
			record := &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Digest: validationDigest(policy),
				Since: metav1.NewTime(hour), LastLookTime: metav1.NewTime(now)}
			c.change(state{&machine, record, policy})
			pool := Pool{Name: "blue", Replicas: 1, Stock: Limits{Surge: 1}, Revision: "new", Completed: "old",
				Trial:    Trial{Revision: "new", Since: hour},
				Machines: []Machine{{Name: "blue-1", Outdated: true, Hosted: true, Joined: true}, machine}}
			result := Plan(State{Pools: []Pool{pool}, Validation: record}, policy, now)
			g.Expect(result.Progress[0].Proofs).To(HaveLen(map[bool]int{true: 1}[c.proves]))
			g.Expect(result.Failures).To(HaveLen(map[bool]int{true: 1}[c.failed]))
		})
	}
}

// A proof is kept with the time of the first one while its Machine is ill, and had again with a whole soak.
func TestProofsThatAreLost(t *testing.T) {
	g := NewWithT(t)
	pool := &rules{Pool: Pool{Name: "blue", Replicas: 1, Revision: "new", Completed: "old",
		Machines: []Machine{{Name: "new", Hosted: true, Joined: true, Gated: true, Since: eight}}}, soak: time.Minute}
	m := &pool.Machines[0]
	at := func(seconds int) time.Time { return eight.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		at, since int
		unhealthy string
		want      []Proof
	}{
		{59, 0, "", nil},
		{60, 0, "", []Proof{{Machine: "new", Since: at(60)}}},
		{70, 0, "", []Proof{{Machine: "new", Since: at(60)}}},
		{80, 0, "ill", []Proof{{Machine: "new", Since: at(60), Lost: at(80)}}},
		{90, 0, "ill", []Proof{{Machine: "new", Since: at(60), Lost: at(80)}}},
		{100, 100, "", []Proof{{Machine: "new", Since: at(60), Lost: at(80)}}},
		{160, 100, "", []Proof{{Machine: "new", Since: at(60)}}},
		{170, 170, "", []Proof{{Machine: "new", Since: at(60)}}},
	} {
		m.Since, m.Unhealthy = at(c.since), c.unhealthy
		p := &planner{now: at(c.at).Add(time.Millisecond), policy: &quoinv1.RolloutPolicySpec{}}
		pool.Proofs = p.proofs(pool)
		g.Expect(pool.Proofs).To(Equal(c.want), "at %d", c.at)
	}
	m.Joined = false
	pool.Proofs = nil
	p := &planner{now: at(1000), policy: &quoinv1.RolloutPolicySpec{}}
	g.Expect(p.proofs(pool)).To(BeEmpty(), "it has no Node")
	m.Joined = true
	for i := range 70 {
		pool.Machines = append(pool.Machines, *m)
		pool.Machines[i+1].Name = fmt.Sprint(i)
	}
	g.Expect(p.proofs(pool)).To(HaveLen(64))
}

// A Machine has the host that failed first by the name of that, or its own where that is not known, and until another
// one was tried as the Machine that failed.
func TestWhoHasTheHostThatFailed(t *testing.T) {
	g := NewWithT(t)
	trial := Trial{Host: "prod/h1", Failed: "a"}
	for _, c := range []struct {
		name, host string
		on         bool
	}{{"b", "prod/h1", true}, {"prod/h1", "", true}, {"a", "", true}, {"a", "prod/h2", true}, {"b", "prod/h2", false},
		{"b", "", false}} {
		m := Machine{Name: c.name, Host: c.host}
		g.Expect(trial.on(m)).To(Equal(c.on), "%+v", c)
		g.Expect(trial.excuses(m)).To(BeFalse())
		m.HostFailed = "Unreachable"
		g.Expect(trial.excuses(m)).To(Equal(c.on), "%+v", c)
	}
	g.Expect(Trial{Failed: "a"}.on(Machine{Name: "a"})).To(BeFalse(), "no host failed")
}

// A trial is of a revision that is rolled out and of which none counts, while nothing stops the pool.
func TestWhatIsTried(t *testing.T) {
	minute := eight.Add(time.Minute)
	before, begun := Trial{Revision: "new", Since: eight}, Trial{Revision: "new", Since: minute}
	for name, c := range map[string]struct {
		change func(*planner, *rules)
		want   Trial
	}{
		"it goes on":               {func(*planner, *rules) {}, before},
		"it begins":                {func(_ *planner, r *rules) { r.Trial = Trial{} }, begun},
		"another one was tried":    {func(_ *planner, r *rules) { r.Trial.Revision = "x" }, begun},
		"nothing has a host":       {func(_ *planner, r *rules) { r.Trial, r.Machines = Trial{}, r.Machines[:1] }, Trial{}},
		"nothing has a host now":   {func(_ *planner, r *rules) { r.Machines = r.Machines[:1] }, before},
		"the control plane is ill": {func(p *planner, _ *rules) { p.Unhealthy = "etcd" }, Trial{}},
		"one counts":               {func(_ *planner, r *rules) { r.Machines[0].Outdated = false }, Trial{}},
		"nothing is replaced": {func(_ *planner, r *rules) {
			r.Completed, r.Machines = "new", r.Machines[1:]
		}, Trial{}},
		"there is no MachineSet": {func(_ *planner, r *rules) { r.Revision, r.Trial = "", Trial{} }, Trial{}},
		"the Machine was healthy": {func(_ *planner, r *rules) {
			r.Machines[1].Joined, r.Machines[1].Unhealthy = true, ""
		}, Trial{}},
		"an earlier one is healthy": {func(_ *planner, r *rules) { r.Machines[0].Gated = true }, before},
		"its first host fails": {func(_ *planner, r *rules) { r.Machines[1].HostFailed = "gone" },
			Trial{Revision: "new", Host: "new", Failed: "new"}},
		"its first host fails as it begins": {func(_ *planner, r *rules) {
			r.Trial, r.Machines[1].HostFailed, r.Machines[1].Host = Trial{}, "gone", "prod/h1"
		}, Trial{Revision: "new", Host: "prod/h1", Failed: "new"}},
		"another one is tried": {func(_ *planner, r *rules) {
			r.Trial = Trial{Revision: "new", Host: "prod/h1", Failed: "gone"}
		}, Trial{Revision: "new", Host: "prod/h1", Since: minute}},
		"another one fails": {func(_ *planner, r *rules) {
			r.Trial, r.Machines[1].HostFailed = Trial{Revision: "new", Host: "prod/h1", Failed: "gone"}, "gone"
		}, Trial{Revision: "new", Host: "prod/h1", Since: minute}},
		"the first one fails with another Machine": {func(_ *planner, r *rules) {
			r.Trial = Trial{Revision: "new", Host: "prod/h1", Failed: "gone", Since: eight}
			r.Machines[1].HostFailed, r.Machines[1].Host = "gone", "prod/h1"
		}, Trial{Revision: "new", Host: "prod/h1", Failed: "new"}},
		"it fails with that after others were tried": {func(_ *planner, r *rules) {
			r.Trial = Trial{Revision: "new", Host: "prod/h1", Since: eight}
			r.Machines[1].HostFailed, r.Machines[1].Host = "gone", "prod/h1"
		}, Trial{Revision: "new", Host: "prod/h1", Since: eight}},
	} {
		r := &rules{Pool: Pool{Name: "blue", Replicas: 1, Revision: "new", Completed: "old", Trial: before,
			Machines: []Machine{{Name: "old", Outdated: true, Hosted: true, Joined: true},
				{Name: "new", Admitted: eight, Hosted: true, Gated: true, Unhealthy: "it is being provisioned"}}}}
		p := &planner{now: minute.Add(time.Millisecond), policy: &quoinv1.RolloutPolicySpec{}}
		c.change(p, r)
		NewWithT(t).Expect(p.trial(r)).To(Equal(c.want), name)
	}
}

// A template fails when its time is over, of a pool that is to be set back, with the first Machine that says so.
func TestWhenATemplateFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner, *rules)
		failed bool
		again  time.Duration
	}{
		"its time is over":       {func(*planner, *rules) {}, true, 0},
		"a second is left":       {func(_ *planner, r *rules) { r.Trial.Since = eight.Add(time.Second) }, false, time.Second},
		"nothing is set back":    {func(_ *planner, r *rules) { r.onFailure = "" }, false, 0},
		"there is no deadline":   {func(p *planner, _ *rules) { p.policy.DeadlineSeconds = nil }, false, 0},
		"nothing is tried":       {func(_ *planner, r *rules) { r.Revision = "" }, false, 0},
		"it has no host":         {func(_ *planner, r *rules) { r.Machines[1].Hosted = false }, false, 0},
		"it is of another one":   {func(_ *planner, r *rules) { r.Machines[1].Outdated = true }, false, 0},
		"it may soak as long":    {func(_ *planner, r *rules) { r.Machines[1].Joined = true }, false, time.Minute},
		"its host fails":         {func(_ *planner, r *rules) { r.Machines[1].HostFailed = "gone" }, false, 0},
		"the first host is late": {func(_ *planner, r *rules) { r.Trial.Host = "new" }, true, 0},
		"the first host fails beside another": {func(_ *planner, r *rules) {
			r.Trial.Host, r.Machines[1].HostFailed = "new", "gone"
			r.Machines = append(r.Machines, Machine{Name: "newer", Hosted: true, Gated: true})
		}, false, 0},
		"the first host fails again, and no other one is tried": {func(_ *planner, r *rules) {
			r.Trial.Host, r.Machines[1].HostFailed = "new", "gone"
		}, true, 0},
	} {
		g := NewWithT(t)
		r := &rules{Pool: Pool{Name: "blue", Replicas: 1, Revision: "new", Completed: "old",
			Trial: Trial{Revision: "new", Since: eight},
			Machines: []Machine{{Name: "old", Outdated: true, Hosted: true, Joined: true},
				{Name: "new", Admitted: eight, Hosted: true, Gated: true, Unhealthy: "ill"}}},
			onFailure: quoinv1.RolloutFailureRollback, soak: time.Minute}
		policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](600)}
		p := &planner{now: eight.Add(10 * time.Minute), policy: policy}
		c.change(p, r)
		p.fails(r, r.Machines[1], "it is ill")
		p.fails(r, r.Machines[1], "it is still ill")
		want := []Failure(nil)
		if c.failed {
			want = []Failure{{Pool: "blue", Machine: "new", To: "old", Why: "Machine new does not count: it is ill"}}
		}
		g.Expect(p.result.Failures).To(Equal(want), name)
		g.Expect(p.result.Again).To(Equal(c.again), name)
	}
	p := &planner{}
	for _, name := range []string{"blue", "green", "blue"} {
		p.fail(&rules{Pool: Pool{Name: name}}, Machine{Name: "m"}, "ill")
	}
	NewWithT(t).Expect(p.result.Failures).To(HaveLen(2), "one of each pool")
}
