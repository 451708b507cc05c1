// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// A step says what its object lacks, and where nobody says that, which version it waits for.
func TestWhatAStepWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		of          quoinv1.UpgradeStepType
		plane, pool string
		says        string
	}{
		"the control plane":         {quoinv1.UpgradeStepControlPlane, "a member", "a Machine", "a member"},
		"a pool":                    {quoinv1.UpgradeStepWorkers, "a member", "a Machine", "a Machine"},
		"a control plane is silent": {quoinv1.UpgradeStepControlPlane, "", "a Machine", ""},
		"a pool is silent":          {quoinv1.UpgradeStepWorkers, "a member", "", ""},
		"a field":                   {quoinv1.UpgradeStepSpecVersion, "a member", "a Machine", ""},
	} {
		of, step := about(), &quoinv1.UpgradeStep{Type: c.of, Object: blue, To: "v1.36.3"}
		of.ControlPlane.Unsettled = c.plane
		of.Pools = []Pool{{Field: Field{Object: blue}, Unsettled: c.pool}}
		of.index()
		if c.says == "" {
			c.says = "MachineDeployment blue is not everywhere at v1.36.3 yet"
		}
		NewWithT(t).Expect(of.unsettled(step)).To(Equal(c.says), name)
	}
}

// A version was set when its step was begun, and that of a topology when one of those that it raises was: one that was
// done as soon as somebody looked is somebody else's work.
func TestWhatWasSetAlready(t *testing.T) {
	at := func(minute int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 11, 25, 12, minute, 0, 0, time.UTC))
	}
	begun := func(of quoinv1.UpgradeStepType) quoinv1.UpgradeStep {
		return quoinv1.UpgradeStep{Type: of, StartTime: at(1)}
	}
	ended := func(of quoinv1.UpgradeStepType, minute int) quoinv1.UpgradeStep {
		return quoinv1.UpgradeStep{Type: of, StartTime: at(1), CompletionTime: at(minute)}
	}
	pending := func(of quoinv1.UpgradeStepType) quoinv1.UpgradeStep { return quoinv1.UpgradeStep{Type: of} }
	const record, plane, workers = quoinv1.UpgradeStepSpecVersion, quoinv1.UpgradeStepControlPlane,
		quoinv1.UpgradeStepWorkers
	type steps = []quoinv1.UpgradeStep
	for name, c := range map[string]struct {
		topology *Topology
		steps    steps // the last is asked for
		want     bool
	}{
		"its step":                  {nil, steps{begun(plane)}, true},
		"another step":              {nil, steps{begun(plane), pending(workers)}, false},
		"the record of a topology":  {&Topology{}, steps{begun(record)}, true},
		"before that":               {&Topology{}, steps{begun(plane), pending(record)}, false},
		"a step of a topology":      {&Topology{}, steps{begun(plane)}, true},
		"after one of those":        {&Topology{}, steps{ended(plane, 2), pending(workers)}, true},
		"beside a pool":             {&Topology{}, steps{begun(workers), pending(plane)}, true},
		"one that was done at once": {&Topology{}, steps{ended(plane, 1), pending(workers)}, false},
		"after the record":          {&Topology{}, steps{begun(record), pending(plane)}, false},
		"nothing":                   {&Topology{}, steps{pending(plane)}, false},
	} {
		of := about()
		of.Cluster.Topology, of.Status.Steps = c.topology, c.steps
		NewWithT(t).Expect(of.written(&c.steps[len(c.steps)-1])).To(Equal(c.want), name)
	}
}

// When an upgrade was begun its annotation says, which a move carries and its status not.
func TestAnUpgradeThatWasBegunKnowsWhen(t *testing.T) {
	g, of := NewWithT(t), about()
	began := of.now.Add(-time.Hour)
	of.upgrade.Annotations = map[string]string{quoinv1.ClusterUpgradeBegunAnnotation: Mark(of.upgrade, began)}
	g.Expect(of.mayTouch(&quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepControlPlane})).To(BeTrue())
	g.Expect(of.Status.StartTime.Time).To(BeTemporally("==", began))
	g.Expect(of.Change).To(BeNil())
}

// No version is set while the control plane is about something, and the step says what; a record of what runs is.
func TestAVersionIsSetOnceTheControlPlaneHasSettled(t *testing.T) {
	const unsettled = "a Machine joins"
	for of, changes := range map[quoinv1.UpgradeStepType]bool{
		quoinv1.UpgradeStepControlPlane: false,
		quoinv1.UpgradeStepWorkers:      false,
		quoinv1.UpgradeStepSpecVersion:  true,
	} {
		t.Run(string(of), func(t *testing.T) {
			g, upgrade := NewWithT(t), about()
			upgrade.ControlPlane.Field = Field{Object: "QuoinControlPlane c", Value: "v1.35.4"}
			upgrade.ControlPlane.Unsettled = unsettled
			upgrade.Infrastructure = &Infrastructure{Field: Field{Object: "QuoinCluster c", Value: "v1.35.4"}}
			upgrade.Pools = []Pool{{Field: Field{Object: blue, Value: "v1.35.4"}}}
			upgrade.index()
			step := &quoinv1.UpgradeStep{Type: of, Object: blue, To: "v1.36.3"}
			g.Expect(upgrade.write(step)).To(BeFalse())
			g.Expect(upgrade.Change != nil).To(Equal(changes))
			g.Expect(step.StartTime.IsZero()).To(Equal(!changes))
			g.Expect(step.State).To(Equal(quoinv1.UpgradeStepRunning))
			if !changes {
				g.Expect(step.Message).To(Equal(unsettled))
			}
		})
	}
}

// While the end is written down, that is what the upgrade is about.
func TestWhatIsDoneIsWrittenDown(t *testing.T) {
	g, of := NewWithT(t), about()
	of.complete()
	g.Expect(meta.FindStatusCondition(of.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", string(quoinv1.UpgradeStepHealth)),
		HaveField("Message", ContainSubstring("is written down"))))
}
