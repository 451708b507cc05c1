// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestProviderIDNamesHostAndClaim(t *testing.T) {
	g := NewWithT(t)
	id := ProviderID("hosts", "h1", ClaimOf("0123abcd-5678-0000-0000-000000000000"))
	g.Expect(id).To(Equal("quoin://hosts/h1/0123abcd"))
	namespace, host, claim, err := ParseProviderID(id)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{namespace, host, claim}).To(Equal([]string{"hosts", "h1", "0123abcd"}))
	for _, bad := range []string{"", "h1", "quoin://h1/x", "kind://hosts/h1/x", "quoin://hosts//x", "quoin://a/b/c/d"} {
		_, _, _, err := ParseProviderID(bad)
		g.Expect(err).To(MatchError(ContainSubstring("is not of the form")), bad)
	}
}

func TestAHostIsReleasedOnlyByTheResetOfItsOwnClaim(t *testing.T) {
	g := NewWithT(t)
	host := &QuoinHost{Spec: QuoinHostSpec{ConsumerRef: &ConsumerReference{Claim: "0123abcd"}}}
	g.Expect(host.Released()).To(BeFalse(), "nothing ran")
	host.Status.Conditions = []metav1.Condition{{Type: HostCleanCondition, Status: metav1.ConditionTrue,
		Reason: HostReleasePendingReason}}
	host.Status.Operation = &HostOperation{ID: "reset-99999999"}
	g.Expect(host.Released()).To(BeFalse(), "the reset of an earlier claim says nothing")
	host.Status.Operation.ID = "reset-0123abcd"
	g.Expect(host.Released()).To(BeTrue())
	host.Status.Operation.ID = "reset-0123abcd-2"
	g.Expect(host.Released()).To(BeTrue(), "a second attempt counts as well")
	host.Status.Conditions[0].Reason = HostCleanReason
	g.Expect(host.Released()).To(BeFalse(), "clean before the claim")
}
