// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// A host that only says that it is a Machine's must not have a say in which management cluster the Cluster serves.
func TestOnlyHostsThatCarryNodesOfTheClusterAreNeighbors(t *testing.T) {
	g := NewWithT(t)
	host := func(namespace, name, machine string) *infrav1.QuoinHost {
		h := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: machine, Machine: machine, Claim: "0123abcd"}
		return h
	}
	machine := func(name, providerID string) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}, Spec: clusterv1.MachineSpec{ProviderID: providerID}}
	}
	builder := fake.NewClientBuilder().WithScheme(clienttest.Scheme(infrav1.AddToScheme, clusterv1.AddToScheme))
	for _, index := range fieldindex.All() {
		if _, is := index.Object.(*infrav1.QuoinHost); is {
			builder.WithIndex(index.Object, index.Field, index.Values)
		}
	}
	own := host("pool", "h1", "m1")
	reader := builder.WithObjects(machine("m1", "quoin://pool/h1/0123abcd"), machine("m2", "quoin://pool/h2/0123abcd"),
		machine("m3", ""), own, host("pool", "h2", "m2"), host("hostile", "h2", "m2"), host("hostile", "h3", "m3")).Build()
	found, err := Neighbors(t.Context(), reader, client.ObjectKey{Namespace: "team", Name: "c1"}, own)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveLen(1))
	g.Expect(client.ObjectKeyFromObject(found[0].Host).String()).To(Equal("pool/h2"))
}
