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
	for name, set := range map[string]func(*infrav1.HostFacts){
		"hostname":     func(f *infrav1.HostFacts) { f.Hostname = "Node" },
		"machine-id":   func(f *infrav1.HostFacts) { f.MachineID = "abcd" },
		"product UUID": func(f *infrav1.HostFacts) { f.ProductUUID = "4c4c4544-0044-4a10-8054-b4c04f4d3132" },
	} {
		t.Run(name, func(t *testing.T) {
			first, quoinFirst := owned("m1", uid1)
			// Of the other role: what is equal is no better for that.
			quoinFirst.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
			second, quoinSecond := owned("m2", "99999999-0000-0000-0000-000000000000")
			a, b := host("h1", ""), host("h2", "")
			set(a.Status.Facts)
			set(b.Status.Facts)
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
