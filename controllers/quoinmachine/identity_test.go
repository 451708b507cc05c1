// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestNoClusterGetsTwoHostsOfOneIdentity(t *testing.T) {
	for name, set := range map[string]func(a, b *infrav1.QuoinHost){
		"hostname":   func(a, b *infrav1.QuoinHost) { a.Status.Facts.Hostname, b.Status.Facts.Hostname = "Node", "Node" },
		"machine-id": func(a, b *infrav1.QuoinHost) { a.Status.Facts.MachineID, b.Status.Facts.MachineID = "abcd", "abcd" },
		"product UUID": func(a, b *infrav1.QuoinHost) {
			a.Status.Facts.ProductUUID = "33221100-5544-7766-8899-aabbccddeeff"
			b.Status.Facts.ProductUUID = "00112233-4455-6677-8899-aabbccddeeff"
			a.Spec.BMC = &infrav1.BMC{Address: "https://192.0.2.111"}
			b.Spec.BMC = &infrav1.BMC{Address: "https://192.0.2.112"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, quoinFirst := owned("m1", uid1)
			// Of the other role: what is equal is no better for that.
			quoinFirst.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
			second, quoinSecond := owned("m2", "99999999-0000-0000-0000-000000000000")
			a, b := host("h1", ""), host("h2", "")
			set(a, b)
			w := newWorld(t, cluster(), first, quoinFirst, second, quoinSecond, a, b)
			w.reconcile("m1")
			w.reconcile("m2")
			w.g.Expect(w.host("h2").Spec.ConsumerRef).To(BeNil())
			w.expect("m2", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason, "1 in use",
				"1 with the hostname, machine-id or product UUID")

			w.updateHost("h2", func(h *infrav1.QuoinHost) { h.Status.Facts = &infrav1.HostFacts{Hostname: "other"} })
			w.reconcile("m2")
			w.g.Expect(w.host("h2").Spec.ConsumerRef.Name).To(Equal("m2"))
		})
	}
}

// Containers share a UUID, and so do some boards.
func TestHostsWithoutABMCMayShareAProductUUID(t *testing.T) {
	first, quoinFirst := owned("m1", uid1)
	second, quoinSecond := owned("m2", "99999999-0000-0000-0000-000000000000")
	a, b := host("h1", ""), host("h2", "")
	const uuid = "33221100-5544-7766-8899-aabbccddeeff"
	a.Status.Facts.ProductUUID, b.Status.Facts.ProductUUID = uuid, uuid
	w := newWorld(t, cluster(), first, quoinFirst, second, quoinSecond, a, b)
	w.reconcile("m1")
	w.reconcile("m2")
	for _, name := range []string{"h1", "h2"} {
		w.g.Expect(w.host(name).Spec.ConsumerRef).NotTo(BeNil())
	}
}

func TestAnotherClusterMayHaveAHostOfTheSameName(t *testing.T) {
	first, quoinFirst := owned("m1", uid1)
	a, b := host("h1", ""), host("h2", "")
	b.Status.Facts.Hostname = "h1"
	a.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "of-another", Machine: "of-another",
		Claim: "ffffffff"}
	_, other := owned("of-another", "ffffffff-0000-0000-0000-000000000000")
	other.Labels = map[string]string{clusterv1.ClusterNameLabel: "c2"}
	w := newWorld(t, cluster(), first, quoinFirst, other, a, b)
	w.reconcile("m1")
	w.g.Expect(w.host("h2").Spec.ConsumerRef).NotTo(BeNil())
}
