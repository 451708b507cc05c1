// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// lookAtSupply looks whether the control plane and each pool find the host that the first replacement of their rollouts
// needs. They are rolled out one after another, and each host that is left serves the next.
func lookAtSupply(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	hosts, pools := &infrav1.QuoinHostList{}, &clusterv1.MachineDeploymentList{}
	if err := s.Management.List(ctx, hosts); err != nil {
		return "", nil, fmt.Errorf("list the QuoinHosts: %w", err)
	}
	if err := s.Management.List(ctx, pools, client.InNamespace(s.Cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.Cluster.Name}); err != nil {
		return "", nil, fmt.Errorf("list the MachineDeployments: %w", err)
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	left := s.left(machines)
	ours := map[string]bool{}
	for _, machine := range machines {
		ours[machine.Name] = true
	}
	fleet := supply{s: s}
	for i := range hosts.Items {
		fleet.hosts = append(fleet.hosts, placement.HostOf(&hosts.Items[i]))
		if ref := hosts.Items[i].Spec.ConsumerRef; ref != nil && ref.Namespace == s.Cluster.Namespace && ours[ref.Machine] {
			fleet.taken = append(fleet.taken, placement.IdentitiesOf(hosts.Items[i].Status.Facts)...)
		}
	}
	var findings []quoinv1.Finding
	if s.ControlPlane != nil && (s.ControlPlane.Spec.Version != s.Version || left[""]) {
		template := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
		object := "QuoinControlPlane " + s.ControlPlane.Name
		why, err := fleet.lacks(ctx, template, "", object)
		if err != nil {
			return "", nil, err
		}
		if why != "" {
			findings = append(findings, judgeControlPlaneSupply(s.ControlPlane, object, why)...)
		}
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		raised := pool.Spec.Template.Spec.Version == s.Version && !left[pool.Name]
		if ptr.Deref(pool.Spec.Replicas, 1) == 0 || raised || !surges(pool) {
			continue
		}
		object := "MachineDeployment " + pool.Name
		why, err := fleet.lacks(ctx, pool.Spec.Template.Spec.InfrastructureRef,
			pool.Spec.Template.Spec.FailureDomain, object)
		if err != nil {
			return "", nil, err
		}
		if why != "" {
			findings = append(findings, blocks(object, "NoSpareHost", "its rollout begins with a further Machine, and "+why,
				"add a host, or set maxSurge: 0 and maxUnavailable: 1"))
		}
	}
	return fmt.Sprintf("%d QuoinHosts for a control plane and %d MachineDeployments", len(fleet.hosts), len(pools.Items)),
		findings, nil
}

// judgeControlPlaneSupply says what the strategy makes of it that no host is free.
func judgeControlPlaneSupply(of *controlplanev1.QuoinControlPlane, object, why string) []quoinv1.Finding {
	strategy, replicas := of.Spec.Rollout.Strategy, ptr.Deref(of.Spec.Replicas, 1)
	switch {
	case strategy == controlplanev1.RolloutStrategySurge || replicas < controlplane.FewestToRemoveFirst:
		return []quoinv1.Finding{blocks(object, "NoSpareHost", "its rollout begins with a further Machine, and "+why,
			"add a host")}
	case strategy == controlplanev1.RolloutStrategyRemoveFirst:
		return nil
	}
	return []quoinv1.Finding{warns(object, "NoSpareHost", why+", so each member goes before its replacement comes, and "+
		"one failure less is tolerated meanwhile", "add a host")}
}

// left reports of which MachineDeployments Machines run another version, and under no name whether of the control
// plane.
func (s Subject) left(machines []clusterv1.Machine) map[string]bool {
	left := map[string]bool{}
	for i := range machines {
		of := machines[i].Labels[clusterv1.MachineDeploymentNameLabel]
		if util.IsControlPlaneMachine(&machines[i]) {
			of = ""
		} else if of == "" {
			continue // of no pool
		}
		world := skew.WorldOf(machines[i : i+1])
		for _, running := range world.Components {
			world.APIServers = append(world.APIServers, running.Version)
		}
		left[of] = left[of] || slices.ContainsFunc(world.APIServers, func(v string) bool { return v != s.Version })
	}
	return left
}

// surges reports whether a rollout of the pool begins with a further Machine. What is not set is a surge of 1 and
// nothing unavailable, and of neither one may be unavailable, as in Cluster API.
func surges(pool *clusterv1.MachineDeployment) bool {
	rolling := pool.Spec.Rollout.Strategy.RollingUpdate
	if pool.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType {
		return false
	}
	replicas := int(ptr.Deref(pool.Spec.Replicas, 1))
	surge, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(rolling.MaxSurge, intstr.FromInt32(1))),
		replicas, true)
	if err != nil {
		return false
	}
	unavailable, err := intstr.GetScaledValueFromIntOrPercent(
		ptr.To(ptr.Deref(rolling.MaxUnavailable, intstr.FromInt32(0))), replicas, false)
	return err == nil && surge > 0 && unavailable == 0
}

// supply is the hosts that there are.
type supply struct {
	s     Subject
	hosts []placement.Host
	taken []placement.Identity
}

// lacks says why no host of the failure domain, or of any, is free for a Machine of the template; empty when one is,
// and when the template is not ours.
func (f supply) lacks(
	ctx context.Context, ref clusterv1.ContractVersionedObjectReference, domain, object string,
) (string, error) {
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return "", nil
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: f.s.Cluster.Namespace, Name: ref.Name}
	switch err := f.s.Management.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("QuoinMachineTemplate %s, of which it is made, is not there", key), nil
	case err != nil:
		return "", fmt.Errorf("read QuoinMachineTemplate %s of %s: %w", key, object, err)
	}
	request := placement.Request{Namespace: key.Namespace, FailureDomain: domain, Version: f.s.Version,
		Taken: f.taken}
	if wants := template.Spec.Template.Spec.HostSelector; wants != nil {
		selector, err := metav1.LabelSelectorAsSelector(wants)
		if err != nil {
			return fmt.Sprintf("hostSelector of QuoinMachineTemplate %s cannot be read: %v", key, err), nil
		}
		request.Selector = selector
	}
	result := placement.Select(request, f.hosts)
	if result.Chosen != nil {
		return "", nil
	}
	return result.Message(), nil
}
