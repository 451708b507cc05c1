// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// refusesVictims makes RolloutPolicies on a real API server that ask for more Machines than a replacement leaves.
func refusesVictims(t *testing.T, c client.Client) {
	t.Helper()
	for _, of := range []struct{ name, minimum, surge, waves, refusal string }{
		{"a negative minimum", "-1", "", "", "minAvailable cannot be negative"},
		{"more than all", "101%", "", "", "minAvailable"},
		{"no number", "most", "", "", "minAvailable"},
		{"all without surge", "100%", "0", "", "leaves no Machine to replace"},
		{"all without surge as a percentage", "100%", "0%", "", "leaves no Machine to replace"},
		{"an unknown wave", "", "", "Rack", "Unsupported value"},
		{"all with surge is fine", "100%", "1", "FailureDomain", ""},
		{"a number is fine", "3", "0", "None", ""},
	} {
		t.Run(of.name, func(t *testing.T) {
			strategy := &quoinv1.RolloutStrategy{}
			strategy.Waves = quoinv1.RolloutWaves(of.waves)
			if of.minimum != "" {
				strategy.MinAvailable = ptr.To(intstr.Parse(of.minimum))
			}
			if of.surge != "" {
				strategy.MaxSurge = ptr.To(intstr.Parse(of.surge))
			}
			err := c.Create(t.Context(), &quoinv1.RolloutPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "victims"},
				Spec:       quoinv1.RolloutPolicySpec{ClusterName: "quick", Strategy: strategy}}, client.DryRunAll)
			if of.refusal == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(of.refusal)))
		})
	}
}
