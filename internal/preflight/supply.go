// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// lookAtSupply looks whether the control plane and each pool find the host that the first replacement of their rollouts
// needs. They are rolled out one after another, and each host that is left serves the next.
func lookAtSupply(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	hosts := &infrav1.QuoinHostList{}
	if err := s.Management.List(ctx, hosts); err != nil {
		return "", nil, fmt.Errorf("list the QuoinHosts: %w", err)
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return "", nil, err
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	goals, err := s.goals(ctx)
	if err != nil {
		return "", nil, err
	}
	left, fleet := s.left(machines, goals), s.supply(hosts, machines)
	findings, err := s.judgeHealing(ctx, pools, goals)
	if err != nil {
		return "", nil, err
	}
	if s.ControlPlane != nil && (s.ControlPlane.Spec.Version != s.Version || left[""]) {
		template := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
		object := "QuoinControlPlane " + s.ControlPlane.Name
		lack, err := fleet.lacks(ctx, template, "", "", object, s.Version)
		if err != nil {
			return "", nil, err
		}
		if lack.why != "" {
			findings = append(findings, judgeControlPlaneSupply(s.ControlPlane, object, lack.why)...)
		}
	}
	policy, err := s.rolloutPolicy(ctx)
	if err != nil {
		return "", nil, err
	}
	for i := range pools {
		pool := &pools[i]
		goal := s.goal(goals, pool.Name)
		raised := pool.Spec.Template.Spec.Version == goal && !left[pool.Name]
		if ptr.Deref(pool.Spec.Replicas, 1) == 0 || raised || !surges(pool) {
			continue
		}
		object := "MachineDeployment " + pool.Name
		lack, err := fleet.lacks(ctx, pool.Spec.Template.Spec.InfrastructureRef, pool.Name,
			pool.Spec.Template.Spec.FailureDomain, object, goal)
		if err != nil {
			return "", nil, err
		}
		if lack.why != "" {
			findings = append(findings, judgePoolSupply(pool, policy, lack.why, fleet.returns(pool.Name, lack.request)))
		}
	}
	return fmt.Sprintf("%d QuoinHosts for a control plane and %d MachineDeployments", len(fleet.hosts), len(pools)),
		findings, nil
}

// judgeControlPlaneSupply says what the strategy makes of it that no host is free. One that is not known here may need
// one.
func judgeControlPlaneSupply(of *controlplanev1.QuoinControlPlane, object, why string) []quoinv1.Finding {
	strategy, begins := of.Spec.Rollout.Strategy, "its rollout begins with a further Machine, and "
	few := ptr.Deref(of.Spec.Replicas, 1) < controlplane.FewestToRemoveFirst
	switch {
	case few || strategy == controlplanev1.RolloutStrategySurge:
	case strategy == controlplanev1.RolloutStrategyRemoveFirst:
		return nil
	case strategy == "" || strategy == controlplanev1.RolloutStrategyAuto:
		return []quoinv1.Finding{warns(object, "NoSpareHost", why+", so each member goes before its replacement comes, and "+
			"one failure less is tolerated meanwhile", "add a host")}
	default:
		begins = fmt.Sprintf("nobody here knows what a rollout by strategy %s begins with, and ", strategy)
	}
	return []quoinv1.Finding{blocks(object, "NoSpareHost", begins+why, "add a host")}
}

// judgePoolSupply says what the Cluster's RolloutPolicy, nil when there is none, makes of it that no host is free: with
// its consent one Machine goes first, where the new one could have its host.
func judgePoolSupply(
	pool *clusterv1.MachineDeployment, policy *quoinv1.RolloutPolicy, why string, returns bool,
) quoinv1.Finding {
	object, replicas := "MachineDeployment "+pool.Name, int(ptr.Deref(pool.Spec.Replicas, 1))
	if policy != nil && returns {
		surge, unavailable := bounds(pool)
		consents, err := rollout.RemovesFirst(&policy.Spec, rollout.Pool{Name: pool.Name, Labels: pool.Labels,
			Replicas: replicas, Stock: rollout.Limits{Surge: surge, Unavailable: unavailable}})
		if err == nil && consents {
			return warns(object, "NoSpareHost", fmt.Sprintf("%s, so each Machine goes before its replacement comes, as "+
				"whenNoSpare of RolloutPolicy %s says, and one of %d is missing meanwhile", why, policy.Name, replicas),
				"add a host")
		}
	}
	return blocks(object, "NoSpareHost", "its rollout begins with a further Machine, and "+why,
		"add a host, set maxSurge: 0 and maxUnavailable: 1, or have a RolloutPolicy with whenNoSpare: RemoveFirst")
}

// rolloutPolicy is the one that holds for the Cluster; nil when there is none, and where nobody knows of any.
func (s Subject) rolloutPolicy(ctx context.Context) (*quoinv1.RolloutPolicy, error) {
	policies := &quoinv1.RolloutPolicyList{}
	err := s.Management.List(ctx, policies, client.InNamespace(s.Cluster.Namespace))
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil //nolint:nilnil // the API has no policies
	case err != nil:
		return nil, fmt.Errorf("list the RolloutPolicies: %w", err)
	}
	return rollout.Of(policies.Items, s.Cluster.Name), nil
}

// left reports of which groups Machines leave.
func (s Subject) left(machines []clusterv1.Machine, goals goals) map[string]bool {
	left := map[string]bool{}
	for i := range machines {
		if of := group(&machines[i]); of != nil {
			left[*of] = left[*of] || s.leaves(&machines[i], goals)
		}
	}
	return left
}

// surges reports whether a rollout of the pool begins with a further Machine.
func surges(pool *clusterv1.MachineDeployment) bool {
	surge, unavailable := bounds(pool)
	return surge > 0 && unavailable == 0
}

// supply is the hosts that there are.
type supply struct {
	s        Subject
	machines []clusterv1.Machine
	hosts    []placement.Host
	taken    []placement.Identity
	// claimed are the hosts that Machines of the Cluster have, by the Machine.
	claimed map[string]placement.Host
	// cgroupEnded says that a kubelet of the version has to be told to start on one of the hosts.
	cgroupEnded bool
}

// supply is the hosts, and which of them the Machines have.
func (s Subject) supply(hosts *infrav1.QuoinHostList, machines []clusterv1.Machine) supply {
	ours := map[string]*clusterv1.Machine{}
	for i := range machines {
		ours[machines[i].Name] = &machines[i]
	}
	fleet := supply{s: s, machines: machines, claimed: map[string]placement.Host{}}
	for i := range hosts.Items {
		fleet.cgroupEnded = fleet.cgroupEnded ||
			skew.CgroupEnded(placement.CgroupOf(hosts.Items[i].Status.Facts), s.Version) != ""
		fleet.hosts = append(fleet.hosts, placement.HostOf(&hosts.Items[i]))
		ref := hosts.Items[i].Spec.ConsumerRef
		if ref != nil && ours[ref.Machine] != nil && hosts.Items[i].Serves(ours[ref.Machine]) {
			fleet.taken = append(fleet.taken, placement.IdentitiesOf(&hosts.Items[i])...)
			fleet.claimed[ref.Machine] = placement.HostOf(&hosts.Items[i])
		}
	}
	return fleet
}

// lack is why no host is free; nothing when one is.
type lack struct {
	why string
	// request that finds none; nil when nothing could be asked for.
	request *placement.Request
}

// returns reports whether a Machine of the group has a host that the request could have when it left.
func (f supply) returns(name string, request *placement.Request) bool {
	return request != nil && slices.ContainsFunc(f.machines, func(machine clusterv1.Machine) bool {
		host, has := f.claimed[machine.Name]
		of := group(&machine)
		return has && of != nil && *of == name && placement.Returning(*request, host)
	})
}

// lacks says why no host of the failure domain, or of any, is free for a Machine of the group, its template and the
// version; nothing when one is, and when the template is not ours.
func (f supply) lacks(
	ctx context.Context, ref clusterv1.ContractVersionedObjectReference, group, domain, object, version string,
) (lack, error) {
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return lack{}, nil
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: f.s.Cluster.Namespace, Name: ref.Name}
	switch err := f.s.Management.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return lack{why: fmt.Sprintf("QuoinMachineTemplate %s, of which it is made, is not there", key)}, nil
	case err != nil:
		return lack{}, fmt.Errorf("read QuoinMachineTemplate %s of %s: %w", key, object, err)
	}
	fails, err := f.failsOnCgroupV1(ctx, group)
	if err != nil {
		return lack{}, err
	}
	request := placement.Request{Namespace: key.Namespace, HostNamespaces: template.Spec.Template.Spec.HostNamespaces,
		FailureDomain: domain, Version: version, Taken: f.taken, FailCgroupV1: fails, Worker: group != ""}
	if wants := template.Spec.Template.Spec.HostSelector; wants != nil {
		selector, err := metav1.LabelSelectorAsSelector(wants)
		if err != nil {
			return lack{why: fmt.Sprintf("hostSelector of QuoinMachineTemplate %s cannot be read: %v", key, err)}, nil
		}
		request.Selector = selector
	}
	result := placement.Select(request, f.hosts)
	if result.Chosen != nil {
		return lack{}, nil
	}
	return lack{result.Message(), &request}, nil
}

// failsOnCgroupV1 reports whether a kubelet of the group would not start on those of the hosts that have cgroup v1.
// Neither the bootstrap data of its newest Machine tell it to, after which the next one's are made, nor does the
// configuration that kubeadm gives all kubelets.
func (f supply) failsOnCgroupV1(ctx context.Context, name string) (bool, error) {
	if !f.cgroupEnded {
		return false, nil
	}
	var newest *clusterv1.Machine
	for i := range f.machines {
		machine := &f.machines[i]
		if of := group(machine); of != nil && *of == name && machine.Spec.Bootstrap.DataSecretName != nil &&
			(newest == nil || newest.CreationTimestamp.Before(&machine.CreationTimestamp)) {
			newest = machine
		}
	}
	if newest != nil {
		data := &corev1.Secret{}
		key := client.ObjectKey{Namespace: newest.Namespace, Name: *newest.Spec.Bootstrap.DataSecretName}
		if err := client.IgnoreNotFound(f.s.Management.Get(ctx, key, data)); err != nil {
			return false, fmt.Errorf("read the bootstrap data of Machine %s: %w", newest.Name, err)
		}
		if observed.StartsOnCgroupV1(data.Data["value"]) {
			return false, nil
		}
	}
	return observed.SharedFailsOnCgroupV1(ctx, f.s.Workload), nil
}
