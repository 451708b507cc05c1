// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
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
