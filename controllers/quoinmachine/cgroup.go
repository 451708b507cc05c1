// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// failsOnCgroupV1 reports whether a kubelet of the Machine's version would not start on those of the hosts that have
// cgroup v1: neither the host itself, nor the Machine's bootstrap data, nor the configuration that kubeadm gives all
// kubelets of the cluster tell it to. A cluster that cannot be read may do so, and its Machines are held back by
// nothing.
func (r *Reconciler) failsOnCgroupV1(ctx context.Context, v *observation, hosts []infrav1.QuoinHost) (bool, error) {
	if !slices.ContainsFunc(hosts, func(host infrav1.QuoinHost) bool {
		return skew.CgroupEnded(placement.CgroupOf(host.Status.Facts), v.machine.Spec.Version) != ""
	}) {
		return false, nil
	}
	key := client.ObjectKey{Namespace: v.machine.Namespace, Name: ptr.Deref(v.machine.Spec.Bootstrap.DataSecretName, "")}
	data := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.APIReader.Get(ctx, key, data)); err != nil {
		return false, fmt.Errorf("reading the bootstrap data %s: %w", key, err)
	}
	if observed.StartsOnCgroupV1(data.Data["value"]) {
		return false, nil
	}
	if !ptr.Deref(v.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true, nil
	}
	if r.ClusterCache == nil {
		return false, nil
	}
	workload, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(v.cluster))
	// A cluster that cannot be read may tell it to start.
	return err == nil && observed.SharedFailsOnCgroupV1(ctx, workload), nil
}
