// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Each has a control plane that serves, and one in ten is paused as for a move: of that one all is remembered.
func TestNothingIsRememberedOfClustersThatAreGone(t *testing.T) {
	w := newWorld(t)
	create := func(i int) string {
		name := fmt.Sprintf("c%d", i)
		cluster, quoinCluster := owned(name, "10.0.0.100", 51, time.Hour)
		machine := &clusterv1.Machine{}
		machine.Namespace, machine.Name = "team", name+"-m"
		machine.Labels = map[string]string{clusterv1.ClusterNameLabel: name, clusterv1.MachineControlPlaneLabel: ""}
		machine.Spec.ClusterName, machine.Spec.ProviderID = name, "quoin://team/h1/0"
		machine.Status.NodeRef.Name = name
		w.g.Expect(w.client.Create(t.Context(), cluster)).To(Succeed())
		w.g.Expect(w.client.Create(t.Context(), quoinCluster)).To(Succeed())
		w.g.Expect(w.client.Create(t.Context(), machine)).To(Succeed())
		w.reconcile(name)
		if i%10 == 0 {
			cluster.Spec.Paused = ptr.To(true)
			w.g.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
			w.reconcile(name)
			cluster.Spec.Paused = nil
			w.g.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
		}
		w.g.Expect(w.client.Delete(t.Context(), machine)).To(Succeed())
		w.g.Expect(w.client.Delete(t.Context(), cluster)).To(Succeed())
		return name
	}
	first := create(0)
	entries := memorytest.Entries(w.r)
	w.g.Expect(entries).To(HaveLen(2), "else there is nothing to forget: "+memorytest.Text(entries))
	for i := range memorytest.Lives {
		name := first
		if i > 0 {
			name = create(i)
		}
		w.g.Expect(w.client.Delete(t.Context(), w.get(name))).To(Succeed())
		w.reconcile(name)
	}
	w.g.Expect(memorytest.Text(memorytest.Entries(w.r))).To(BeEmpty())
}
