// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// group is who replaces a Machine: the MachineDeployment of that name, or the control plane, which has none. It is nil
// of a Machine that nobody replaces.
func group(machine *clusterv1.Machine) *string {
	if util.IsControlPlaneMachine(machine) {
		return ptr.To("")
	}
	if name := machine.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return &name
	}
	return nil
}

// leaves reports whether the Machine runs another version, so that its group replaces it.
func (s Subject) leaves(machine *clusterv1.Machine) bool {
	if group(machine) == nil {
		return false
	}
	world := skew.WorldOf([]clusterv1.Machine{*machine})
	versions := world.APIServers
	for _, running := range world.Components {
		versions = append(versions, running.Version)
	}
	return slices.ContainsFunc(versions, func(v string) bool { return v != s.Version })
}

// leaving are the Machines that leave and have a Node.
func (s Subject) leaving(ctx context.Context) ([]*clusterv1.Machine, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	var found []*clusterv1.Machine
	for i := range machines {
		if machine := &machines[i]; machine.Status.NodeRef.IsDefined() && s.leaves(machine) {
			found = append(found, machine)
		}
	}
	return found, nil
}

// pools are the Cluster's MachineDeployments.
func (s Subject) pools(ctx context.Context) ([]clusterv1.MachineDeployment, error) {
	pools := &clusterv1.MachineDeploymentList{}
	if err := s.Management.List(ctx, pools, client.InNamespace(s.Cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.Cluster.Name}); err != nil {
		return nil, fmt.Errorf("list the MachineDeployments: %w", err)
	}
	return pools.Items, nil
}

// bounds are by how many Machines a rollout of the pool may go above its replicas, and how many of them may be
// unavailable. What is not set is a surge of 1 and nothing unavailable, and of neither one may be unavailable, as in
// Cluster API.
func bounds(pool *clusterv1.MachineDeployment) (surge, unavailable int) {
	if pool.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType {
		return 0, 1 // of those that a person deletes
	}
	rolling, replicas := pool.Spec.Rollout.Strategy.RollingUpdate, int(ptr.Deref(pool.Spec.Replicas, 1))
	surge, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(rolling.MaxSurge, intstr.FromInt32(1))),
		replicas, true)
	if err != nil {
		return 0, 1 // no rollout begins
	}
	unavailable, err = intstr.GetScaledValueFromIntOrPercent(
		ptr.To(ptr.Deref(rolling.MaxUnavailable, intstr.FromInt32(0))), replicas, false)
	if err != nil || surge+unavailable == 0 {
		return 0, 1
	}
	return surge, unavailable
}
