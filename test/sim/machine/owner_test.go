// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// A simulated host holds its owner record, and guards plans by it, as a real one does.
func TestASimulatedHostHoldsItsOwnerRecord(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	h := &machine.Host{Machine: m}
	record := func(generation int64) owner.Record {
		return owner.Record{Namespace: "metal", Host: "h", Machine: "m", UID: "a", Generation: generation}
	}
	store := owner.Store{}
	g.Expect(store.Acquire(t.Context(), h, record(1))).To(Succeed())
	guard, err := store.Guard(t.Context(), h, record(1))
	g.Expect(err).NotTo(HaveOccurred())
	plan := run.Plan{ID: "p", Steps: []run.Step{{Name: "hang", Script: "sleep 600"}}}
	g.Expect(run.Runner{Guard: guard.Script()}.Start(t.Context(), h, plan)).To(Succeed())

	release, err := store.Hold(t.Context(), h, record(1))
	g.Expect(err).NotTo(HaveOccurred())
	taken := make(chan error, 1)
	go func() { taken <- store.Acquire(t.Context(), h, record(2)) }()
	g.Consistently(taken, 300*time.Millisecond).ShouldNot(Receive())
	g.Expect(release(t.Context())).To(Succeed())
	g.Eventually(taken, 20*time.Second).Should(Receive(BeNil()))

	var stale *owner.StaleError
	err = guard.Explain(t.Context(), h, run.Runner{Guard: guard.Script()}.StopOthers(t.Context(), h, "q"))
	g.Expect(errors.As(err, &stale)).To(BeTrue(), "%v", err)
	status, err := run.Runner{}.Poll(t.Context(), h, "p")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Phase).To(Equal(run.Running))
}
