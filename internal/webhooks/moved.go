// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Moved reports whether an object that is created comes with its Cluster, which owns it and is paused meanwhile: it was
// admitted before, and a move or a restore that is refused half-way is worse than what the object asks for.
func Moved(ctx context.Context, reader client.Reader, object client.Object, cluster string) (bool, error) {
	if len(object.GetOwnerReferences()) == 0 || cluster == "" {
		return false, nil
	}
	found := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: cluster}
	if err := client.IgnoreNotFound(reader.Get(ctx, key, found)); err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("read Cluster %s: %w", key, err))
	}
	return ptr.Deref(found.Spec.Paused, false), nil
}
