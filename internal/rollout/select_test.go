// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
	policy.Groups[0].MachineDeployments.Labels = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{}}}
	at, err := Select(policy, "green", nil)
	g.Expect(err).To(HaveOccurred())
	g.Expect(at).To(Equal(-1))
}
