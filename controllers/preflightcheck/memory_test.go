// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflightcheck

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Half go while they are made, and half when they were, before what they found is kept.
func TestNothingIsRememberedOfChecksThatAreGone(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{})
	again := w.check()
	again.ResourceVersion = ""
	most := 0
	for i := range memorytest.Lives {
		w.Expect(w.reconcile()).To(Succeed()) // the condition Paused
		w.Expect(w.reconcile()).To(Succeed())
		most = max(most, memorytest.Entries(w.r)[".calls.calls"])
		if i%2 == 0 {
			w.hold <- struct{}{}
			<-w.r.calls.Events()
		}
		w.Expect(w.client.Delete(t.Context(), w.check())).To(Succeed())
		w.Expect(w.reconcile()).To(Succeed())
		if i%2 == 1 { // it was cut off
			<-w.r.calls.Events()
		}
		w.Expect(w.client.Create(t.Context(), again.DeepCopy())).To(Succeed())
	}
	w.Expect(most).To(Equal(1))
	w.Expect(memorytest.Text(memorytest.Entries(w.r))).To(BeEmpty())
}
