// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// failsOnCgroupV1 reports whether the kubelet of a further Machine would not start on those of the hosts that have
// cgroup v1 (R20). QuoinMachines are held back by the same rule, which they ask of the bootstrap data: those are made
// of what is read here.
func (s *Sources) failsOnCgroupV1(ctx context.Context, inv *Inventory) (bool, error) {
	if !slices.ContainsFunc(inv.fleet, func(host infrav1.QuoinHost) bool {
		return skew.CgroupEnded(placement.CgroupOf(host.Status.Facts), inv.ControlPlane.Spec.Version) != ""
	}) {
		return false, nil
	}
	data, err := observed.KubeletSettings(ctx, s.Live, inv.ControlPlane.Namespace,
		&inv.ControlPlane.Spec.KubeadmConfigSpec, inv.Initialized())
	if err != nil || observed.StartsOnCgroupV1(data) {
		return false, err
	}
	if !inv.Initialized() {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, WorkloadTimeout)
	defer cancel()
	workload, err := s.Workloads.GetUncachedReader(ctx, client.ObjectKeyFromObject(inv.Cluster))
	// A cluster that cannot be read may tell it to start.
	return err == nil && observed.SharedFailsOnCgroupV1(ctx, workload), nil
}
