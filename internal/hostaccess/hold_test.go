// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// A cache that is behind the last order is no copy of the management cluster.
func TestAHostIsHeldByWhatTheAPIServerSaysOfItsLastOrder(t *testing.T) {
	of := func(given string) *infrav1.QuoinHost {
		return &infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1", UID: "u"},
			Spec: infrav1.QuoinHostSpec{ClaimGeneration: 2, Order: &infrav1.HostOrder{Heard: "1-a", Given: given},
				ConsumerRef: &infrav1.ConsumerReference{Name: "qm1", Claim: "c"}},
		}
	}
	for name, c := range map[string]struct {
		stored, holder string
		held           bool
		asked          int
		anew           bool
	}{
		"the cache is up to date":      {"2-b", "2-b", true, 1, false},
		"the cache is behind":          {"3-c", "3-c", true, 2, false},
		"the management cluster is":    {"2-b", "3-c", false, 1, false},
		"another gave another before":  {"3-d", "3-c", false, 2, false},
		"the host was registered anew": {"3-c", "3-c", false, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := clienttest.Scheme(infrav1.AddToScheme)
			stored := of(c.stored)
			if c.anew {
				stored.UID = "another"
			}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
			asked := 0
			_, err := latest(context.Background(), reader, of("2-b"), func(ours owner.Record) (release, error) {
				asked++
				return nil, owner.Check(ours, owner.Record{UID: "c", Generation: 2, Order: c.holder})
			})
			var stale *owner.StaleError
			g.Expect(errors.As(err, &stale)).To(Equal(!c.held), "%v", err)
			g.Expect(asked).To(Equal(c.asked))
		})
	}
}
