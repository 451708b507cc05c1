// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

func TestAClaimIsThatOfAQuoinMachineAndOfAMachine(t *testing.T) {
	const id, other = "quoin://hosts/h1/0123abcd", "quoin://hosts/h2/0123abcd"
	owner := metav1.OwnerReference{Kind: "Machine", Name: "m1", UID: "0123abcd-5678"}
	naming := func(change func(*ConsumerReference)) func(*QuoinHost, *QuoinMachine, *clusterv1.Machine) {
		return func(h *QuoinHost, _ *QuoinMachine, _ *clusterv1.Machine) { change(h.Spec.ConsumerRef) }
	}
	for name, c := range map[string]struct {
		change func(*QuoinHost, *QuoinMachine, *clusterv1.Machine)
		// claimed by the QuoinMachine; serves the Machine.
		claimed, serves bool
	}{
		"before there is a provider ID": {func(*QuoinHost, *QuoinMachine, *clusterv1.Machine) {}, true, true},
		"without a claim": {func(h *QuoinHost, _ *QuoinMachine, _ *clusterv1.Machine) {
			h.Spec.ConsumerRef = nil
		}, false, false},
		"provided": {func(_ *QuoinHost, q *QuoinMachine, m *clusterv1.Machine) {
			q.Spec.ProviderID, m.Spec.ProviderID = id, id
		}, true, true},
		"after a move": {func(_ *QuoinHost, q *QuoinMachine, m *clusterv1.Machine) {
			q.Spec.ProviderID, m.Spec.ProviderID, q.OwnerReferences[0].UID, m.UID = id, id, "89abcdef-0000", "89abcdef-0000"
		}, true, true},
		"provided with another host": {func(_ *QuoinHost, q *QuoinMachine, m *clusterv1.Machine) {
			q.Spec.ProviderID, m.Spec.ProviderID = other, other
		}, false, false},
		"of an earlier one of the name": {naming(func(r *ConsumerReference) { r.Claim = "89abcdef" }), false, false},
		"with another Machine":          {naming(func(r *ConsumerReference) { r.Machine = "cp" }), false, false},
		"with another QuoinMachine":     {naming(func(r *ConsumerReference) { r.Name = "qcp" }), false, true},
		"of another namespace":          {naming(func(r *ConsumerReference) { r.Namespace = "x" }), false, false},
		"nobody owns it yet": {func(_ *QuoinHost, q *QuoinMachine, _ *clusterv1.Machine) {
			q.OwnerReferences = nil
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1"}}
			host.Spec.ConsumerRef = &ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
			quoinMachine := &QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "qm1",
				OwnerReferences: []metav1.OwnerReference{owner}}}
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1", UID: owner.UID}}
			c.change(host, quoinMachine, machine)
			g.Expect(host.ClaimedBy(quoinMachine)).To(Equal(c.claimed))
			g.Expect(host.Serves(machine)).To(Equal(c.serves))
		})
	}
}
