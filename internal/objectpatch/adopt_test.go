// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectpatch

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestAnObjectIsMadeToBelongToItsClusterOnce(t *testing.T) {
	w := newWorld(t)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "prod", UID: "1"}}
	object, stale := w.read(), w.read()
	w.Expect(Adopt(t.Context(), w.client, object, cluster)).To(BeTrue())
	w.Expect(Adopt(t.Context(), w.client, object, cluster)).To(BeFalse())
	w.Expect(w.requests).To(Equal([]string{"object"}))
	w.Expect(w.read().OwnerReferences).To(ConsistOf(HaveField("UID", cluster.UID)))
	w.Expect(w.read().Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "prod"))

	_, err := Adopt(t.Context(), w.client, stale, cluster)
	w.Expect(apierrors.IsConflict(err)).To(BeTrue(), "what was read before is not what there is: %v", err)
	w.Expect(err).To(MatchError(ContainSubstring("have QuoinCluster n/c belong to its Cluster")))
}
