// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// about deliberates about an upgrade to v1.36.3.
func about() *deliberation {
	f := newFleet("v1.36.3")
	return &deliberation{World: f.world(), Decision: &Decision{}, upgrade: &f.upgrade, spec: f.upgrade.Spec, now: f.now}
}

func TestAStepThatSomebodyElseDidTookNoTime(t *testing.T) {
	g, of, step := NewWithT(t), about(), &quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers}
	of.finish(step)
	g.Expect(step.StartTime.Time).To(Equal(of.now))
	g.Expect(step.CompletionTime.Time).To(Equal(of.now))
}

// Workers do not wait for add-ons that wait for them.
func TestWhatHasToEndBeforeTheNextVersion(t *testing.T) {
	for name, c := range map[string]struct {
		unsettled string
		held      bool
		step      quoinv1.UpgradeStepType
		says      string
	}{
		"Nodes":                      {"nodes", false, quoinv1.UpgradeStepControlPlane, "nodes"},
		"Nodes, before add-ons":      {"nodes", true, quoinv1.UpgradeStepWorkers, "nodes"},
		"add-ons":                    {"", false, quoinv1.UpgradeStepWorkers, "add-ons"},
		"held add-ons, for workers":  {"", true, quoinv1.UpgradeStepWorkers, ""},
		"held add-ons, for the rest": {"", true, quoinv1.UpgradeStepControlPlane, "add-ons"},
	} {
		of := about()
		of.ControlPlane = ControlPlane{Unsettled: c.unsettled, Addons: "add-ons", AddonsHeld: c.held}
		NewWithT(t).Expect(of.unfinished(&quoinv1.UpgradeStep{Type: c.step})).To(Equal(c.says), name)
	}
}

// What a move dropped is restored, where nothing speaks against it.
func TestTheVersionOfAnUpgradeThatIsDoneIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*deliberation)
		records bool
	}{
		"dropped":            {func(*deliberation) {}, true},
		"recorded":           {func(of *deliberation) { of.Infrastructure.Reached = "v1.36.3" }, false},
		"of another version": {func(of *deliberation) { of.Infrastructure.Value = "v1.36.4" }, false},
		"while it is paused": {func(of *deliberation) {
			of.Status.Conditions = []metav1.Condition{{Type: quoinv1.ClusterUpgradePausedCondition,
				Status: metav1.ConditionTrue}}
		}, false},
		"where no object has it": {func(of *deliberation) { of.Infrastructure = nil }, false},
	} {
		g, of := NewWithT(t), about()
		of.Infrastructure = &Infrastructure{Field: Field{Object: "QuoinCluster prod", Value: "v1.36.3"}}
		c.change(of)
		of.completed()
		if c.records {
			g.Expect(of.Change).To(HaveValue(Equal(Change{Kind: RecordVersion, Object: "QuoinCluster prod",
				Version: "v1.36.3"})), name)
		} else {
			g.Expect(of.Change).To(BeNil(), name)
		}
	}
}

// What was left out is said by the check that let the upgrade end, whatever is asked for by now.
func TestHowAClusterWasAtTheEnd(t *testing.T) {
	of, etcd := about(), []quoinv1.SkippedCheck{{Name: "Etcd"}}
	of.spec.Skip = etcd
	NewWithT(t).Expect(of.ended()).To(HaveSuffix("spec.skip had Etcd left out"))
	of.Checks = []Check{{Health: true}}
	NewWithT(t).Expect(of.ended()).To(Equal("the Cluster was healthy at v1.36.3"))
}

// The look at the end is that of this step: one from before it, or of another order, does not count.
func TestTheLookAtTheEndIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*deliberation, *quoinv1.UpgradeStep)
		made   bool
	}{
		"done":         {func(*deliberation, *quoinv1.UpgradeStep) {}, false},
		"none":         {func(of *deliberation, _ *quoinv1.UpgradeStep) { of.Checks = nil }, true},
		"an older one": {func(_ *deliberation, step *quoinv1.UpgradeStep) { step.StartTime = metav1.Time{} }, true},
		"another's":    {func(of *deliberation, _ *quoinv1.UpgradeStep) { of.Status.PreflightCheck = "other" }, true},
		"of another order": {func(of *deliberation, _ *quoinv1.UpgradeStep) {
			of.spec.Skip = []quoinv1.SkippedCheck{{Name: "Etcd"}}
		}, true},
	} {
		g, of := NewWithT(t), about()
		of.Status.PreflightCheck = "look"
		of.Checks = []Check{{Name: "look", Health: true, Completed: of.now.Add(-time.Minute),
			Skip: healthSkip(AllChecks, nil)}}
		step := &quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepHealth, StartTime: metav1.NewTime(of.now)}
		c.change(of, step)
		g.Expect(of.health(step)).To(Equal(!c.made), name)
		g.Expect(of.Change != nil).To(Equal(c.made), name)
	}
}

func TestAnUpgradeLeaves(t *testing.T) {
	g, of := NewWithT(t), &quoinv1.ClusterUpgrade{}
	g.Expect(Leaves(of)).To(BeFalse())
	of.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	g.Expect(Leaves(of)).To(BeTrue())
	g.Expect(Ended(of)).To(BeTrue())
	g.Expect(Leaves(&quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.Now())}})).
		To(BeTrue())
}

// The API takes so much advice of such a length.
func TestAdviceIsBounded(t *testing.T) {
	g, advice := NewWithT(t), make([]string, 33)
	advice[0] = strings.Repeat("a", 2000)
	bound := bounded(advice)
	g.Expect(bound).To(HaveLen(32))
	g.Expect(len(bound[0])).To(BeNumerically("<=", 1024))
	g.Expect(bounded([]string{"a"})).To(Equal([]string{"a"}))
}
