// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// updating is the context in which admission sees an update of before.
func updating(t *testing.T, before *infrav1.QuoinHost) context.Context {
	t.Helper()
	raw, err := json.Marshal(before)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return admission.NewContextWithRequest(t.Context(),
		admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{OldObject: runtime.RawExtension{Raw: raw}}})
}

// A move that died is run again from the source after the target has taken the host over.
func TestACopyThatIsWrittenOverAHostTakesNothingAway(t *testing.T) {
	source, target := metav1.NewTime(time.Unix(1_000, 0)), metav1.NewTime(time.Unix(2_000, 0))
	claim := &infrav1.ConsumerReference{Namespace: "n", Name: "qm", Machine: "m", Claim: "0123abcd"}
	before := host("a", func(h *infrav1.QuoinHost) {
		h.UID, h.CreationTimestamp = "target", target
		h.Spec.ClaimGeneration, h.Spec.ManagedBy, h.Spec.ConsumerRef, h.Spec.HostKeys = 3, "target", claim,
			[]string{ed25519Key}
		h.Spec.Order = &infrav1.HostOrder{Heard: "4-t", Given: "5-t"}
	})
	from := func(created metav1.Time, change func(*infrav1.QuoinHostSpec)) *infrav1.QuoinHost {
		h := host("a", func(h *infrav1.QuoinHost) {
			h.UID, h.CreationTimestamp = "target", created
			h.Spec.ClaimGeneration, h.Spec.ManagedBy, h.Spec.FailureDomain = 2, "source", "rack-b"
			change(&h.Spec)
		})
		return h
	}
	webhook := &HostWebhook{Client: reader(t), Live: reader(t)}

	t.Run("by the mover", func(t *testing.T) {
		g := NewWithT(t)
		after := from(source, func(*infrav1.QuoinHostSpec) {})
		g.Expect(webhook.Default(updating(t, before), after)).To(Succeed())
		g.Expect(after.Spec.ClaimGeneration).To(BeEquivalentTo(3))
		g.Expect(after.Spec.ManagedBy).To(Equal("target"))
		g.Expect(after.Spec.ConsumerRef).To(Equal(claim))
		g.Expect(after.Spec.Order).To(Equal(&infrav1.HostOrder{Heard: "4-t", Given: "5-t"}), "the host heard it from here")
		g.Expect(after.Spec.HostKeys).To(Equal([]string{ed25519Key}))
		g.Expect(after.Spec.FailureDomain).To(Equal("rack-b"), "all else is what the source says")
		_, err := webhook.ValidateUpdate(t.Context(), before, after)
		g.Expect(err).NotTo(HaveOccurred())
	})
	t.Run("by a source that counted on", func(t *testing.T) {
		g := NewWithT(t)
		after := from(source, func(s *infrav1.QuoinHostSpec) { s.ClaimGeneration = 7 })
		g.Expect(webhook.Default(updating(t, before), after)).To(Succeed())
		g.Expect(after.Spec.ClaimGeneration).To(BeEquivalentTo(7))
		g.Expect(after.Spec.ManagedBy).To(Equal("target"))
	})
	t.Run("before this plane took the host over", func(t *testing.T) {
		g := NewWithT(t)
		fresh := before.DeepCopy()
		fresh.Spec.ManagedBy, fresh.Spec.ConsumerRef = "source", nil
		after := from(source, func(s *infrav1.QuoinHostSpec) { s.ConsumerRef = claim })
		g.Expect(webhook.Default(updating(t, fresh), after)).To(Succeed())
		g.Expect(after.Spec.ManagedBy).To(Equal("source"))
		g.Expect(after.Spec.ConsumerRef).To(Equal(claim))
		g.Expect(after.Spec.ClaimGeneration).To(BeEquivalentTo(3), "it never goes back")
	})
	for name, created := range map[string]metav1.Time{"by a person": target, "by a manifest": {}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after := from(created, func(*infrav1.QuoinHostSpec) {})
			g.Expect(webhook.Default(updating(t, before), after)).To(Succeed())
			g.Expect(after.Spec.ClaimGeneration).To(BeEquivalentTo(2))
			_, err := webhook.ValidateUpdate(t.Context(), before, after)
			g.Expect(err).To(MatchError(And(ContainSubstring("never goes back"), ContainSubstring("without a key"))))
		})
	}
	t.Run("creation", func(t *testing.T) {
		g := NewWithT(t)
		after := from(source, func(*infrav1.QuoinHostSpec) {})
		g.Expect(webhook.Default(admission.NewContextWithRequest(t.Context(), admission.Request{}), after)).To(Succeed())
		g.Expect(after.Spec.ClaimGeneration).To(BeEquivalentTo(2))
	})
}

// What an older release admitted can be moved, labeled and paused, whatever a newer one thinks of it.
func TestWhatStaysAsItIsIsNotJudged(t *testing.T) {
	g := NewWithT(t)
	strange := host("a", at("0.0.0.0"))
	labeled := strange.DeepCopy()
	labeled.Labels = map[string]string{"a": "b"}
	_, err := (&HostWebhook{Client: reader(t), Live: reader(t)}).ValidateUpdate(t.Context(), strange, labeled)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = (&MachineWebhook{}).ValidateUpdate(t.Context(), machine(provided("aws:///eu-1/i-1")),
		machine(provided("aws:///eu-1/i-1")))
	g.Expect(err).NotTo(HaveOccurred())
	odd := cluster("a", endpoint("https://x", 6443))
	_, err = (&ClusterWebhook{Client: reader(t)}).ValidateUpdate(t.Context(), odd, odd)
	g.Expect(err).NotTo(HaveOccurred())
}
