// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Hosts of a Cluster bring add-on images one after another, of which a host that is never heard of again keeps nobody.
func TestFewHostsOfAClusterImportAtATime(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(cluster, host string) importKey {
		return importKey{types.NamespacedName{Namespace: "team", Name: cluster},
			types.NamespacedName{Namespace: "team", Name: host}}
	}
	var turns imports
	counted := 0
	acquire := func(cluster, host string, hosts int) bool {
		acquired, _, err := turns.acquire(of(cluster, host), now, func() (int, error) {
			counted++
			return hosts, nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		return acquired
	}
	g.Expect(acquire("a", "1", 5)).To(BeTrue())
	g.Expect(acquire("a", "2", 5)).To(BeTrue())
	g.Expect(acquire("a", "3", 5)).To(BeFalse())
	g.Expect(acquire("a", "2", 5)).To(BeTrue(), "it has its turn already")
	g.Expect(acquire("b", "4", 5)).To(BeTrue(), "another Cluster's")
	g.Expect(counted).To(Equal(2), "once for each Cluster")
	turns.release(of("a", "1"))
	g.Expect(acquire("a", "3", 5)).To(BeTrue())
	g.Expect(acquire("a", "1", 5)).To(BeFalse())

	now = now.Add(importLease / 2)
	turns.hold(of("a", "2"), now)
	now = now.Add(importLease / 2)
	g.Expect(acquire("a", "1", 5)).To(BeTrue(), "3 was not heard of")
	g.Expect(acquire("a", "3", 5)).To(BeFalse())

	for i := range 40 {
		g.Expect(acquire("large", fmt.Sprint(i), 400)).To(BeTrue(), "a tenth of many hosts")
	}
	g.Expect(acquire("large", "40", 400)).To(BeFalse())
	_, _, err := turns.acquire(of("c", "1"), now, func() (int, error) { return 0, errors.New("no cache") })
	g.Expect(err).To(MatchError("no cache"))
	for i := range 40 {
		turns.release(of("large", fmt.Sprint(i)))
	}
	g.Expect(turns.clusters).NotTo(HaveKey(of("large", "").cluster), "nothing is kept of what ended")
}

// A host waits until others of its Cluster have the images, and says so.
func TestAHostBringsAddonImagesInItsTurn(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.AddonVersions = []string{"v1.36.3"}
	metav1.SetMetaDataLabel(&quoinMachine.ObjectMeta, clusterv1.ClusterNameLabel, "c1")
	w.g.Expect(w.client.Update(t.Context(), quoinMachine)).To(Succeed())
	cluster := types.NamespacedName{Namespace: "team", Name: "c1"}
	others := []importKey{{cluster, types.NamespacedName{Name: "one"}}, {cluster, types.NamespacedName{Name: "two"}}}
	for range 30 {
		for _, other := range others {
			w.r.imports.hold(other, w.now)
		}
		w.linger(1)
	}
	w.g.Expect(w.host().Status.AddonVersions).NotTo(ContainElement("v1.36.3"))
	w.g.Expect(condition1(w.host(), infrav1.HostAddonImagesCondition).Message).To(ContainSubstring(
		"waits until others have theirs, for 2 hosts of the Cluster"))
	w.g.Expect(w.room.addons.ID).To(BeEmpty())
	w.r.imports.release(others[0])
	w.until("the images", func(h *infrav1.QuoinHost) bool { return len(h.Status.AddonVersions) == 2 })
	w.g.Expect(w.r.imports.clusters[cluster].hosts).NotTo(HaveKey(w.key), "the turn is the next host's")
}
