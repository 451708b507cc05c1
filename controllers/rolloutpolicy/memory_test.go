// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Each Cluster has a policy, which is deleted before it, after it or with it.
func TestNothingIsRememberedOfClustersThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.r.pace()
	reconcile := func(key client.ObjectKey, times int) {
		t.Helper()
		for range times {
			_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			w.Expect(err).NotTo(HaveOccurred())
			w.clock.Step(mostRest)
		}
	}
	series := func() (n int) {
		for _, gauge := range gauges {
			n += testutil.CollectAndCount(gauge)
		}
		return n + testutil.CollectAndCount(machineSeconds)
	}
	before, most := series(), map[string]int{}
	for i := range memorytest.Lives {
		name := fmt.Sprintf("d%d", i)
		key := client.ObjectKey{Namespace: namespace, Name: name}
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name, cluster.UID = namespace, name, types.UID(name)
		policy := policyOf("of-"+name, w.clock.Now())
		policy.Spec.ClusterName = name
		w.make(cluster, policy)
		reconcile(key, 4)
		machineSeconds.WithLabelValues(key.Namespace, key.Name).Observe(1)
		w.Expect(series()).To(BeNumerically(">", before+1))
		for path, n := range memorytest.Entries(w.r) {
			most[path] = max(most[path], n)
		}
		for _, object := range [][]client.Object{{policy, cluster}, {cluster, policy}}[i%2] {
			w.Expect(w.client.Delete(t.Context(), object)).To(Succeed())
			if i%3 > 0 {
				reconcile(key, 2)
			}
		}
		reconcile(key, 2)
	}
	w.Expect(series()).To(Equal(before))
	w.Expect(most).To(And(HaveKey(".held"), HaveKey(".refusals"), HaveKey(".rest.until"), HaveKey(".words.written")))
	w.Expect(most).To(HaveEach(BeNumerically("<=", 2)))
	// Words are kept apart for a while, and what is too old goes with the next ones.
	w.Expect(memorytest.Text(memorytest.Entries(w.r))).To(BeElementOf("", "words.written: 1"))
}

// A look whose Cluster goes meanwhile has nobody who takes what it found.
func TestNothingIsRememberedOfALookAtAClusterThatIsGone(t *testing.T) {
	v := newValidated(t)
	for range 20 {
		if _, began := memorytest.Entries(v.r)[".looker.calls.calls"]; began {
			break
		}
		_, err := v.r.Reconcile(t.Context(), v.request())
		v.Expect(err).NotTo(HaveOccurred())
	}
	v.Expect(memorytest.Entries(v.r)).To(HaveKey(".looker.calls.calls"))
	<-v.r.looker.begun().Events()
	v.Expect(memorytest.Entries(v.r)).To(HaveKeyWithValue(".looker.calls.calls", 1))
	v.Expect(v.client.Delete(t.Context(), v.policy())).To(Succeed())
	v.reconcile()
	v.Expect(memorytest.Text(memorytest.Entries(v.r))).To(BeEmpty())
}

// Whoever takes the hooks off a Machine has it go without a word from here.
func TestNothingIsRememberedOfMachinesThatAreGone(t *testing.T) {
	w := newDraining(t, quoinv1.RolloutDrain{}, 0)
	w.reconcile()
	for _, name := range []string{"old-0", "old-1"} {
		w.delete(name)
		w.reconcile()
		w.refuses = "the disruption budget db needs 2 healthy pods"
		w.passes(name)
		w.reconcile()
		w.clock.Step(20 * time.Second)
		w.reconcile()
		w.Expect(memorytest.Entries(w.r)).To(HaveKeyWithValue(".remnants", 1), name)
		machine := w.machine(name)
		w.adjust(machine, func() { machine.Annotations, machine.Finalizers = nil, nil })
		w.reconcile()
		w.Expect(memorytest.Entries(w.r)).NotTo(HaveKey(".remnants"), name)
		w.refuses = ""
	}
}
