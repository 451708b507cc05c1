// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Machines that are on other hosts each time somebody looks make no other plan, and nothing else is done.
func TestHostsMakeNoOtherPlan(t *testing.T) {
	story := func(drifts bool) (plans, writes []string) {
		f := newEstate(t, 0).fleet
		for range 300 {
			for i := range f.plane.nodes {
				if drifts {
					spare := fmt.Sprint("metal/", rand.Int()) //nolint:gosec // a name
					version := f.plane.nodes[i]
					f.plane.replace(i, &spare)
					f.plane.nodes[i] = version
				}
			}
			d := f.step(false)
			if plan := d.Status.Plan; !slices.Contains(plans, plan.ID+plan.Changed) {
				plans = append(plans, plan.ID+plan.Changed)
			}
			if d.Change == nil && !f.advance() && f.completed() {
				break
			}
		}
		return plans, f.writes
	}
	g := NewWithT(t)
	plans, writes := story(false)
	g.Expect(plans).To(HaveLen(1))
	g.Expect(writes[len(writes)-1]).To(HavePrefix("Complete"))
	drifted, wrote := story(true)
	g.Expect(drifted).To(Equal(plans))
	g.Expect(wrote).To(Equal(writes))
}

// What is shown stays the same while nothing happens, though windows open and close: a status that changed each minute
// would be written each minute.
func TestWhatIsShownChangesWithTheWorldAlone(t *testing.T) {
	g := NewWithT(t)
	f := newEstate(t, 0).fleet
	f.upgrade.Spec.Approve = quoinv1.UpgradeApprovalManual
	f.windows = []quoinv1.RolloutWindow{{Start: "08:00", DurationMinutes: ptr.To[int32](60)}}
	f.step(false)
	before := f.upgrade.Status.DeepCopy()
	g.Expect(before.Plan.Holds).To(HaveLen(2))
	f.checks = append(f.checks, Check{Name: "prod-preflight-1", Attempt: 1})
	for range 2 * 24 * 60 {
		f.now = f.now.Add(time.Minute)
		f.step(false)
		after := f.upgrade.Status.DeepCopy()
		after.Steps[0].State, after.Steps[0].StartTime, after.Steps[0].Message = before.Steps[0].State,
			before.Steps[0].StartTime, before.Steps[0].Message // it looks
		g.Expect(after.Plan).To(Equal(before.Plan))
		g.Expect(after.Steps).To(Equal(before.Steps))
	}
}

// The longest plan that a status lists, of pools with the longest names and under a policy that says all it can, is
// within what an API server stores.
func TestALongPlanFitsIntoAnObject(t *testing.T) {
	g := NewWithT(t)
	f := large(1500)
	long := strings.Repeat("x", 55)
	for i := range f.pools {
		f.pools[i].name = fmt.Sprintf("%s-%04d", long, i)
		f.pools[i].nodes = slices.Repeat([]string{"v1.35.4"}, 9)
		f.pools[i].paused, f.pools[i].onDelete = true, true
	}
	f.upgrade.Spec.Approve = quoinv1.UpgradeApprovalManual
	f.rollout.Groups = []quoinv1.RolloutGroup{{Name: long, PauseAfter: quoinv1.RolloutPauseEachMachine}}
	for i := range f.pools {
		f.rollout.Groups[0].MachineDeployments.Names = append(f.rollout.Groups[0].MachineDeployments.Names, f.pools[i].name)
	}
	for range 16 {
		f.windows = append(f.windows, quoinv1.RolloutWindow{Start: "08:00", DurationMinutes: ptr.To[int32](60),
			Days:     []quoinv1.RolloutDay{"Monday", "Tuesday", "Wednesday", "Thursday"},
			TimeZone: "America/Argentina/Buenos_Aires"})
	}
	f.step(false)
	g.Expect(f.upgrade.Status.Steps).To(HaveLen(mostListed + 2))
	for _, step := range f.upgrade.Status.Steps {
		g.Expect(len(step.Holds)).To(BeNumerically("<=", 8))
		if machines := step.Machines; machines != nil && step.Type == quoinv1.UpgradeStepWorkers {
			g.Expect(*machines.Count).To(BeEquivalentTo(9))
			g.Expect(machines.Hosts).To(HaveLen(mostHosts))
		}
		for _, hold := range step.Holds {
			g.Expect(len(hold.Message)).To(BeNumerically("<=", mostHold))
		}
	}
	stored, err := json.Marshal(f.upgrade.Status)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(stored)).To(BeNumerically("<", 3<<19), "etcd takes 1.5 MiB")
	t.Log(len(stored), "bytes")
}

// Nothing holds what is done, also while its pool is paused.
func TestNothingHoldsWhatIsDone(t *testing.T) {
	g, f := NewWithT(t), newEstate(t, 0).fleet
	f.pools[0].paused = true
	held := map[quoinv1.UpgradeStepState]bool{}
	for range 100 {
		d := f.step(false)
		for _, step := range d.Status.Steps {
			if step.Type == quoinv1.UpgradeStepWorkers && !f.completed() {
				held[step.State] = len(step.Holds) > 0
			}
		}
		if d.Change == nil {
			f.advance()
		}
	}
	g.Expect(f.completed()).To(BeTrue())
	g.Expect(held).To(Equal(map[quoinv1.UpgradeStepState]bool{quoinv1.UpgradeStepPending: true,
		quoinv1.UpgradeStepRunning: true, quoinv1.UpgradeStepDone: false}))
}

// An approval that is missing holds the last step that is left, and nothing when none is.
func TestAnApprovalHoldsWhatIsLeft(t *testing.T) {
	g, of := NewWithT(t), about()
	of.spec.Approve, of.Status.Plan = quoinv1.UpgradeApprovalManual, &quoinv1.UpgradePlan{ID: "shown"}
	of.Status.Steps = []quoinv1.UpgradeStep{{Type: quoinv1.UpgradeStepPreflight, State: quoinv1.UpgradeStepDone},
		{Type: quoinv1.UpgradeStepHealth, State: quoinv1.UpgradeStepPending}}
	g.Expect(of.planHolds()).To(HaveExactElements(HaveField("Type", quoinv1.UpgradeHoldApproval)))
	of.Status.Steps[1].State = quoinv1.UpgradeStepDone
	g.Expect(of.planHolds()).To(BeEmpty())
}

// Machines are replaced for the control plane, unless it is a hosted one, and for pools: those that are older.
func TestHowAnObjectGetsItsVersion(t *testing.T) {
	older := []Node{{"metal/h5", "v1.35.4"}, {"metal/h4", "v1.35.4"}, {"metal/h2", "v1.36.3"}, {"metal/h3", "v1.34.9"},
		{"metal/h1", "v1.36.9"}}
	many := append([]Node{{"metal/h0", "v1.35.4"}}, older...)
	replaced := func(count int32, hosts ...string) *quoinv1.UpgradeStepMachines {
		return &quoinv1.UpgradeStepMachines{Count: ptr.To(count), Hosts: hosts}
	}
	for name, c := range map[string]struct {
		step   quoinv1.UpgradeStepType
		nodes  []Node
		hosted bool
		change quoinv1.UpgradeStepChange
		want   *quoinv1.UpgradeStepMachines
	}{
		"a preflight":            {step: quoinv1.UpgradeStepPreflight},
		"the look at the end":    {step: quoinv1.UpgradeStepHealth},
		"a field":                {step: quoinv1.UpgradeStepSpecVersion, change: quoinv1.UpgradeStepUpdate},
		"add-ons":                {step: quoinv1.UpgradeStepAddons, change: quoinv1.UpgradeStepUpdate},
		"add-ons, hosted":        {step: quoinv1.UpgradeStepAddons, hosted: true, change: quoinv1.UpgradeStepUpdate},
		"a hosted control plane": {step: quoinv1.UpgradeStepControlPlane, nodes: older, hosted: true},
		"a control plane": {quoinv1.UpgradeStepControlPlane, older, false, quoinv1.UpgradeStepReplace,
			replaced(3, "metal/h3", "metal/h4", "metal/h5")},
		"a pool of a hosted one": {quoinv1.UpgradeStepWorkers, many, true, quoinv1.UpgradeStepReplace,
			replaced(4, "metal/h0", "metal/h3", "metal/h4")},
		"a pool without Machines": {quoinv1.UpgradeStepWorkers, nil, false, quoinv1.UpgradeStepReplace, replaced(0)},
	} {
		w := World{ControlPlane: ControlPlane{Hosted: c.hosted}, Nodes: map[string][]Node{"it": c.nodes}}
		change, machines := w.changes(quoinv1.UpgradeStep{Type: c.step, Object: "it", To: "v1.36.3"})
		NewWithT(t).Expect(change).To(Equal(c.change), name)
		NewWithT(t).Expect(machines).To(Equal(c.want), name)
	}
}

// Of the pools that have to be raised before the control plane goes on one is named, and the others are counted.
func TestPoolsThatHoldTheControlPlaneAreCounted(t *testing.T) {
	for pools, says := range map[int]string{0: "", 1: "after Workers MachineDeployment a -> v1.36.3: ",
		2: "after Workers MachineDeployment a -> v1.36.3 and 1 more: ",
		3: "after Workers MachineDeployment a -> v1.36.3 and 2 more: "} {
		g, f := NewWithT(t), newFleet("v1.37.0")
		f.upgrade.Spec.Via = []string{"v1.36.3"}
		f.plane = pool{name: prod, spec: "v1.35.4", nodes: []string{"v1.35.4"}}
		f.addons = "v1.35.4"
		for _, name := range []string{"a", "b", "c"}[:pools] {
			f.pool(name + ":v1.33.4")
		}
		var held []quoinv1.UpgradeHold
		for _, step := range f.step(false).Status.Steps {
			if step.Type == quoinv1.UpgradeStepControlPlane {
				held = step.Holds
			}
		}
		g.Expect(held[0].Message).To(HavePrefix("after ControlPlane QuoinControlPlane prod -> v1.36.3: "))
		g.Expect(held).To(HaveLen(min(pools, 1) + 1))
		if pools > 0 {
			g.Expect(held[1].Message).To(HavePrefix(says))
		}
	}
}

// A pool that is raised twice waits for others, and never for itself.
func TestAPoolThatIsRaisedTwiceWaitsForOthers(t *testing.T) {
	of := about()
	of.Policy = &quoinv1.RolloutPolicy{}
	for _, object := range []string{"a", "a", "b"} {
		of.Status.Steps = append(of.Status.Steps, quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, Object: object})
	}
	NewWithT(t).Expect(of.predecessors(map[string]int{"a": 0, "b": 0})).To(Equal(map[string]string{"b": "a"}))
}

// A pool that the policy has first and that is raised later holds one that is raised before it only while it is outdated.
func TestAPoolThatIsRaisedLaterHoldsWhileItIsOutdated(t *testing.T) {
	for unsettled, want := range map[string]map[string]string{"": {}, "1 of 3 Machines is older": {"b": "a"}} {
		of := about()
		of.Policy = &quoinv1.RolloutPolicy{}
		of.Pools = []Pool{{Field: Field{Object: "a"}, Unsettled: unsettled}, {Field: Field{Object: "b"}}}
		of.index()
		of.Status.Steps = []quoinv1.UpgradeStep{{Type: quoinv1.UpgradeStepWorkers, Object: "b"},
			{Type: quoinv1.UpgradeStepWorkers, Object: "a"}}
		NewWithT(t).Expect(of.predecessors(map[string]int{"a": 0, "b": 1})).To(Equal(want))
	}
}

// What a group says goes before what its policy says, also of the only group that there is.
func TestAGroupHoldsItsPools(t *testing.T) {
	of := about()
	of.Policy = &quoinv1.RolloutPolicy{}
	of.Policy.Name, of.Policy.Spec.PauseAfter = "prod", quoinv1.RolloutPauseCanary
	of.Pools = []Pool{{Field: Field{Object: "a"}}}
	of.index()
	step := quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, Object: "a"}
	for says, groups := range map[string][]quoinv1.RolloutGroup{
		"RolloutPolicy prod: after the first new Machine until spec.continueAfter names it":              nil,
		"group web of RolloutPolicy prod: after the first new Machine until spec.continueAfter names it": {{Name: "web"}},
		"group web of RolloutPolicy prod: after each new Machine until spec.continueAfter names it": {{Name: "web",
			PauseAfter: quoinv1.RolloutPauseEachMachine}},
	} {
		of.Policy.Spec.Groups = groups
		NewWithT(t).Expect(of.poolHolds(step, map[string]int{"a": 0}, "")).To(HaveExactElements(
			quoinv1.UpgradeHold{Type: quoinv1.UpgradeHoldPause, Message: says}))
	}
}

// Windows are said in the policy's words, and of many the first.
func TestWindowsAreSaid(t *testing.T) {
	nights := quoinv1.RolloutWindow{Start: "22:00", DurationMinutes: ptr.To[int32](90)}
	sundays := quoinv1.RolloutWindow{Days: []quoinv1.RolloutDay{"Sunday"}, Start: "08:00", TimeZone: "Europe/Berlin",
		DurationMinutes: ptr.To[int32](60)}
	both := quoinv1.RolloutWindow{Days: []quoinv1.RolloutDay{"Saturday", "Sunday"}, Start: "08:00",
		DurationMinutes: ptr.To[int32](60)}
	night, sunday := "every day 22:00 UTC for 1h30m", "Sunday 08:00 Europe/Berlin for 1h0m"
	for says, windows := range map[string][]quoinv1.RolloutWindow{
		"":                                    nil,
		night:                                 {nights},
		night + "; " + sunday:                 {nights, sundays},
		"Saturday, Sunday 08:00 UTC for 1h0m": {both},
		night + "; " + night + "; " + sunday:  {nights, nights, sundays},
		strings.Repeat(night+"; ", 3) + "and 1 more":  slices.Repeat([]quoinv1.RolloutWindow{nights}, 4),
		strings.Repeat(sunday+"; ", 3) + "and 3 more": slices.Repeat([]quoinv1.RolloutWindow{sundays}, 6),
	} {
		of, policy := about(), &quoinv1.RolloutPolicy{}
		policy.Name, policy.Spec.Windows = "prod", windows
		var want []quoinv1.UpgradeHold
		if says != "" {
			want = append(want, quoinv1.UpgradeHold{Type: quoinv1.UpgradeHoldWindow,
				Message: "RolloutPolicy prod has Machines replaced on " + says})
		}
		of.Policy = policy
		NewWithT(t).Expect(of.windowHolds()).To(Equal(want))
	}
}

// The API takes texts of such lengths.
func TestTextsAreBounded(t *testing.T) {
	g, long := NewWithT(t), strings.Repeat("a", 5000)
	g.Expect(hold(quoinv1.UpgradeHoldPause, "%s", long).Message).To(HaveLen(256))
	g.Expect(short(long)).To(HaveLen(4096))
	g.Expect(bounded([]string{long})).To(HaveExactElements(HaveLen(1024)))
}
