// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

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
