// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// mostSteps is what a status holds.
const mostSteps = 2000

// large is a fleet of as many pools, and of one that is to be raised by a minor.
func large(pools int) *fleet {
	f := newFleet("v1.36.3")
	f.plane = pool{name: "QuoinControlPlane prod", spec: "v1.35.4", nodes: []string{"v1.35.4"}}
	f.addons = "v1.35.4"
	for i := range pools {
		f.pools = append(f.pools, pool{name: fmt.Sprintf("pool-%04d", i), spec: "v1.35.4", nodes: []string{"v1.35.4"}})
	}
	return f
}

// A plan that is longer than what a status may list is carried out whole: the next steps are listed, each part under an
// id of its own, and nothing is done that was not listed.
func TestALongPlanIsListedInParts(t *testing.T) {
	g := NewWithT(t)
	f := large(2500)
	parts, listed := map[string]bool{}, map[string]bool{}
	for range 400 {
		d := f.step(false)
		if step := d.Status.Step; strings.HasPrefix(step, "1/") {
			g.Expect(step).To(Equal("1/2505 Preflight"))
		}
		g.Expect(len(f.upgrade.Status.Steps)).To(BeNumerically("<=", mostSteps))
		if d.Change != nil && d.Change.Kind == SetVersion && strings.HasPrefix(d.Change.Object, "MachineDeployment") {
			g.Expect(listed).To(HaveKey(d.Change.Object), "set before it was listed")
		}
		if f.completed() {
			break
		}
		if plan := f.upgrade.Status.Plan; plan != nil {
			parts[plan.ID] = true
		}
		for _, step := range f.upgrade.Status.Steps {
			listed[step.Object] = true
		}
		if d.Change == nil && !f.advance() {
			g.Expect(d.Status.Conditions).To(ContainElement(HaveField("Reason", quoinv1.PlannedReason)))
		}
		f.raiseMost(listed)
	}
	g.Expect(f.completed()).To(BeTrue(), "%s", f.status())
	g.Expect(parts).To(HaveLen(3))
	g.Expect(f.upgrade.Status.Plan.Changed).To(Equal("what it listed is done, and 502 more steps are left"))
	for _, p := range f.pools {
		g.Expect(p.nodes).To(Equal([]string{"v1.36.3"}), p.name)
	}
}

// A plan that just fits is listed to its end.
func TestAPlanThatFitsIsListedWhole(t *testing.T) {
	for pools, last := range map[int]quoinv1.UpgradeStepType{998: quoinv1.UpgradeStepHealth,
		999: quoinv1.UpgradeStepWorkers} {
		steps := large(pools).step(false).Status.Steps
		NewWithT(t).Expect(steps[len(steps)-1].Type).To(Equal(last))
	}
}

// Of the pools that are done the last stay, and of what is left the look at the end begins anew.
func TestStepsThatAreDoneAreKept(t *testing.T) {
	g, f := NewWithT(t), large(512)
	metav1.SetMetaDataAnnotation(&f.upgrade.ObjectMeta, quoinv1.ClusterUpgradeBegunAnnotation, Mark(&f.upgrade, f.now))
	at := metav1.NewTime(f.now)
	steps := []quoinv1.UpgradeStep{{Type: quoinv1.UpgradeStepPreflight, State: quoinv1.UpgradeStepDone, StartTime: at}}
	for i := range f.pools {
		f.pools[i].spec, f.pools[i].nodes = "v1.36.3", []string{"v1.36.3"}
		steps = append(steps, quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, To: "v1.36.3", StartTime: at,
			Object: "MachineDeployment " + f.pools[i].name, State: quoinv1.UpgradeStepDone})
	}
	steps[1].State = quoinv1.UpgradeStepRunning
	end := quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepHealth, StartTime: at}
	f.upgrade.Status.Steps = append(slices.Clone(steps), end)
	of := deliberation{World: f.world(), Decision: &Decision{Status: f.upgrade.Status}, upgrade: &f.upgrade, now: f.now}
	of.index()
	end.StartTime = metav1.Time{}
	kept, left := of.keep([]quoinv1.UpgradeStep{end})
	g.Expect(kept).To(Equal(append(slices.Clone(steps[:2]), steps[15:]...)))
	g.Expect(kept).To(HaveLen(500))
	g.Expect(left).To(Equal([]quoinv1.UpgradeStep{end}))
}

// Steps take as long as they did before, as far as that is known.
func TestStepsAreEstimated(t *testing.T) {
	g, f := NewWithT(t), large(2)
	w := f.world()
	w.Took = map[string]time.Duration{"Workers MachineDeployment pool-0000": 90 * time.Second,
		"Workers MachineDeployment pool-0001": (1 << 31) * time.Second}
	estimates := map[string]*int32{}
	for _, step := range Next(w, &f.upgrade, f.now).Status.Steps {
		estimates[step.Object] = step.EstimatedSeconds
	}
	g.Expect(estimates).To(And(HaveKeyWithValue("MachineDeployment pool-0000", ptr.To[int32](90)),
		HaveKeyWithValue("MachineDeployment pool-0001", ptr.To[int32](1<<30)),
		HaveKeyWithValue("QuoinControlPlane prod", BeNil())))
}

// A step without a history is estimated by what such steps took in other Clusters for each Machine; its own counts more.
func TestStepsWithoutAHistoryAreEstimated(t *testing.T) {
	g, f := NewWithT(t), large(2)
	f.pools[1].nodes = []string{"v1.34.4", "v1.34.4", "v1.34.4"}
	w := f.world()
	w.Took = map[string]time.Duration{"Workers MachineDeployment pool-0000": 90 * time.Second}
	w.PerMachine = map[StepKind]time.Duration{{Type: quoinv1.UpgradeStepWorkers, Machines: true}: 40 * time.Second,
		{Type: quoinv1.UpgradeStepPreflight}: 7 * time.Second, {Type: quoinv1.UpgradeStepControlPlane}: time.Hour}
	estimates := map[string]*int32{}
	for _, step := range Next(w, &f.upgrade, f.now).Status.Steps {
		estimates[StepKey(step)] = step.EstimatedSeconds
	}
	g.Expect(estimates).To(And(HaveKeyWithValue("Workers MachineDeployment pool-0000", ptr.To[int32](90)),
		HaveKeyWithValue("Workers MachineDeployment pool-0001", ptr.To[int32](120)),
		HaveKeyWithValue("Preflight ", ptr.To[int32](7)), HaveKeyWithValue("ControlPlane QuoinControlPlane prod", BeNil())))
}

// The look at the end leaves out what asks whether an upgrade may begin, and what people left out stays so.
func TestTheLookAtTheEndLeavesOut(t *testing.T) {
	g := NewWithT(t)
	asked := append(make([]quoinv1.SkippedCheck, 0, 8), quoinv1.SkippedCheck{Name: "Backup", Reason: "no store"})
	skipped := healthSkip([]string{"Backup", "ControlPlane", "Etcd", "Network", "Nodes", "Supply"}, asked)
	g.Expect(skipped).To(HaveExactElements(asked[0], HaveField("Name", "Supply")))
	g.Expect(asked[:2][1]).To(BeZero())
}

// raiseMost does what would take long: all but each hundredth of the listed pools, once the control plane is there.
func (f *fleet) raiseMost(listed map[string]bool) {
	for i := range f.pools {
		p := &f.pools[i]
		if f.plane.nodes[0] == "v1.36.3" && i%100 != 50 && listed["MachineDeployment "+p.name] {
			p.spec, p.nodes = "v1.36.3", []string{"v1.36.3"}
		}
	}
}

// A new pool among thousands makes a new plan, in time that grows with their number alone.
func BenchmarkReplan(b *testing.B) {
	for _, pools := range []int{250, 2000} {
		b.Run(fmt.Sprint(pools, " pools"), func(b *testing.B) {
			f := large(pools)
			f.step(false)
			world, of := f.world(), f.upgrade.DeepCopy()
			for i := range of.Status.Steps {
				of.Status.Steps[i].StartTime.Time = f.now
			}
			world.Pools = slices.Concat([]Pool{{Name: "new", Runs: []string{"v1.34.4"},
				Field: Field{Object: "MachineDeployment new", Value: "v1.34.4"}}}, world.Pools)
			for b.Loop() {
				if d := Next(world, of, f.now); d.Status.Plan.ID == of.Status.Plan.ID {
					b.Fatal("the plan is the same")
				}
			}
		})
	}
}
