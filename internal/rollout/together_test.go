// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

var eight = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

func serving(name string) Machine {
	return Machine{Name: name, Outdated: true, Hosted: true, Joined: true, Available: true, Since: eight.Add(-time.Hour),
		Created: eight.Add(-time.Hour), Leave: Leave{PreDrain: true, PreTerminate: true, Node: Node{Known: true, Marked: true}}}
}

// A MachineDeployment that came to a group without validation in the middle of one is no reason to stop.
func TestAMachineDeploymentLeavesItsValidation(t *testing.T) {
	g := NewWithT(t)
	groups := []quoinv1.RolloutGroup{
		{Name: "a", MachineDeployments: quoinv1.RolloutSelector{Labels: &metav1.LabelSelector{
			MatchLabels: map[string]string{"group": "a"}}}, Validation: &quoinv1.RolloutValidation{}},
		{Name: "b", MachineDeployments: quoinv1.RolloutSelector{Names: []string{"blue"}}},
	}
	policy := &quoinv1.RolloutPolicySpec{Groups: groups}
	state := State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Machines: []Machine{serving("blue-1")}}},
		Validation: &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Digest: validationDigest(policy),
			Since: metav1.NewTime(eight.Add(-time.Hour))}}
	g.Expect(Plan(state, policy, eight).Problem).To(BeEmpty())
}

// What a person deletes is drained where a new Machine waits for just that host.
func TestADrainDoesNotWaitForWhoWaitsForItsHost(t *testing.T) {
	g := NewWithT(t)
	leaver := serving("blue-1")
	leaver.Deleting, leaver.Leave.Held = true, eight.Add(-time.Minute)
	canary := Machine{Name: "blue-4", Admitted: eight.Add(-time.Minute), Created: eight.Add(-time.Minute), Gated: true,
		NoHost: "no free host matches"}
	pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Stock: Limits{Surge: 1},
		Machines: []Machine{leaver, serving("blue-2"), serving("blue-3"), canary}}
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
	leaves := Plan(State{Pools: []Pool{pool}}, policy, eight).Leaves
	g.Expect(leaves).To(ContainElement(And(HaveField("Machine", "blue-1"), HaveField("Action", Drain))), "%+v", leaves)
}

// What Cluster API or a person deleted ahead of the control plane, or outside of a window, is drained where the control
// plane waits for its host: one at a time, and none where another host is left already.
func TestADrainDoesNotWaitForAControlPlaneThatWaitsForItsHost(t *testing.T) {
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}, Windows: []quoinv1.RolloutWindow{{Start: "20:00",
		DurationMinutes: ptr.To[int32](60)}}}
	for name, c := range map[string]struct {
		change func(*Machine, *Machine)
		want   int
	}{
		"both could help":   {func(a, b *Machine) { a.Wanted, b.Wanted = true, true }, 1},
		"the second could":  {func(_, b *Machine) { b.Wanted = true }, 1},
		"none could":        {func(*Machine, *Machine) {}, 0},
		"one leaves it now": {func(a, b *Machine) { a.Wanted, b.Wanted, a.Leave.PreDrain = true, true, false }, 0},
	} {
		a, b := serving("blue-1"), serving("blue-2")
		a.Deleting, b.Deleting = true, true
		c.change(&a, &b)
		pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Stock: Limits{Unavailable: 2},
			Machines: []Machine{a, b, serving("blue-3"), {Name: "blue-4"}}}
		drained := 0
		for _, d := range Plan(State{Pools: []Pool{pool}, Outdated: "1 of 3 is outdated"}, policy, eight).Leaves {
			if d.Action == Drain {
				drained++
			}
		}
		NewWithT(t).Expect(drained).To(Equal(c.want), name)
	}
}

// What serves waits for its drain while the Cluster does not validate, and is looked at on: it would be the first that is
// drained. What is broken or was only tried may be why, and what a rollout deleted was judged before.
func TestADrainDoesNotWaitForWhatItMends(t *testing.T) {
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}, Validation: &quoinv1.RolloutValidation{}}
	record := &quoinv1.RolloutValidationStatus{MachineDeployment: "blue", Digest: validationDigest(policy),
		Since: metav1.NewTime(eight.Add(-time.Hour))}
	for name, c := range map[string]struct {
		change func(*Machine)
		want   Action
	}{
		"it serves":                {func(*Machine) {}, HoldDrain},
		"it is broken":             {func(m *Machine) { m.Unhealthy = "NodeHealthy is False" }, Drain},
		"it was only tried":        {func(m *Machine) { m.Gated = true }, Drain},
		"a rollout deleted it":     {func(m *Machine) { m.Condemned = true }, Drain},
		"its kubelet is away":      {func(m *Machine) { m.Leave.Node.Unreachable = true }, Drain},
		"it is remediated":         {func(m *Machine) { m.Leave.Remediated = true }, Unguard},
		"it is up to date":         {func(m *Machine) { m.Outdated = false }, Drain},
		"the annotation was taken": {func(m *Machine) { m.Leave.PreDrain = false }, ""},
	} {
		leaver := serving("blue-1")
		leaver.Deleting = true
		c.change(&leaver)
		pool := Pool{Name: "blue", Replicas: 2, Revision: "2", Stock: Limits{Unavailable: 1},
			Machines: []Machine{leaver, serving("blue-2")}}
		var is Action
		result := Plan(State{Pools: []Pool{pool}, Validation: record}, policy, eight)
		for _, d := range result.Leaves {
			if d.Machine == leaver.Name {
				is = d.Action
			}
		}
		NewWithT(t).Expect(is).To(Equal(c.want), name)
		NewWithT(t).Expect(result.Look != nil).To(Equal(c.want == HoldDrain), name)
	}
}

// A strategy that says to drain and terminate nothing deletes nothing either.
func TestNothingIsDeletedThatIsNotToBeDrained(t *testing.T) {
	off := &quoinv1.RolloutStrategy{}
	off.DrainAndTerminate = ptr.To(false)
	policy := &quoinv1.RolloutPolicySpec{Strategy: off, WhenNoSpare: quoinv1.RolloutWithoutSpareRemoveFirst}
	canary := Machine{Name: "blue-4", Admitted: eight.Add(-time.Minute), Created: eight.Add(-time.Minute), Gated: true,
		NoHost: "no free host matches"}
	selected := serving("blue-1")
	selected.Outdated, selected.NeedsUpdate = false, "needs-update on its Node"
	old := serving("blue-1")
	old.Returns = true
	for _, pool := range []Pool{
		{Name: "blue", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1}, Machines: []Machine{old, canary}},
		{Name: "blue", Replicas: 1, Revision: "2", Completed: "2", Stock: Limits{Surge: 1}, Machines: []Machine{selected}},
		{Name: "blue", Replicas: 1, Revision: "2", OnDelete: true, Machines: []Machine{serving("blue-1")}},
	} {
		for _, d := range Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions {
			NewWithT(t).Expect(d.Action).NotTo(Equal(Delete), "%+v", d)
		}
	}
}

// None is deleted, and what Cluster API deletes is not drained, while what takes its place would not start.
//
// Proves: R3
func TestNothingLeavesForWhatMayNotStart(t *testing.T) {
	const why = "MachineDeployment blue is newer"
	canary := Machine{Name: "blue-4", Admitted: eight.Add(-time.Minute), Created: eight.Add(-time.Minute), Gated: true,
		NoHost: "no free host matches"}
	selected, old, leaver := serving("blue-1"), serving("blue-1"), serving("blue-1")
	selected.Outdated, selected.NeedsUpdate, old.Returns = false, "needs-update on its Node", true
	leaver.Deleting, leaver.Leave.Held = true, eight.Add(-time.Minute)
	policy := &quoinv1.RolloutPolicySpec{WhenNoSpare: quoinv1.RolloutWithoutSpareRemoveFirst,
		Drain: &quoinv1.RolloutDrain{}}
	for name, pool := range map[string]Pool{
		"without a spare": {Stock: Limits{Surge: 1}, Machines: []Machine{old, canary}},
		"selected":        {Completed: "2", Stock: Limits{Surge: 1}, Machines: []Machine{selected}},
		"on delete":       {OnDelete: true, Machines: []Machine{serving("blue-1")}},
		"by Cluster API":  {Stock: Limits{Unavailable: 1}, Machines: []Machine{leaver}},
	} {
		g := NewWithT(t)
		pool.Name, pool.Replicas, pool.Revision = "blue", 1, "2"
		leaves := func(unsupported, skewed string) bool {
			pool.Unsupported, pool.Skewed = unsupported, skewed
			result := Plan(State{Pools: []Pool{pool}}, policy, eight)
			return slices.ContainsFunc(slices.Concat(result.Decisions, result.Leaves), func(d Decision) bool {
				return d.Action == Delete || d.Action == Drain
			})
		}
		g.Expect(leaves("", "")).To(BeTrue(), name)
		g.Expect(leaves(why, "")).To(BeFalse(), name)
		g.Expect(leaves("", why)).To(BeFalse(), name)
	}
}

// What is deleted and gets no successor, because as many stay as are wanted, does not wait for one that would not start.
// A new Machine without a host is none of these.
func TestWhatIsNotReplacedLeavesWhateverMayNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		beside   []Machine
		want     Action
	}{
		"scaled down":                    {1, []Machine{serving("blue-2")}, Drain},
		"more stay than are wanted":      {1, []Machine{serving("blue-2"), serving("blue-3")}, Drain},
		"one is to take its place":       {2, []Machine{serving("blue-2")}, HoldDrain},
		"and is there, but cannot start": {2, []Machine{serving("blue-2"), {Name: "blue-3", Created: eight}}, HoldDrain},
	} {
		leaver := serving("blue-1")
		leaver.Deleting, leaver.Leave.Held = true, eight.Add(-time.Minute)
		pool := Pool{Name: "blue", Replicas: c.replicas, Revision: "2", Stock: Limits{Unavailable: 1},
			Unsupported: "MachineDeployment blue is newer", Machines: append([]Machine{leaver}, c.beside...)}
		leaves := Plan(State{Pools: []Pool{pool}}, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, eight).Leaves
		NewWithT(t).Expect(leaves).To(ContainElement(And(HaveField("Machine", "blue-1"), HaveField("Action", c.want))), name)
	}
}

// A Machine stays that has a host, or a Node although its host is not known.
func TestWhichMachinesStay(t *testing.T) {
	pool := Pool{Machines: []Machine{{Hosted: true}, {Joined: true}, {Hosted: true, Joined: true},
		{Hosted: true, Deleting: true}, {}}}
	NewWithT(t).Expect(pool.staying()).To(Equal(3))
}

// A person's deletion of a pool that replaces nothing now waits for no taint, which nobody sets.
func TestADrainDoesNotWaitForTaintsThatNobodySets(t *testing.T) {
	g := NewWithT(t)
	leaver, other := serving("blue-1"), serving("blue-2")
	leaver.Deleting, leaver.Leave.Held = true, eight.Add(-time.Minute)
	leaver.Leave.Node.Marked, other.Leave.Node.Marked = false, false
	pool := Pool{Name: "blue", Replicas: 2, Revision: "2", OnDelete: true, Machines: []Machine{leaver, other}}
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
	leaves := Plan(State{Outdated: "2 of 3 Machines are outdated", Pools: []Pool{pool}}, policy, eight).Leaves
	g.Expect(leaves).To(ContainElement(And(HaveField("Machine", "blue-1"), HaveField("Action", Drain))), "%+v", leaves)
}

// A mark that may not be followed keeps no other pool from its rollout.
func TestAMarkHoldsUpNobodyElse(t *testing.T) {
	g := NewWithT(t)
	marked := serving("zinc-1")
	marked.Outdated, marked.NeedsUpdate = false, "needs-update on its Node"
	held := Machine{Name: "amber-2", Created: eight}
	pools := []Pool{
		{Name: "amber", Replicas: 1, Revision: "2", Completed: "1", Stock: Limits{Surge: 1},
			Machines: []Machine{serving("amber-1"), held}},
		{Name: "zinc", Replicas: 1, Revision: "2", Completed: "2", Stock: Limits{Surge: 1}, Machines: []Machine{marked}},
	}
	result := Plan(State{Pools: pools}, &quoinv1.RolloutPolicySpec{}, eight)
	g.Expect(result.Decisions).To(ContainElement(And(HaveField("Machine", "amber-2"), HaveField("Action", Admit))))
	g.Expect(result.Progress[1].Reason).To(Equal(Limited), "%+v", result.Progress[1])
}

// What a rollout deletes carries its hooks before, or it would not be drained as the policy says.
func TestNothingIsDeletedBeforeItsHooksAreOn(t *testing.T) {
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
	old := serving("blue-1")
	old.Leave.PreDrain = false
	pool := Pool{Name: "blue", Replicas: 1, Revision: "2", OnDelete: true, Machines: []Machine{old}}
	g.Expect(Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions).
		To(ConsistOf(And(HaveField("Action", Keep), HaveField("Reason", Scheduled))))
	pool.Machines[0].Leave.PreDrain = true
	g.Expect(Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions).To(ConsistOf(HaveField("Action", Delete)))
}

// What is remediated is neither tainted nor held, so no drain waits for its taint.
func TestADrainDoesNotWaitForTheTaintOfWhatIsRemediated(t *testing.T) {
	for name, c := range map[string]struct {
		remediated bool
		want       Action
	}{"it is to be tainted": {false, HoldDrain}, "it is remediated": {true, Drain}} {
		leaver, other := serving("blue-1"), serving("blue-2")
		leaver.Deleting, leaver.Leave.Held = true, eight.Add(-time.Minute)
		other.Leave.Node.Marked, other.Leave.Remediated = false, c.remediated
		other.Leave.PreDrain, other.Leave.PreTerminate = !c.remediated, !c.remediated
		pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Stock: Limits{Surge: 1, Unavailable: 1},
			Machines: []Machine{leaver, other, serving("blue-3")}}
		policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
		leaves := Plan(State{Pools: []Pool{pool}}, policy, eight).Leaves
		NewWithT(t).Expect(leaves).To(ContainElement(And(HaveField("Machine", "blue-1"), HaveField("Action", c.want))),
			"%s: %+v", name, leaves)
	}
}

// An outdated Machine without a host makes way once, and only where its place is all that the new one lacks.
func TestAMachineWithoutAHostMakesWayOnce(t *testing.T) {
	hostless := func(name string) Machine {
		return Machine{Name: name, Outdated: true, Admitted: eight.Add(-time.Minute), Created: eight.Add(-time.Minute),
			NoHost: "no free host matches", Leave: Leave{PreDrain: true, PreTerminate: true}}
	}
	leaving := hostless("blue-3")
	leaving.Deleting = true
	current := serving("blue-1")
	current.Outdated = false
	validates := &quoinv1.RolloutPolicySpec{Validation: &quoinv1.RolloutValidation{}}
	for name, c := range map[string]struct {
		policy  *quoinv1.RolloutPolicySpec
		first   Machine
		deleted int
	}{
		"nothing else holds the new one": {&quoinv1.RolloutPolicySpec{}, hostless("blue-3"), 1},
		"another one makes way already":  {&quoinv1.RolloutPolicySpec{}, leaving, 0},
		"the Cluster is to be validated": {validates, hostless("blue-3"), 0},
	} {
		pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Stock: Limits{Unavailable: 1},
			Machines: []Machine{current, c.first, hostless("blue-4"), {Name: "blue-5", Created: eight}}}
		result := Plan(State{Pools: []Pool{pool}}, c.policy, eight)
		deleted := 0
		for _, d := range result.Decisions {
			if d.Action == Delete {
				deleted++
			}
		}
		g := NewWithT(t)
		g.Expect(deleted).To(Equal(c.deleted), "%s: %+v", name, result.Decisions)
		if c.policy == validates {
			g.Expect(result.Look).NotTo(BeNil(), "it is looked at, or nothing would end it")
		}
	}
}
