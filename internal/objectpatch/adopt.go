// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectpatch

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OnlyOf is the difference from what was read, which conflicts where that is not what there is.
func OnlyOf(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// BelongTo makes an object in memory belong to its Cluster: it goes where that goes, and ends with it.
func BelongTo(object client.Object, cluster *clusterv1.Cluster) {
	object.SetOwnerReferences(util.EnsureOwnerRef(object.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}))
	labels := maps.Clone(object.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[clusterv1.ClusterNameLabel] = cluster.Name
	object.SetLabels(labels)
}

// Adopt makes an object belong to its Cluster, and reports whether it did not yet.
func Adopt(ctx context.Context, c client.Client, object client.Object, cluster *clusterv1.Cluster) (bool, error) {
	before := copyOf(object)
	BelongTo(object, cluster)
	if equality.Semantic.DeepEqual(before.GetOwnerReferences(), object.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(before.GetLabels(), object.GetLabels()) {
		return false, nil
	}
	if err := c.Patch(ctx, object, OnlyOf(before)); err != nil {
		kind, _ := c.GroupVersionKindFor(object) // a kind that is not known was refused above
		return true, fmt.Errorf("have %s %s belong to its Cluster: %w", kind.Kind, client.ObjectKeyFromObject(object), err)
	}
	return true, nil
}
