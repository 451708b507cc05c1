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

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
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

// goals are the versions that pools are to have in the end, by name.
type goals map[string]string

// goals are what the plan gives each pool, or what its template has where the plan leaves it alone. There are none
// where all pools are raised, nor where no plan is known: every pool gets the version that is asked about then.
func (s Subject) goals(ctx context.Context) (goals, error) {
	if s.Workers != quoinv1.UpgradeWorkersAsNeeded {
		return nil, nil
	}
	_, way, err := s.planned(ctx)
	if err != nil || way == nil {
		return nil, err
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return nil, err
	}
	found := goals{}
	for i := range pools {
		found[pools[i].Name] = pools[i].Spec.Template.Spec.Version
		for _, step := range way.Steps {
			if step.Pool == "MachineDeployment "+pools[i].Name {
				found[pools[i].Name] = step.To
			}
		}
	}
	return found, nil
}

// goal is the version that the Machines of a group are to have in the end.
func (s Subject) goal(goals goals, group string) string {
	if goal, known := goals[group]; known {
		return goal
	}
	return s.Version
}

// leaves reports whether the Machine runs another version than its group is to have, so that it is replaced.
func (s Subject) leaves(machine *clusterv1.Machine, goals goals) bool {
	of := group(machine)
	if of == nil {
		return false
	}
	goal := s.goal(goals, *of)
	world := skew.WorldOf([]clusterv1.Machine{*machine})
	versions := world.APIServers
	for _, running := range world.Components {
		versions = append(versions, running.Version)
	}
	return goal != "" && slices.ContainsFunc(versions, func(v string) bool { return v != goal })
}

// leaving are the Machines that leave and have a Node.
func (s Subject) leaving(ctx context.Context) ([]*clusterv1.Machine, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	goals, err := s.goals(ctx)
	if err != nil {
		return nil, err
	}
	var found []*clusterv1.Machine
	for i := range machines {
		if machine := &machines[i]; machine.Status.NodeRef.IsDefined() && s.leaves(machine, goals) {
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
