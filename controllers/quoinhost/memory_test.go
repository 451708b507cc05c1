// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/ownwrites"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Most go while they are inspected. Two of three are deleted, which the finalizer holds for one reconcile, and one is
// moved to another management cluster, which half of them show before they are gone. Their Secrets stay.
func TestNothingIsRememberedOfHostsThatAreGone(t *testing.T) {
	w := newWorld(t)
	most, counted := map[string]int{}, len(states.of)
	for i := range memorytest.Lives {
		host := newHost()
		host.Namespace, host.UID = fmt.Sprintf("hosts-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		host.Spec.HostKeys = []string{keyA}
		w.key.Namespace = host.Namespace
		w.create(host, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: "ssh"}})
		if i%30 == 0 {
			w.untilState(infrav1.HostStateAvailable)
		} else {
			w.linger(3)
		}
		for path, n := range memorytest.Entries(w.r) {
			most[path] = max(most[path], n)
		}
		w.room.set(func() { w.room.record = nil })
		if i%3 == 2 {
			w.annotate(clusterctlv1.DeleteForMoveAnnotation, "")
			if i%2 == 0 {
				w.reconcile()
			}
			w.update(func(h *infrav1.QuoinHost) { h.Finalizers = nil })
		}
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
	entries := memorytest.Entries(w.r)
	// What was just written is remembered for seconds: package ownwrites has a test of that.
	delete(entries, ".writes.writes")
	if len(left.Items) > 0 || len(entries) > 0 || len(states.of) != counted {
		t.Errorf("%d hosts are left; remembered: %s; %d states instead of %d", len(left.Items), memorytest.Text(entries),
			len(states.of), counted)
	}
	w.g.Expect(most).To(And(HaveKeyWithValue(".secrets.seen", 1), HaveKey(".pace.done")), memorytest.Text(most))
}
