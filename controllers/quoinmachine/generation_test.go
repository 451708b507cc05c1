// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

func TestAClaimRaisesTheGenerationOfTheHostInOneWriteWithTheConsumer(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	free := host("h1", "")
	free.UID = types.UID("host-uid")
	free.Spec.ClaimGeneration, free.Spec.ManagedBy = 6, "the object before a move"
	w := newWorld(t, cluster(), machine, quoinMachine, free)
	var writes []infrav1.QuoinHostSpec
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if h, ok := o.(*infrav1.QuoinHost); ok {
				w.g.Expect(h.ResourceVersion).NotTo(BeEmpty(),
					"a claim without a resourceVersion would take a host that somebody else has")
				writes = append(writes, h.Spec)
			}
			return c.Update(ctx, o, options...)
		},
	})
	w.reconcile("m1")
	w.g.Expect(writes).To(HaveLen(1), "neither half of a claim may stand without the other")
	w.g.Expect(writes[0].ConsumerRef.Name).To(Equal("m1"))
	w.g.Expect(writes[0].ClaimGeneration).To(BeEquivalentTo(7))
	w.g.Expect(writes[0].ManagedBy).To(Equal("host-uid"))

	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ClaimGeneration).To(BeEquivalentTo(7), "a claim is raised once")
}

// A mark that was set while another Machine had the host, or none, is not for the one that claims it.
func TestAClaimTakesAnEarlierMarkOffTheHost(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	free := host("h1", "")
	free.Annotations = map[string]string{quoinv1.NeedsUpdateAnnotation: "kernel", "example.com/rack": "7"}
	w := newWorld(t, cluster(), machine, quoinMachine, free)
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef.Name).To(Equal("m1"))
	w.g.Expect(w.host("h1").Annotations).To(Equal(map[string]string{"example.com/rack": "7"}))

	marked := w.host("h1")
	marked.Annotations[quoinv1.NeedsUpdateAnnotation] = ""
	w.g.Expect(w.client.Update(t.Context(), marked)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Annotations).To(HaveKey(quoinv1.NeedsUpdateAnnotation), "that one is for it")
}

func TestTheFirstClaimOfAHostIsOfGenerationOne(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ClaimGeneration).To(BeEquivalentTo(1))
}

func TestAFoundClaimIsNotRaised(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	claimed := host("h1", "")
	claimed.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	claimed.Spec.ClaimGeneration = 3
	w := newWorld(t, cluster(), machine, quoinMachine, claimed)
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).NotTo(BeEmpty())
	w.g.Expect(w.host("h1").Spec.ClaimGeneration).
		To(BeEquivalentTo(3), "that is the host controller's, which knows what the host has seen")
}
