// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// failsOnCgroupV1 reports whether the Machine's kubelet would not start on those of the hosts that have cgroup v1. A
// cluster that cannot be read may tell it to, and its Machines are held back by nothing.
func (r *Reconciler) failsOnCgroupV1(ctx context.Context, v *observation, hosts []infrav1.QuoinHost) (bool, error) {
	return observed.FailsOnCgroupV1(hosts, v.machine.Spec.Version, func() ([]byte, error) {
		bootstrap, data := v.machine.Spec.Bootstrap.DataSecretName, &corev1.Secret{}
		key := client.ObjectKey{Namespace: v.machine.Namespace, Name: ptr.Deref(bootstrap, "")}
		if err := client.IgnoreNotFound(r.APIReader.Get(ctx, key, data)); err != nil {
			return nil, fmt.Errorf("reading the bootstrap data %s: %w", key, err)
		}
		return data.Data["value"], nil
	}, func() bool {
		initialized := ptr.Deref(v.cluster.Status.Initialization.ControlPlaneInitialized, false)
		if !initialized || r.ClusterCache == nil {
			return !initialized
		}
		workload, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(v.cluster))
		return err == nil && observed.SharedFailsOnCgroupV1(ctx, workload)
	})
}
