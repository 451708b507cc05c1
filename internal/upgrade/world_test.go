// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// What steps took elsewhere counts for those whose Machines are as well known.
func TestTheKindOfAStep(t *testing.T) {
	g, step := NewWithT(t), quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, Object: blue}
	g.Expect(StepKindOf(step)).To(Equal(StepKind{Type: quoinv1.UpgradeStepWorkers}))
	step.Machines = &quoinv1.UpgradeStepMachines{}
	g.Expect(StepKindOf(step)).To(Equal(StepKind{Type: quoinv1.UpgradeStepWorkers, Machines: true}))
	g.Expect(StepKey(step)).To(Equal("Workers MachineDeployment blue"))
}

// A MachineDeployment that nobody gave a version has those of its Nodes.
func TestTheVersionsOfAPool(t *testing.T) {
	g, of := NewWithT(t), Pool{Runs: append(make([]string, 0, 2), "v1.35.4")}
	g.Expect(of.versions()).To(Equal([]string{"v1.35.4"}))
	of.Value = "v1.36.3"
	g.Expect(of.versions()).To(Equal([]string{"v1.35.4", "v1.36.3"}))
	g.Expect(of.Runs[:2][1]).To(BeEmpty(), "the list that was read stays as it was")
}

// Before all others comes what has begun, then the groups, then what no group selects, and last what is suspended.
func TestTheOrderOfThePools(t *testing.T) {
	groups := func(names ...string) *quoinv1.RolloutPolicy {
		policy := &quoinv1.RolloutPolicy{}
		for i, name := range names {
			policy.Spec.Groups = append(policy.Spec.Groups, group(name, i))
		}
		return policy
	}
	suspends := func(policy *quoinv1.RolloutPolicy, at int) *quoinv1.RolloutPolicy {
		policy.Spec.Groups[at].Suspend = ptr.To(true)
		return policy
	}
	for name, c := range map[string]struct {
		policy *quoinv1.RolloutPolicy
		begun  string
		of     *Topology
		want   string
	}{
		"no policy":               {nil, "", nil, "abcd"},
		"no groups":               {groups(), "c", nil, "abcd"},
		"groups":                  {groups("c", "b"), "", nil, "cbad"},
		"one group":               {groups("c"), "", nil, "cabd"},
		"begun, of a later group": {groups("c", "b"), "b", nil, "bcad"},
		"begun, of no group":      {groups("c", "b"), "d", nil, "dcba"},
		"suspended":               {suspends(groups("a", "c"), 0), "", nil, "cbda"},
		"suspended, and begun":    {suspends(groups("a", "c"), 0), "a", nil, "cbda"},
		"the one group suspended": {suspends(groups("a"), 0), "", nil, "bcda"},
		"a topology":              {groups("c", "b"), "", &Topology{}, "abcd"},
	} {
		w, order := World{Cluster: &Cluster{Topology: c.of}, Policy: c.policy}, ""
		for _, name := range []string{"a", "b", "c", "d"} {
			pool := Pool{Field: Field{Value: "v1.35.4"}, Name: name, Runs: []string{"v1.35.4"}}
			if name == c.begun {
				pool.Value = "v1.36.3"
			}
			w.Pools = append(w.Pools, pool)
		}
		for _, pool := range w.ordered() {
			order += pool.Name
		}
		NewWithT(t).Expect(order).To(Equal(c.want), name)
	}
}

// A policy whose labels nobody can read selects nothing.
func TestAPolicyThatIsWrongSelectsNothing(t *testing.T) {
	g, w, pool := NewWithT(t), World{Policy: &quoinv1.RolloutPolicy{}}, Pool{Name: "b"}
	w.Policy.Spec.Groups = []quoinv1.RolloutGroup{group("a", 0), group("b", 1)}
	g.Expect(w.place(pool)).To(Equal(1))
	w.Policy.Spec.Groups[0].MachineDeployments.Labels = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}}}
	g.Expect(w.place(pool)).To(BeNumerically("<", 0))
}

// Versions are counted from the oldest, and Nodes of a hosted control plane there are none.
func TestWhatRunsIsCounted(t *testing.T) {
	g := NewWithT(t)
	w := World{ControlPlane: ControlPlane{Runs: []string{"v1.36.3", ""}},
		Pools: []Pool{{Runs: []string{"v1.9.1", "v1.35.4"}}}, Others: []skew.Running{{Version: "v1.35.4"}}}
	g.Expect(counted(w.nodes())).To(Equal([]clusterv1.StatusVersion{{Version: "v1.9.1", Replicas: 1},
		{Version: "v1.35.4", Replicas: 2}, {Version: "v1.36.3", Replicas: 1}}))
	w.ControlPlane.Hosted = true
	g.Expect(w.nodes()).To(Equal([]string{"v1.9.1", "v1.35.4", "v1.35.4"}))
}
