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
