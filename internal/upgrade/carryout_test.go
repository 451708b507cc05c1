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
