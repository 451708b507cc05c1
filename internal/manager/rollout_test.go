// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Proves: K-4
//
// refusesRollouts makes RolloutPolicies that are none on a real API server.
func refusesRollouts(t *testing.T, c client.Client) {
	policy := func(surge, unavailable string) *quoinv1.RolloutPolicy {
		strategy := &quoinv1.RolloutStrategy{}
		if surge != "" {
			strategy.MaxSurge = ptr.To(intstr.Parse(surge))
		}
		if unavailable != "" {
			strategy.MaxUnavailable = ptr.To(intstr.Parse(unavailable))
		}
		return &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "workers"},
			Spec: quoinv1.RolloutPolicySpec{ClusterName: "quick", Strategy: strategy}}
	}
	for name, c2 := range map[string]struct{ surge, unavailable, refusal string }{
		"a negative surge":             {"-1", "", "maxSurge cannot be negative"},
		"less than none unavailable":   {"1", "-1", "maxUnavailable cannot be negative"},
		"what is no number":            {"a few", "", "maxSurge"},
		"a percentage without a sign":  {"", "1.5%", "maxUnavailable"},
		"neither":                      {"0", "0", "cannot both be 0"},
		"neither as a percentage":      {"0%", "0", "cannot both be 0"},
		"percentages are fine":         {"31%", "0%", ""},
		"no surge is fine":             {"0", "", ""},
		"more than there are are fine": {"500%", "1000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), policy(c2.surge, c2.unavailable), client.DryRunAll)
			if c2.refusal == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c2.refusal)))
		})
	}
	refusesVictims(t, c)
	refusesHolds(t, c)
	g := NewWithT(t)
	timed := policy("1", "")
	timed.Spec.Windows = []quoinv1.RolloutWindow{{Start: "22:00", DurationMinutes: ptr.To[int32](60), TimeZone: "Europe/Wien"}}
	g.Expect(c.Create(t.Context(), timed, client.DryRunAll)).To(MatchError(ContainSubstring("none of the IANA database")))
	timed.Spec.Windows[0].TimeZone, timed.Spec.Windows[0].Start = "Europe/Vienna", "24:00"
	g.Expect(c.Create(t.Context(), timed, client.DryRunAll)).To(MatchError(ContainSubstring("spec.windows[0].start")))
	timed.Spec.Windows[0].Start, timed.Spec.Windows[0].Days = "22:00", []quoinv1.RolloutDay{"Someday"}
	g.Expect(c.Create(t.Context(), timed, client.DryRunAll)).To(MatchError(ContainSubstring("spec.windows[0].days[0]")))
	timed.Spec.Windows[0].Days[0] = "Sunday"
	g.Expect(c.Create(t.Context(), timed, client.DryRunAll)).To(Succeed())
	made := policy("1", "")
	g.Expect(c.Create(t.Context(), made)).To(Succeed())
	g.Expect(made.Spec.PauseAfter).To(Equal(quoinv1.RolloutPauseNone))
	g.Expect(made.Spec.Concurrency).To(HaveValue(BeEquivalentTo(1)))
	g.Expect(made.Spec.DeadlineSeconds).To(HaveValue(BeEquivalentTo(1800)))
	before := made.DeepCopy()
	made.Spec.ClusterName = "another"
	g.Expect(c.Patch(t.Context(), made, client.MergeFrom(before))).To(MatchError(ContainSubstring("never changes")))
	g.Expect(c.Delete(t.Context(), before)).To(Succeed())
}

// refusesHolds puts what holds a Machine into templates, which give it to every Machine for ever.
func refusesHolds(t *testing.T, c client.Client) {
	meta := metav1.ObjectMeta{Namespace: "tenant", Name: "held"}
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"pool": "held"}}
	for annotation, refused := range map[string]bool{
		quoinv1.RolloutPreDrainHookAnnotation:                                   true,
		quoinv1.RolloutPreTerminateHookAnnotation:                               true,
		infrav1.HoldClaimAnnotation:                                             true,
		"example.com/hold-claim":                                                false,
		clusterv1.DeleteMachineAnnotation + "=quoin.cluster.x-k8s.io/rollout 1": true,
		clusterv1.DeleteMachineAnnotation + "=yes":                              false,
	} {
		annotation, value, _ := strings.Cut(annotation, "=")
		template := clusterv1.MachineTemplateSpec{
			ObjectMeta: clusterv1.ObjectMeta{Labels: selector.MatchLabels, Annotations: map[string]string{annotation: value}},
			Spec: clusterv1.MachineSpec{ClusterName: "quick", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io",
					Kind: "QuoinMachineTemplate", Name: "w"}}}
		for _, object := range []client.Object{
			&clusterv1.MachineDeployment{ObjectMeta: meta,
				Spec: clusterv1.MachineDeploymentSpec{ClusterName: "quick", Selector: selector, Template: template}},
			&clusterv1.MachineSet{ObjectMeta: meta,
				Spec: clusterv1.MachineSetSpec{ClusterName: "quick", Selector: selector, Template: template}},
		} {
			err := c.Create(t.Context(), object, client.DryRunAll)
			if !refused {
				NewWithT(t).Expect(err).NotTo(HaveOccurred(), "%T with %s", object, annotation)
				continue
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("spec.template.metadata.annotations["+annotation+"]")),
				"%T", object)
		}
	}
}
