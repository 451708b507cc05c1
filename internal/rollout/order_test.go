// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// An outdated Machine that serves, a new one on its way, and one that counts.
var (
	oldOne     = Machine{Name: "old", Outdated: true, Hosted: true, Joined: true, Available: true}
	movingOne  = Machine{Name: "moving", Hosted: true, Gated: true}
	countedOne = Machine{Name: "counted", Hosted: true, Joined: true, Available: true}
)

// Cluster API makes no Machine of a pool, such as where its templates do not exist. After the deadline somebody has to
// know, and nobody waits for it any more.
func TestAPoolOfWhichNoMachineIsMade(t *testing.T) {
	g := NewWithT(t)
	batch := Pool{Name: "batch", Replicas: 1, Stock: Limits{Surge: 1}, Completed: "1", Machines: []Machine{oldOne}}
	waiting := Machine{Name: "new"}
	web := Pool{Name: "web", Replicas: 1, Stock: Limits{Surge: 1}, Completed: "1", Revision: "2",
		Machines: []Machine{oldOne, waiting}}
	policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](600)}
	at := func(now time.Time) Result { return Plan(State{Pools: []Pool{batch, web}}, policy, now) }
	reasons := func(r Result) (all []Reason) {
		for _, p := range r.Progress {
			all = append(all, p.Reason)
		}
		return all
	}
	g.Expect(reasons(at(eight))).To(Equal([]Reason{RollingOut, Previous}), "it has just begun")
	g.Expect(at(eight).Again).To(Equal(time.Minute))
	batch.Said, batch.Since = RollingOut, eight.Add(-time.Minute)
	g.Expect(reasons(at(eight))).To(Equal([]Reason{NoneMade, Previous}))
	batch.Said, batch.Since = NoneMade, eight
	soon := at(eight.Add(599 * time.Second))
	g.Expect(reasons(soon)).To(Equal([]Reason{NoneMade, Previous}))
	g.Expect(soon.Stalled).To(BeEmpty())
	g.Expect(soon.Again).To(Equal(time.Second))

	late := at(eight.Add(600 * time.Second))
	g.Expect(reasons(late)).To(Equal([]Reason{NoneMade, RollingOut}))
	g.Expect(late.Cause).To(Equal(DeadlineExceeded))
	g.Expect(late.Stalled).To(ContainSubstring("MachineDeployment batch: since 2026-11-23T08:00:00Z Cluster API is to make " +
		"or delete a Machine, and does not, and the conditions of MachineDeployment batch"))
	g.Expect(late.Decisions).To(ContainElement(And(HaveField("Machine", "new"), HaveField("Action", Admit))))
	batch.Blocked = "Scaling up would be blocked because KubeadmConfigTemplate does not exist"
	g.Expect(at(eight.Add(time.Hour)).Stalled).To(ContainSubstring("does not: " + batch.Blocked + ". Mend that"))

	for name, change := range map[string]func(){
		"one leaves":                   func() { batch.Machines[0].Deleting = true },
		"one was made a moment ago":    func() { batch.Machines[0].Created = eight.Add(time.Hour) },
		"one was healthy a moment ago": func() { batch.Machines[0].Since = eight.Add(time.Hour) },
		"its minReadySeconds go on":    func() { batch.Machines[0].AvailableAt = eight.Add(time.Hour) },
		"one is held":                  func() { batch.Machines = append(batch.Machines, waiting) },
		"one was gone a moment ago":    func() { batch.LastTermination = eight.Add(time.Hour) },
		"a person deletes":             func() { batch.OnDelete = true },
		"it is paused":                 func() { batch.Paused = true },
		"nothing is to be replaced":    func() { batch.Machines[0].Outdated, batch.Revision = false, "1" },
	} {
		was := batch
		batch.Machines = slices.Clone(batch.Machines)
		change()
		g.Expect(at(eight.Add(time.Hour)).Stalled).To(BeEmpty(), name)
		batch = was
	}
	batch.Machines[0].AvailableAt = eight
	g.Expect(at(eight.Add(time.Hour)).Stalled).NotTo(BeEmpty(), "its minReadySeconds are over, and nothing is done")
	batch.Machines[0].Created = eight.Add(time.Hour)
	g.Expect(at(eight.Add(time.Hour+50*time.Second)).Again).To(Equal(10*time.Second), "it is looked at again")
}

// A pool takes a place before others when something of it is on its way, then when it was begun, then in its order. One
// that waits for a person takes none.
func TestWhichPoolTakesAPlace(t *testing.T) {
	gone, marked := oldOne, countedOne
	gone.Deleting, gone.Leave.PreDrain = true, true
	left := gone
	left.Leave.PreDrain = false
	marked.NeedsUpdate = "marked"
	off := func(r *rules) { r.drain = &drainRules{off: true} }
	skewed := func(r *rules) { r.Skewed = "it is of the version before" }
	conflicts := func(r *rules) { r.Stock, r.limits = Limits{}, Limits{} }
	suspended := func(r *rules) { r.suspended = "take suspend off it" }
	deletes := func(r *rules) { r.OnDelete, r.limits.Unavailable = true, 1 }
	selected := func(r *rules) { r.Completed, r.Machines = "2", []Machine{countedOne, marked} }
	with := func(changes ...func(*rules)) func(*rules) {
		return func(r *rules) {
			for _, change := range changes {
				change(r)
			}
		}
	}
	of := func(machines ...Machine) func(*rules) { return func(r *rules) { r.Machines = machines } }
	done := with(of(countedOne, countedOne), func(r *rules) { r.Completed = "2" })
	for name, c := range map[string]struct {
		change  func(*rules)
		pending bool
		want    string
	}{
		"nothing of it is begun": {with(), false, "next"},
		"one that is marked has to stay, and another one finds no host": {with(selected, func(r *rules) {
			r.Machines = append(r.Machines, Machine{Name: "hostless", Admitted: eight, NoHost: "none"})
		}), false, ""},
		"one that is marked has to stay, and another one is on its way": {with(selected, func(r *rules) {
			r.Machines = append(r.Machines, movingOne)
		}), false, "moving"},
		"its topology is about to write":   {done, true, "next"},
		"it is done":                       {done, false, ""},
		"one counts":                       {of(oldOne, countedOne), false, "begun"},
		"one is on its way":                {of(oldOne, movingOne), false, "moving"},
		"one comes that is not judged":     {of(oldOne, Machine{Name: "plain", Hosted: true}), false, "begun"},
		"it was written and goes on":       {of(oldOne, countedOne), true, "begun"},
		"a drain failed":                   {with(of(oldOne, movingOne), func(r *rules) { r.failed = "pods" }), false, ""},
		"its last write was refused":       {with(of(oldOne, movingOne), func(r *rules) { r.Refused = true }), false, ""},
		"it is suspended":                  {with(of(oldOne, movingOne), suspended), false, ""},
		"it surges, and drains none":       {with(of(oldOne, oldOne, countedOne), off), false, ""},
		"it surges, and one is not proved": {with(of(oldOne, oldOne, movingOne), off), false, "moving"},
		"it may surge by as many as it has": {with(of(oldOne, oldOne, countedOne, countedOne), off,
			func(r *rules) { r.limits.Surge = 3 }), false, ""},
		"it may surge by another one":    {with(of(oldOne, countedOne), off), false, "begun"},
		"it gets no Machines":            {with(of(oldOne, countedOne), skewed), false, ""},
		"one that it got is on its way":  {with(of(oldOne, movingOne), skewed), false, "moving"},
		"one leaves, and none is made":   {with(of(gone, oldOne), skewed), false, ""},
		"one leaves its host":            {with(of(left, oldOne), skewed), false, "next"},
		"it is about to get some":        {with(of(oldOne, countedOne), skewed), true, "begun"},
		"its limits contradict":          {with(of(oldOne, countedOne), conflicts), false, ""},
		"they do, and one is on its way": {with(of(oldOne, movingOne), conflicts), false, "moving"},
		"one that is marked may be gone": {with(selected, func(r *rules) { r.limits.Unavailable = 1 }), false, "next"},
		"one that is marked has to stay": {selected, false, ""},
		"one that was marked leaves": {with(selected, func(r *rules) { r.Machines[1].Deleting = true }), false,
			"begun"},
		"one that was marked is gone": {with(selected, of(countedOne), func(r *rules) { r.Selected = "marked" }), false,
			"begun"},
		"a rollout deleted one":            {with(of(oldOne), deletes), false, "begun"},
		"a rollout is to delete the first": {deletes, false, "next"},
	} {
		pool := func(name string, machines ...Machine) rules {
			return rules{Pool: Pool{Name: name, Replicas: 2, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
				Machines: machines}, limits: Limits{Surge: 1}}
		}
		blue := pool("blue", oldOne, oldOne)
		c.change(&blue)
		topology := &Topology{Pending: map[string]bool{"blue": c.pending}}
		first := func(pools ...rules) string {
			for _, name := range current(pools, topology, 1, eight) {
				return name
			}
			return ""
		}
		place := ""
		switch {
		case first(blue) == "":
		case first(pool("amber", oldOne, oldOne), blue) == "amber":
			place = "next"
		case first(blue, pool("cyan", oldOne, movingOne)) == "cyan":
			place = "begun"
		default:
			place = "moving"
		}
		NewWithT(t).Expect(place).To(Equal(c.want), name)
	}
}

// As many pools are rolled out as the policy says, and of a group as many as it says itself: what waits behind those
// names them.
func TestHowManyPoolsAreRolledOut(t *testing.T) {
	for _, c := range []struct {
		most   int
		atOnce [2]int
		want   []string
		behind map[string][]string
	}{
		{1, [2]int{}, []string{"a"}, map[string][]string{"b": {"a"}, "c": {"a"}}},
		{2, [2]int{}, []string{"a", "b"}, map[string][]string{"c": {"a", "b"}}},
		{2, [2]int{1, 0}, []string{"a", "d"}, map[string][]string{"b": {"a"}, "c": {"a"}}},
		{3, [2]int{2, 1}, []string{"a", "b", "d"}, map[string][]string{"c": {"a", "b"}, "e": {"d"}}},
		{3, [2]int{1, 1}, []string{"a", "d"}, map[string][]string{"b": {"a"}, "c": {"a"}, "e": {"d"}}},
		{9, [2]int{}, []string{"a", "b", "c", "d", "e"}, map[string][]string{}},
	} {
		g := NewWithT(t)
		var pools []rules
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			pools = append(pools, rules{place: i / 3, atOnce: c.atOnce[i/3], limits: Limits{Surge: 1},
				Pool: Pool{Name: name, Replicas: 1, Revision: "2", Completed: "1", Machines: []Machine{oldOne}}})
		}
		g.Expect(current(pools, nil, c.most, eight)).To(Equal(c.want), "%+v", c)
		behind := map[string][]string{}
		for _, pool := range pools {
			if len(pool.behind) > 0 {
				behind[pool.Name] = pool.behind
			}
		}
		g.Expect(behind).To(Equal(c.behind), "%+v", c)
	}
}

// A pool of which a write was refused is tried beside those that went past it, and waits for those before it as ever.
//
// Proves: K-6, C15
func TestForWhomARefusedPoolWaits(t *testing.T) {
	const first = "WaitingForPrevious: Machine new: MachineDeployment "
	waiting, three := Machine{Name: "new"}, ptr.To[int32](3)
	for name, c := range map[string]struct {
		// before and web are there always, and after it is another one where it has Machines.
		before, web, after []Machine
		most, ofGroup      *int32
		want               string
	}{
		"one before it is not begun": {[]Machine{oldOne}, []Machine{oldOne, waiting}, nil, nil, nil,
			first + "batch comes first"},
		"one before it is on its way": {[]Machine{oldOne, movingOne}, []Machine{oldOne, waiting}, nil, nil, nil,
			first + "batch comes first"},
		"one before it is begun, and it is": {[]Machine{oldOne, countedOne}, []Machine{oldOne, countedOne, waiting}, nil, nil,
			nil, first + "batch comes first"},
		"it is begun, the one before it is not": {[]Machine{oldOne}, []Machine{oldOne, countedOne, waiting}, nil, nil, nil,
			"RollingOut: Machine new: there is room for one more"},
		"the one before it is done": {[]Machine{countedOne}, []Machine{oldOne, waiting}, nil, nil, nil,
			"RollingOut: Machine new: nothing is at the present template: one is tried alone"},
		"one after it is on its way": {[]Machine{countedOne}, []Machine{oldOne, waiting}, []Machine{oldOne, movingOne}, nil,
			nil, "RollingOut: Machine new: nothing is at the present template: one is tried alone"},
		"one after it is, and one before it is to come": {[]Machine{oldOne}, []Machine{oldOne, waiting},
			[]Machine{oldOne, movingOne}, nil, nil, first + "batch comes first"},
		"there is a place for three": {[]Machine{oldOne}, []Machine{oldOne, waiting}, nil, three, nil,
			"RollingOut: Machine new: nothing is at the present template: one is tried alone"},
		"and none in its group": {[]Machine{oldOne}, []Machine{oldOne, waiting}, nil, three, ptr.To[int32](1),
			first + "batch comes first"},
	} {
		policy := &quoinv1.RolloutPolicySpec{Concurrency: c.most, Groups: []quoinv1.RolloutGroup{{Name: "all",
			Concurrency:        c.ofGroup,
			MachineDeployments: quoinv1.RolloutSelector{Names: []string{"batch", "web", "zinc"}}}}}
		s := State{}
		for _, pool := range []Pool{{Name: "batch", Machines: c.before}, {Name: "web", Machines: c.web, Refused: true},
			{Name: "zinc", Machines: c.after}} {
			if pool.Machines == nil {
				continue
			}
			pool.Replicas, pool.Stock, pool.Revision, pool.Completed = 2, Limits{Surge: 1}, "2", "1"
			if !pool.hasOutdated() {
				pool.Replicas, pool.Completed = 1, "2"
			}
			s.Pools = append(s.Pools, pool)
		}
		web := Plan(s, policy, eight).Progress[1]
		NewWithT(t).Expect(string(web.Reason)+": "+web.Message).To(Equal(c.want), name)
	}
}

// Whoever waits says for which pools: those of its own group where these are as many as may be, in the order of names.
func TestForWhomAPoolWaits(t *testing.T) {
	for name, c := range map[string]struct {
		current []string
		pool    rules
		want    string
	}{
		"nothing is rolled out": {nil, rules{}, ""},
		"it is rolled out":      {[]string{"amber", "blue"}, rules{}, ""},
		"another one is":        {[]string{"amber"}, rules{}, "MachineDeployment amber comes first"},
		"two others are":        {[]string{"amber", "cyan"}, rules{}, "MachineDeployments amber and cyan come first"},
		"its last write was refused": {[]string{"amber"}, rules{Pool: Pool{Refused: true}},
			"MachineDeployment amber comes first"},
		"another one went past it": {[]string{"cyan"}, rules{Pool: Pool{Refused: true}, overtaken: true}, ""},
		"others of its group are": {[]string{"amber", "cyan", "zinc"}, rules{behind: []string{"zinc", "cyan"}},
			"MachineDeployments cyan and zinc come first"},
	} {
		c.pool.Name, c.pool.Replicas = "blue", 1
		reason, why := (&planner{current: c.current}).afterPrevious(&c.pool, nil)
		NewWithT(t).Expect(why).To(Equal(c.want), name)
		NewWithT(t).Expect(reason == Previous).To(Equal(c.want != ""), name)
	}
}

// A pool of which a write was refused waits for those of its own group, as every other one does.
func TestARefusedPoolWaitsForItsGroup(t *testing.T) {
	s := State{}
	for _, name := range []string{"batch", "web", "zinc"} {
		s.Pools = append(s.Pools, Pool{Name: name, Replicas: 2, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Refused: name == "web", Machines: []Machine{oldOne, {Name: "new"}}})
	}
	group := func(most *int32, names ...string) quoinv1.RolloutGroup {
		return quoinv1.RolloutGroup{Name: names[0], Concurrency: most,
			MachineDeployments: quoinv1.RolloutSelector{Names: names}}
	}
	policy := &quoinv1.RolloutPolicySpec{Concurrency: ptr.To[int32](3), Groups: []quoinv1.RolloutGroup{
		group(ptr.To[int32](1), "batch", "web"), group(nil, "zinc")}}
	web := Plan(s, policy, eight).Progress[1]
	NewWithT(t).Expect(web.Reason).To(Equal(Previous))
	NewWithT(t).Expect(web.Message).To(Equal("Machine new: MachineDeployment batch comes first"))
}

// A pool waits for one after it of which a Machine is on its way: nobody goes past that.
func TestAPoolWaitsForOneAfterIt(t *testing.T) {
	s := State{}
	for _, name := range []string{"web", "zinc"} {
		s.Pools = append(s.Pools, Pool{Name: name, Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: []Machine{oldOne, map[string]Machine{"web": {Name: "new"}, "zinc": movingOne}[name]}})
	}
	web := Plan(s, &quoinv1.RolloutPolicySpec{}, eight).Progress[0]
	NewWithT(t).Expect(web.Reason).To(Equal(Previous))
	NewWithT(t).Expect(web.Message).To(Equal("Machine new: MachineDeployment zinc comes first"))
}
