// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
)

// fleetOf is a management cluster with 20 clusters, half of them paused.
func fleetOf(tb testing.TB, hosts int) (*cachetest.Client, *Reconciler) {
	tb.Helper()
	c := cachetest.New(tb)
	for i := range 20 {
		cluster, quoinCluster := owned(fmt.Sprintf("c%d", i), "10.0.0.1", 51, 0)
		status := metav1.ConditionFalse
		if i%2 == 0 {
			status = metav1.ConditionTrue
		}
		conditions.Set(quoinCluster, metav1.Condition{Type: clusterv1.PausedCondition, Status: status, Reason: "Test"})
		c.Put(cluster)
		c.Put(quoinCluster)
	}
	for i := range hosts {
		c.Put(host("team", fmt.Sprintf("h%d", i), fmt.Sprintf("rack-%d", i%20), i%2 == 0))
	}
	return c, &Reconciler{Client: c, APIReader: c}
}

func TestAHostsEventCostsAClusterTheSameInALargeFleet(t *testing.T) {
	g := NewWithT(t)
	for _, hosts := range []int{50, 1000} {
		c, r := fleetOf(t, hosts)
		before := c.Listed
		changed := &infrav1.QuoinHost{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "h1"}, changed)).To(Succeed())
		g.Expect(r.clustersThatCount(t.Context(), changed)).To(HaveLen(10))
		g.Expect(r.clustersPaused(t.Context(), changed)).To(HaveLen(10), "others than those that count")
		g.Expect(c.Listed-before).To(Equal(40), "the clusters")
	}
}
