// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Proves: K-7
//
// refusesValidations makes RolloutPolicies whose validation is none on a real API server.
func refusesValidations(t *testing.T, c client.Client) {
	policy := func(v *quoinv1.RolloutValidation) *quoinv1.RolloutPolicy {
		return &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "validated"},
			Spec: quoinv1.RolloutPolicySpec{ClusterName: "quick", Validation: v}}
	}
	checks := func(checks ...quoinv1.RolloutCheck) *quoinv1.RolloutValidation {
		return &quoinv1.RolloutValidation{Checks: checks}
	}
	page := func(url, secret string) *quoinv1.RolloutHTTPCheck {
		return &quoinv1.RolloutHTTPCheck{URL: url, SecretName: secret}
	}
	query := func(least, most string) *quoinv1.RolloutPrometheusCheck {
		return &quoinv1.RolloutPrometheusCheck{URL: "https://p.example.com/prom", Query: "up", Min: least, Max: most}
	}
	const shop = "https://shop.example.com:8443/healthz?deep=1"
	for name, of := range map[string]struct {
		validation *quoinv1.RolloutValidation
		refusal    string
	}{
		"defaults":               {&quoinv1.RolloutValidation{}, ""},
		"none":                   {&quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](0)}, ""},
		"less than none":         {&quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](-1)}, "successThreshold"},
		"never in time":          {&quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](90)}, "must be more than successThreshold times"},
		"a page":                 {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page(shop, "s")}), ""},
		"a page without TLS":     {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page("http://shop", "")}), ""},
		"a secret without TLS":   {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page("http://shop", "s")}), "sent to https:// only"},
		"credentials in a url":   {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page("https://me:x@shop", "")}), "url"},
		"what is no page":        {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page("file:///etc/passwd", "")}), "url"},
		"a number":               {checks(quoinv1.RolloutCheck{Name: "a", Prometheus: query("0.99", "1")}), ""},
		"a number below itself":  {checks(quoinv1.RolloutCheck{Name: "a", Prometheus: query("10", "9.5")}), "min must not be above max"},
		"a number without limit": {checks(quoinv1.RolloutCheck{Name: "a", Prometheus: query("", "")}), "give min or max"},
		"a limit of no number":   {checks(quoinv1.RolloutCheck{Name: "a", Prometheus: query("a few", "")}), "min"},
		"nothing to ask":         {checks(quoinv1.RolloutCheck{Name: "a"}), "either http or prometheus"},
		"two things to ask":      {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page(shop, ""), Prometheus: query("1", "")}), "either http or prometheus"},
		"a built-in name":        {checks(quoinv1.RolloutCheck{Name: "Pods", HTTP: page(shop, "")}), "name"},
		"one name twice": {checks(quoinv1.RolloutCheck{Name: "a", HTTP: page(shop, "")},
			quoinv1.RolloutCheck{Name: "a", HTTP: page(shop, "")}), "Duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			made := policy(of.validation)
			err := c.Create(t.Context(), made, client.DryRunAll)
			if of.refusal != "" {
				g.Expect(err).To(MatchError(ContainSubstring(of.refusal)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(made.Spec.Validation.IntervalSeconds).To(HaveValue(BeEquivalentTo(10)))
			g.Expect(made.Spec.Validation.FailureIntervalSeconds).To(HaveValue(BeEquivalentTo(30)))
			g.Expect(made.Spec.Validation.TimeoutSeconds).To(HaveValue(BeEquivalentTo(900)))
			if name == "defaults" {
				g.Expect(made.Spec.Validation.SuccessThreshold).To(HaveValue(BeEquivalentTo(2)))
			}
		})
	}
}
