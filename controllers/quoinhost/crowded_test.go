// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

// A host that others of its namespace keep from a call says so, once it has waited for more than a moment.
func TestAHostSaysThatItWaitsForACall(t *testing.T) {
	w := newWorld(t, newHost())
	w.r.Calls = async.New(async.Options{MaxConcurrent: 2})
	t.Cleanup(w.r.Calls.Close)
	begun, over := make(chan struct{}), make(chan struct{})
	_, _, _ = async.Do(w.r.Calls, types.NamespacedName{Namespace: "hosts", Name: "tarpit"}, "probe", 0,
		func(context.Context) (int, error) {
			close(begun)
			<-over
			return 0, nil
		})
	<-begun
	wait := ContainSubstring("the hosts of namespace hosts have as many calls at once as there is room for, " +
		"at most 1 of 2")
	says := func() string {
		_, err := w.r.Reconcile(w.ctx, request(w))
		w.g.Expect(err).NotTo(HaveOccurred())
		if ready := condition1(w.host(), infrav1.HostReadyCondition); ready != nil {
			return ready.Message
		}
		return ""
	}
	// The finalizer comes first, and conditions after it.
	waits := func() bool { _, waits := w.r.Calls.Waits(w.key); return waits }
	for range 10 {
		w.g.Expect(says()).NotTo(wait, "it waits for a moment")
	}
	w.g.Expect(waits()).To(BeTrue())
	w.now = w.now.Add(w.r.Timings.Push)
	w.g.Expect(says()).To(And(wait, ContainSubstring("kubectl -n hosts get quoinhosts")))
	w.g.Expect(w.room.asked).To(BeEmpty())

	close(over)
	host := w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).NotTo(wait)
}
