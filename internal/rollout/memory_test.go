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

// What is remembered of a pool outlives the Machine by which it was seen.

// A template of which one Machine counted works, whatever becomes of that Machine.
func TestATemplateThatCountedOnceIsNotSetBack(t *testing.T) {
	g, now := NewWithT(t), eight
	policy := &quoinv1.RolloutPolicySpec{OnFailure: quoinv1.RolloutFailureRollback, DeadlineSeconds: ptr.To[int32](600)}
	second := Machine{Name: "second", Admitted: eight, Hosted: true, Gated: true}
	pool := Pool{Name: "blue", Replicas: 3, Stock: Limits{Surge: 1}, Revision: "new", Completed: "old",
		Machines: []Machine{old("a", ""), old("b", ""), countedOne, second}}
	look := func() Result {
		result := Plan(State{Pools: []Pool{pool}}, policy, now)
		pool.Trial = result.Progress[0].Trial
		return result
	}
	g.Expect(look().Failures).To(BeEmpty())
	pool.Machines[2].Deleting = true
	g.Expect(look().Failures).To(BeEmpty())
	pool.Machines = append(pool.Machines[:2:2], pool.Machines[3])
	now = now.Add(time.Hour)
	g.Expect(look().Failures).To(BeEmpty(), "one of it counted")

	for _, is := range []quoinv1.RolloutFailure{quoinv1.RolloutFailureStop, quoinv1.RolloutFailureRollback} {
		policy.OnFailure = is
		look()
	}
	now = now.Add(time.Hour)
	g.Expect(look().Failures).To(BeEmpty(), "whatever a failure meant meanwhile")

	pool.Revision, pool.Machines[2].Name = "newer", "third"
	look()
	now = now.Add(time.Hour)
	g.Expect(look().Failures).To(HaveLen(1), "of another one none did")
}

// Where nobody knows what was completed, the first Machine of a template is tried alone also when all outdated ones
// are gone before it.
func TestACanaryIsTriedAloneWhereNothingWasCompleted(t *testing.T) {
	g := NewWithT(t)
	pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Stock: Limits{Unavailable: 3}}
	for _, name := range []string{"a", "b", "c"} {
		gone := old(name, "")
		gone.Deleting = true
		pool.Machines = append(pool.Machines, gone)
	}
	pool.Machines = append(pool.Machines, Machine{Name: "d"}, Machine{Name: "e"}, Machine{Name: "f"})
	policy := &quoinv1.RolloutPolicySpec{}
	before := Plan(State{Pools: []Pool{pool}}, policy, eight).Progress[0]
	pool.Completed, pool.DoneOf, pool.Machines = before.Completed, before.DoneOf, pool.Machines[3:]
	var said []string
	for _, d := range Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions {
		said = append(said, string(d.Action)+" "+d.Machine)
	}
	g.Expect(said).To(Equal([]string{"Admit d", "Hold e", "Hold f"}))
	g.Expect(Pool{Replicas: 1, Revision: "2", DoneOf: 1}.rolling()).To(BeTrue(), "its only Machine went")

	pool.Machines = nil
	g.Expect(pool.doneOf("")).To(Equal(3), "all of them are gone, and asked for")
	pool.Replicas = 0
	g.Expect(pool.doneOf("")).To(BeZero(), "none is asked for any more")
}

// A template without a MachineSet may never get one, and the one before may come back: its canary waits for its person
// on.
func TestNoGateOpensBeforeThereIsAMachineSet(t *testing.T) {
	canary := Machine{Name: "canary", Outdated: true, Hosted: true, Joined: true, Gated: true,
		Admitted: eight.Add(-2 * time.Hour), Since: eight.Add(-time.Hour)}
	pool := Pool{Name: "blue", Replicas: 2, Completed: "1", Stock: Limits{Surge: 1},
		Machines: []Machine{old("a", ""), old("b", ""), canary}}
	policy := &quoinv1.RolloutPolicySpec{PauseAfter: quoinv1.RolloutPauseCanary}
	NewWithT(t).Expect(Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions).
		NotTo(ContainElement(HaveField("Action", Count)))
}

// Nothing takes the place of what leaves a pool that is scaled to 0, so others go on however long its last host hangs.
func TestNobodyWaitsForWhatLeavesAnEmptyPool(t *testing.T) {
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
	leaver, outdated := Machine{Name: "x", Hosted: true, Gated: true, Deleting: true}, serving("y")
	outdated.Deleting = true
	for _, machines := range [][]Machine{{leaver}, {outdated}, {leaver, outdated}} {
		blue := Pool{Name: "blue", Revision: "2", Completed: "1", Stock: Limits{Surge: 1}, Machines: machines}
		plan := Plan(State{Pools: []Pool{blue, greenBegins()}}, policy, eight)
		NewWithT(t).Expect(plan.Decisions).To(greenGoesOn, "%v", machines)
		if len(machines) == 1 && machines[0].Outdated {
			NewWithT(t).Expect(plan.Leaves).To(ContainElement(And(HaveField("Machine", "y"), HaveField("Action", Drain))))
		}
	}
}

func greenBegins() Pool {
	return Pool{Name: "green", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
		Machines: []Machine{oldOne, {Name: "new"}}}
}

var greenGoesOn = ContainElement(And(HaveField("Machine", "new"), HaveField("Action", Admit)))

// One ill worker does not keep the template of a pool that is seen first from being done: a scale-up is not gated for
// it, and nobody waits.
func TestOneIllMachineOfAPoolThatIsSeenFirstHoldsNobody(t *testing.T) {
	g, policy := NewWithT(t), &quoinv1.RolloutPolicySpec{}
	ill := Machine{Name: "c", Hosted: true, Joined: true, Unhealthy: "NodeHealthy is False"}
	well := func(name string) Machine {
		return Machine{Name: name, Hosted: true, Joined: true, Available: true, Since: eight.Add(-time.Hour)}
	}
	seenFirst := func(machines ...Machine) Pool {
		blue := Pool{Name: "blue", Replicas: 3, Revision: "1", Stock: Limits{Surge: 1}, Machines: machines}
		blue.Completed = Plan(State{Pools: []Pool{blue}}, policy, eight).Progress[0].Completed
		return blue
	}
	blue := seenFirst(well("a"), well("b"), ill)
	blue.Replicas, blue.Machines = 4, append(blue.Machines, Machine{Name: "d"})
	g.Expect(Plan(State{Pools: []Pool{blue}}, policy, eight).Decisions).
		To(ContainElement(And(HaveField("Machine", "d"), HaveField("Gate", false))))
	g.Expect(Plan(State{Pools: []Pool{blue, greenBegins()}}, policy, eight).Decisions).To(greenGoesOn)

	ill.NeedsUpdate = "marked"
	g.Expect(Plan(State{Pools: []Pool{seenFirst(well("a"), well("b"), ill), greenBegins()}}, policy, eight).Decisions).
		To(greenGoesOn)
}

// A template is one that works where a Machine of it counts and is well.
func TestWhatIsKnownToWork(t *testing.T) {
	for name, c := range map[string]struct {
		machines []Machine
		works    bool
	}{
		"one is well":              {[]Machine{{Hosted: true, Joined: true}}, true},
		"one of two is":            {[]Machine{{Hosted: true, Joined: true}, {Hosted: true, Joined: true, Unhealthy: "ill"}}, true},
		"all are ill":              {[]Machine{{Hosted: true, Joined: true, Unhealthy: "ill"}}, false},
		"one is outdated":          {[]Machine{oldOne}, false},
		"one does not count yet":   {[]Machine{{Hosted: true, Joined: true, Gated: true}}, false},
		"nothing is there":         {nil, false},
		"one is well and selected": {[]Machine{{Hosted: true, Joined: true, NeedsUpdate: "marked"}}, false},
	} {
		pool := Pool{Name: "blue", Replicas: 2, Revision: "2", Machines: c.machines}
		plan := Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{}, eight)
		NewWithT(t).Expect(plan.Progress[0].Works).To(Equal(c.works), name)
	}
}
