// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/ownwrites"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Half are deleted while they are inspected, by a claimless deletion that the finalizer holds for one reconcile.
func TestNothingIsRememberedOfHostsThatAreGone(t *testing.T) {
	w := newWorld(t)
	most, counted := 0, len(states.of)
	for i := range memorytest.Lives {
		host := newHost()
		host.Namespace, host.UID, host.Spec.HostKeys = fmt.Sprintf("hosts-%d", i), types.UID(fmt.Sprintf("uid-%d", i)), []string{keyA}
		w.key.Namespace = host.Namespace
		w.create(host)
		if i%30 == 0 {
			w.untilState(infrav1.HostStateAvailable)
		} else {
			w.reconcile()
			w.reconcile()
		}
		for _, n := range memorytest.Entries(w.r) {
			most = max(most, n)
		}
		w.room.set(func() { w.room.record = nil })
		w.g.Expect(w.client.Delete(t.Context(), w.host())).To(Succeed())
		for range 20 {
			if _, err := w.attempt(); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Get(t.Context(), w.key, &infrav1.QuoinHost{}); err != nil {
				break
			}
			w.now = w.now.Add(ownwrites.Timeout)
		}
		_, err := w.attempt()
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	left := &infrav1.QuoinHostList{}
	w.g.Expect(w.client.List(t.Context(), left)).To(Succeed())
	if entries := memorytest.Entries(w.r); len(left.Items) > 0 || len(entries) > 0 || len(states.of) != counted || most == 0 {
		t.Errorf("%d hosts are left; %d at most; remembered: %s; %d states instead of %d", len(left.Items), most,
			memorytest.Text(entries), len(states.of), counted)
	}
}
