// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// A preflight that passed holds for what it looked at, and for ten minutes once the plan is approved.
func TestWhenAPreflightIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*deliberation)
		made, passed bool
	}{
		"it passed ten minutes ago": {change: func(*deliberation) {}, passed: true},
		"it passed a second before": {change: func(of *deliberation) { of.now = of.now.Add(time.Second) }, made: true},
		"it passed before, and nobody approved the plan": {change: func(of *deliberation) {
			of.now = of.now.Add(time.Second)
			of.spec.Approve = quoinv1.UpgradeApprovalManual
		}, passed: true},
		"it looks":       {change: func(of *deliberation) { of.Checks[0].Completed = time.Time{} }},
		"there is none":  {change: func(of *deliberation) { of.Checks = nil }, made: true},
		"another looked": {change: func(of *deliberation) { of.Checks[0].Health = true }, made: true},
		"a move left it": {change: func(of *deliberation) { of.Checks[0].Moved = true }, made: true},
		"another check is left out": {change: func(of *deliberation) {
			of.spec.Skip = []quoinv1.SkippedCheck{{Name: "Etcd"}}
		}, made: true},
		"the way is another one": {change: func(of *deliberation) { of.spec.Via = []string{"v1.35.4"} }, made: true},
		"other workers are raised": {change: func(of *deliberation) {
			of.spec.Workers = quoinv1.UpgradeWorkersAsNeeded
		}, made: true},
		"there is none, and the upgrade has begun": {change: func(of *deliberation) {
			of.Checks = nil
			metav1.SetMetaDataAnnotation(&of.upgrade.ObjectMeta, quoinv1.ClusterUpgradeBegunAnnotation,
				Mark(of.upgrade, of.now))
		}, passed: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, of, step := NewWithT(t), about(), &quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepPreflight}
			of.Status.Plan = &quoinv1.UpgradePlan{ID: "shown"}
			of.Checks = []Check{{Name: "look", Completed: of.now.Add(-10 * time.Minute), Workers: of.spec.Workers}}
			c.change(of)
			g.Expect(of.run(step)).To(Equal(c.passed))
			g.Expect(of.Change != nil).To(Equal(c.made))
			g.Expect(step.StartTime.Time).To(Equal(of.now))
			if c.made {
				g.Expect(of.Change.Check.Via).To(Equal(of.spec.Via))
				g.Expect(step.Message).To(Equal("a PreflightCheck is made"))
				g.Expect(step.State).To(Equal(quoinv1.UpgradeStepRunning))
			}
		})
	}
}

func TestWhenACheckThatBlocksIsMadeAgain(t *testing.T) {
	for step, after := range map[quoinv1.UpgradeStepType]time.Duration{
		quoinv1.UpgradeStepPreflight: 5 * time.Minute, quoinv1.UpgradeStepHealth: 30 * time.Second,
	} {
		for _, left := range []time.Duration{time.Second, 0} {
			g, of := NewWithT(t), about()
			check := Check{Name: "look", Blocks: true, Completed: of.now.Add(left - after), Workers: of.spec.Workers}
			if step == quoinv1.UpgradeStepHealth {
				check.Health, check.Skip, of.Status.PreflightCheck = true, healthSkip(AllChecks, nil), "look"
			}
			of.Checks = []Check{check}
			g.Expect(of.run(&quoinv1.UpgradeStep{Type: step, StartTime: metav1.NewTime(of.now)})).To(BeFalse())
			g.Expect(of.Change != nil).To(Equal(left == 0), "%s, %s before that", step, left)
			g.Expect(of.Again).To(Equal(left))

			of, check.Completed = about(), of.now.Add(-time.Hour)
			of.Status.PreflightCheck, of.Checks = "look", []Check{check}
			of.Steps = setForward(check.Completed, time.Hour+left-after)
			g.Expect(of.run(&quoinv1.UpgradeStep{Type: step, StartTime: metav1.NewTime(of.now)})).To(BeFalse())
			g.Expect(of.Again).To(Equal(left), "the clock was set forward")
		}
	}
}

// That a check was made may be the last that a process did, so that no status says so.
func TestALookThatNobodyNotedIsWaitedFor(t *testing.T) {
	g, of, step := NewWithT(t), about(), &quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepHealth}
	g.Expect(of.run(step)).To(BeFalse())
	g.Expect(of.Change.Kind).To(Equal(MakeCheck))
	g.Expect(step.StartTime.Time).To(Equal(of.now))

	of, step = about(), &quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepHealth}
	of.Checks = []Check{{Name: "look", Health: true}}
	g.Expect(of.run(step)).To(BeFalse())
	g.Expect(of.Change).To(BeNil())
	g.Expect(step.StartTime.Time).To(Equal(of.now))
	g.Expect(of.Status.PreflightCheck).To(Equal("look"))
}

// An earlier upgrade of the name may have left checks, and those that this one made may be gone.
func TestChecksHaveNewNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		attempts map[string]int
		checks   []Check
	}{
		"prod-preflight-1":  {checks: []Check{{Health: true, Attempt: 20}}},
		"prod-preflight-8":  {attempts: map[string]int{Preflight: 7, Health: 20}, checks: []Check{{Attempt: 3}}},
		"prod-preflight-10": {attempts: map[string]int{Preflight: 7}, checks: []Check{{Attempt: 9}, {Attempt: 8}}},
	} {
		g, of := NewWithT(t), about()
		of.Attempts, of.Checks = c.attempts, c.checks
		of.makeCheck(&quoinv1.UpgradeStep{}, false, nil)
		g.Expect(of.Change.Check.Name).To(Equal(name))
		g.Expect(of.Status.PreflightCheck).To(Equal(name))
	}
}
