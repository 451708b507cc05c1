// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

func TestOnlyTheHostOfTheClaimIsAsked(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	host := func(change func(*infrav1.QuoinHost)) *infrav1.QuoinHost {
		h := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h"}}
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Claim: "1"}
		conditions.Set(h, metav1.Condition{Type: infrav1.HostAPIServerStoppedCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.HostAPIServerStoppedReason})
		change(h)
		return h
	}
	infra := &infrav1.QuoinMachine{Spec: infrav1.QuoinMachineSpec{ProviderID: "quoin://hosts/h/1"}}
	of := func(h *infrav1.QuoinHost) controlplane.APIServer {
		state, _ := apiServerOf(h, infra, now.Sub, time.Minute)
		return state
	}
	none := controlplane.APIServer("")
	g.Expect(of(nil)).To(Equal(none))
	g.Expect(of(host(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Claim = "2" }))).To(Equal(none), "it was reset since")
	g.Expect(of(host(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil }))).To(Equal(none))
	g.Expect(of(host(func(*infrav1.QuoinHost) {}))).To(Equal(controlplane.APIServerServing),
		"what a host said before it was asked is about another Machine")
	infra.Annotations = map[string]string{infrav1.StopAPIServerAnnotation: now.Format(time.RFC3339)}
	g.Expect(of(host(func(*infrav1.QuoinHost) {}))).To(Equal(controlplane.APIServerLeft))
	g.Expect(of(host(func(h *infrav1.QuoinHost) {
		conditions.Delete(h, infrav1.HostAPIServerStoppedCondition)
	}))).To(Equal(controlplane.APIServerLeaving))
	infra.Annotations[infrav1.StopAPIServerAnnotation] = now.Add(3 * time.Hour).Format(time.RFC3339)
	g.Expect(of(host(func(h *infrav1.QuoinHost) {
		conditions.Delete(h, infrav1.HostAPIServerStoppedCondition)
	}))).To(Equal(controlplane.APIServerStays), "the clock was set back, and is not waited for")
}
