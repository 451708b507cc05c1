// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// Machines that live may name another bundle than their template does today.
func TestMachinesAreAmongWhatMoves(t *testing.T) {
	g, scheme := NewWithT(t), runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	machine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}}
	machine.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: "http://172.18.0.2/{{version}}"}
	other := machine.DeepCopy()
	other.Namespace = "other"
	p := &Pivot{Namespace: "n", Source: &Side{Client: fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(machine, other).Build()}}
	_, _, _, machines, err := p.moving(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines).To(HaveExactElements(HaveField("Spec.Artifacts.Bundle", machine.Spec.Artifacts.Bundle)))
}

// counted is a client of the side that notes each list of types with their schemas.
func counted(of client.WithWatch, lists *int) client.WithWatch {
	return interceptor.NewClient(of, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		if _, is := list.(*apiextensionsv1.CustomResourceDefinitionList); is {
			*lists++
		}
		return c.List(ctx, list, options...)
	}})
}

// Types are read whole once, and again when one has come, is labeled, or was made anew.
func TestTypesAreListedAgainWhenTheyChange(t *testing.T) {
	g, scheme, lists := NewWithT(t), runtime.NewScheme(), 0
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	made := func(name string) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID(),
			Labels: map[string]string{clusterctlv1.ClusterctlLabel: ""}},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: name}}
	}
	first := made("first")
	c := counted(fake.NewClientBuilder().WithScheme(scheme).WithObjects(first).Build(), &lists)
	side := &Side{Name: "source", Client: c}
	seen := func(want int) []apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		g.Expect((&run{from: side}).fromClient().List(t.Context(), list, client.HasLabels{clusterctlv1.ClusterctlLabel})).
			To(Succeed())
		g.Expect(lists).To(Equal(want))
		return list.Items
	}
	g.Expect(seen(1)).To(HaveLen(1))
	again := seen(1)
	g.Expect(again).To(HaveExactElements(HaveField("Spec.Group", "first")))
	again[0].Spec.Group = "what is answered is not what is kept"
	g.Expect(seen(1)).To(HaveExactElements(HaveField("Spec.Group", "first")))

	g.Expect(c.Create(t.Context(), made("second"))).To(Succeed())
	g.Expect(seen(2)).To(ConsistOf(HaveField("Spec.Group", "first"), HaveField("Spec.Group", "second")))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(first), first)).To(Succeed())
	first.Labels[clusterctlv1.ClusterctlMoveLabel] = ""
	g.Expect(c.Update(t.Context(), first)).To(Succeed())
	g.Expect(seen(3)).To(ContainElement(HaveField("Labels", HaveKey(clusterctlv1.ClusterctlMoveLabel))))
	g.Expect(seen(3)).To(ContainElement(HaveField("Labels", HaveKey(clusterctlv1.ClusterctlMoveLabel))))
	g.Expect(c.Delete(t.Context(), first)).To(Succeed())
	g.Expect(seen(4)).To(HaveLen(1))
}

// A whole pivot reads the types of its source once, however often clusterctl's mover runs.
func TestAPivotReadsTypesOnce(t *testing.T) {
	s, lists := newSite(t, "types"), [2]int{}
	var sides [2]*Side
	for i, r := range []*rig.Rig{s.source, s.target} {
		side, err := Connect(t.Context(), []string{"source", "target"}[i], cluster.Kubeconfig{Path: r.Kubeconfig}, nil)
		s.g.Expect(err).NotTo(HaveOccurred())
		side.Client = counted(side.Client, &lists[i])
		sides[i] = side
	}
	p := &Pivot{Source: sides[0], Target: sides[1], Namespace: s.namespace, Local: &s.local,
		Report: func(string, ...any) {}}
	s.g.Expect(p.Run(t.Context(), pivot.Wish{})).To(Succeed())
	s.rests(s.target, s.source)
	s.g.Expect(lists).To(Equal([2]int{1, 0}), "of the source, and of the target")
}
