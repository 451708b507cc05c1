// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// The oldest policy of a Cluster holds, and of two that are as old the first by name.
func TestThePolicyOfACluster(t *testing.T) {
	g := NewWithT(t)
	at := metav1.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	of := func(name, cluster string, after time.Duration) quoinv1.RolloutPolicy {
		p := quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.NewTime(at.Add(after))}}
		p.Spec.ClusterName = cluster
		return p
	}
	g.Expect(Of(nil, "prod")).To(BeNil())
	policies := []quoinv1.RolloutPolicy{of("d", "other", 0), of("c", "prod", time.Minute), of("b", "prod", time.Second),
		of("b", "prod", time.Second), of("a", "prod", time.Second), of("0", "prod", time.Hour)}
	g.Expect(Of(policies[:1], "prod")).To(BeNil())
	g.Expect(Of(policies[:2], "prod")).To(BeIdenticalTo(&policies[1]))
	g.Expect(Of(policies[:4], "prod")).To(BeIdenticalTo(&policies[2]))
	g.Expect(Of(policies, "prod")).To(BeIdenticalTo(&policies[4]))
	policies[4].DeletionTimestamp = ptr.To(at)
	g.Expect(Of(policies, "prod")).To(BeIdenticalTo(&policies[2]))
}

// A MachineDeployment belongs to the first group that names it or selects its labels.
func TestTheGroupOfAMachineDeployment(t *testing.T) {
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{}
	place := func(name string, labels map[string]string) int {
		place, err := Select(policy, name, labels)
		g.Expect(err).NotTo(HaveOccurred())
		return place
	}
	g.Expect(place("blue", nil)).To(Equal(0))
	by := func(label string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{label: ""}}
	}
	policy.Groups = []quoinv1.RolloutGroup{{MachineDeployments: quoinv1.RolloutSelector{Names: []string{"blue"}}},
		{MachineDeployments: quoinv1.RolloutSelector{Labels: by("a")}},
		{MachineDeployments: quoinv1.RolloutSelector{Labels: by("b")}}}
	g.Expect(place("blue", map[string]string{"b": ""})).To(Equal(0))
	g.Expect(place("green", map[string]string{"b": "", "a": ""})).To(Equal(1))
	g.Expect(place("green", map[string]string{"b": ""})).To(Equal(2))
	g.Expect(place("green", nil)).To(Equal(-1))
	policy.Groups[2].MachineDeployments.Names = []string{"green"}
	g.Expect(place("green", nil)).To(Equal(2))
	policy.Groups[2].MachineDeployments.Names = nil
	policy.Groups[0].MachineDeployments.Labels = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{}}}
	at, err := Select(policy, "green", nil)
	g.Expect(err).To(HaveOccurred())
	g.Expect(at).To(Equal(-1))
}

// What a group says holds for its pools, whose Machines are looked at by their age and name.
func TestWhatHoldsForAPool(t *testing.T) {
	g := NewWithT(t)
	drain, validation := &quoinv1.RolloutDrain{}, &quoinv1.RolloutValidation{}
	policy := &quoinv1.RolloutPolicySpec{Groups: []quoinv1.RolloutGroup{
		{Name: "a", Suspend: ptr.To(true), Drain: drain, Validation: validation, Concurrency: ptr.To[int32](2)}, {Name: "b"}}}
	policy.Groups[0].MachineDeployments.Names = []string{"blue"}
	policy.Groups[1].MachineDeployments.Names = []string{"red"}
	counting := func(name string, unhealthy string, age time.Duration) Machine {
		return Machine{Name: name, Hosted: true, Joined: true, Unhealthy: unhealthy, Created: eight.Add(-age)}
	}
	pools := []Pool{{Name: "red"}, {Name: "none"}, {Name: "blue", Machines: []Machine{counting("c", "ill", 0),
		counting("b", "ill", time.Hour), counting("a", "", time.Hour), counting("d", "ill", 0)}}}
	arranged, err := arrange(pools, policy)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(arranged).To(HaveLen(2))
	blue, red := arranged[0], arranged[1]
	g.Expect(blue.group).To(Equal("a"))
	g.Expect(blue.atOnce).To(Equal(2))
	g.Expect(blue.suspended).To(Equal("group a is suspended: take suspend off it"))
	g.Expect(blue.drain).NotTo(BeNil())
	g.Expect(blue.validation).To(BeIdenticalTo(validation))
	g.Expect(blue.failing.Name).To(Equal("b"), "it is the oldest that is ill")
	names := ""
	for _, m := range blue.Machines {
		names += m.Name
	}
	g.Expect(names).To(Equal("abcd"))
	g.Expect(red.group).To(Equal("b"))
	g.Expect(red.atOnce).To(BeZero())
	g.Expect(red.suspended).To(BeEmpty())
	g.Expect(red.failing).To(BeNil())
	policy.Groups[0].MachineDeployments = quoinv1.RolloutSelector{Labels: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{}}}}
	_, err = arrange(pools[:1], policy)
	g.Expect(err).To(MatchError(HavePrefix("group a: machineDeployments.labels: ")))
}

// A rollout is done when all count, or as many as were at work where the others find no host.
func TestWhenARolloutIsDone(t *testing.T) {
	counting := Machine{Hosted: true, Joined: true}
	finds := Machine{Admitted: eight, Gated: true, NoHost: "none is free"}
	for name, c := range map[string]struct {
		pool Pool
		done bool
	}{
		"all count":                      {Pool{Replicas: 1, Machines: []Machine{counting}}, true},
		"one is outdated":                {Pool{Replicas: 1, Machines: []Machine{counting, old("a", "")}}, false},
		"one waits":                      {Pool{Replicas: 1, Machines: []Machine{counting, {}}}, false},
		"one is on its way":              {Pool{Replicas: 1, Machines: []Machine{counting, {Hosted: true}}}, false},
		"there is no MachineSet":         {Pool{Revision: "none", Replicas: 1, Machines: []Machine{counting}}, false},
		"one is missing":                 {Pool{Replicas: 2, DoneOf: 1, Machines: []Machine{counting}}, false},
		"another finds no host":          {Pool{Replicas: 2, DoneOf: 1, Machines: []Machine{counting, finds}}, true},
		"another waits behind that":      {Pool{Replicas: 3, DoneOf: 1, Machines: []Machine{counting, finds, {}}}, true},
		"one of two finds no host":       {Pool{Replicas: 3, DoneOf: 2, Machines: []Machine{counting, finds}}, false},
		"one that replaces nothing does": {Pool{Replicas: 2, Machines: []Machine{counting, finds}}, false},
	} {
		c.pool.Revision, c.pool.Completed = map[bool]string{true: "", false: "2"}[c.pool.Revision == "none"], "1"
		NewWithT(t).Expect(c.pool.completed() != "1").To(Equal(c.done), name)
	}
}

// A MachineDeployment is led that is of the Cluster, makes QuoinMachines, and is not being deleted.
func TestWhichMachineDeploymentsCanBeSelected(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*clusterv1.MachineDeployment)
		leads  bool
	}{
		"it makes QuoinMachines":   {func(*clusterv1.MachineDeployment) {}, true},
		"it is of another Cluster": {func(pool *clusterv1.MachineDeployment) { pool.Spec.ClusterName = "test" }, false},
		"it is being deleted": {func(pool *clusterv1.MachineDeployment) {
			pool.DeletionTimestamp = ptr.To(metav1.NewTime(eight))
		}, false},
		"its Machines are of another kind": {func(pool *clusterv1.MachineDeployment) {
			pool.Spec.Template.Spec.InfrastructureRef.Kind = "DockerMachineTemplate"
		}, false},
		"its Machines are of another provider": {func(pool *clusterv1.MachineDeployment) {
			pool.Spec.Template.Spec.InfrastructureRef.APIGroup = "infrastructure.example.com"
		}, false},
	} {
		pool := &clusterv1.MachineDeployment{}
		pool.Spec.ClusterName = "prod"
		pool.Spec.Template.Spec.InfrastructureRef.Kind = "QuoinMachineTemplate"
		pool.Spec.Template.Spec.InfrastructureRef.APIGroup = infrav1.GroupVersion.Group
		c.change(pool)
		NewWithT(t).Expect(Leads("prod", pool)).To(Equal(c.leads), name)
	}
}

// A template that came while no Machine was asked for is not done, since none has shown that it works. What was done
// stays so.
func TestATemplateOfNoMachinesIsNotDone(t *testing.T) {
	for name, c := range map[string]struct {
		pool Pool
		want string
	}{
		"none is asked for":            {Pool{Revision: "2", Completed: "1"}, ""},
		"none is asked for any more":   {Pool{Revision: "2", Completed: "2"}, "2"},
		"one is asked for and missing": {Pool{Replicas: 1, Revision: "2", Completed: "1"}, "1"},
		"the last that never counted leaves": {Pool{Revision: "2", Completed: "1",
			Machines: []Machine{{Hosted: true, Gated: true, Deleting: true}}}, "1"},
		"the last that counted does": {Pool{Revision: "2", Completed: "2",
			Machines: []Machine{{Hosted: true, Deleting: true}}}, "2"},
		"one counts that is not deleted yet": {Pool{Revision: "2", Completed: "1", Machines: []Machine{countedOne}}, "2"},
	} {
		NewWithT(t).Expect(c.pool.completed()).To(Equal(c.want), name)
	}
}
