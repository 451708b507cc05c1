// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Each claims the one host that there is, which is reset when its Machine goes, and is a new version of itself then. One
// that waits for a host stays, so that hosts are counted all the time.
func TestNothingIsRememberedOfMachinesThatAreGone(t *testing.T) {
	waiting, quoinWaiting := owned("waits", uid1)
	w := newWorld(t, cluster(), host("h1", ""), waiting, quoinWaiting)
	most := map[string]int{}
	look := func(name string) {
		_, err := w.r.Reconcile(t.Context(), request(name))
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	for i := range memorytest.Lives {
		name := fmt.Sprintf("m%d", i)
		machine, quoinMachine := owned(name, fmt.Sprintf("%08x-0000-0000-0000-000000000000", i))
		w.g.Expect(w.client.Create(t.Context(), machine)).To(Succeed())
		w.g.Expect(w.client.Create(t.Context(), quoinMachine)).To(Succeed())
		w.reconcile(name)
		if i%10 == 0 {
			w.reconcile("waits")
		}
		for path, n := range memorytest.Entries(w.r) {
			most[path] = max(most[path], n)
		}
		w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
		w.delete(name)
		look(name)
		w.updateHost("h1", func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil })
		look(name)
		w.g.Expect(w.deleted(name)).To(BeTrue())
	}
	w.g.Expect(most).NotTo(BeEmpty())
	// What was just written is remembered for seconds: package ownwrites has a test of that.
	delete(most, ".writes.writes")
	for path, n := range most {
		w.g.Expect(n).To(BeNumerically("<=", 20), path)
	}
}
