// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// leftBehind judges the wanted version by what runs on all Machines of the Cluster, as admission does when it is
// edited.
func (s *Sources) leftBehind(ctx context.Context, l *Lists) (string, error) {
	policies, err := skew.PoliciesOf(l.Cluster)
	if err != nil {
		return err.Error() + "; correct the annotation", nil //nolint:nilerr // a person's to correct
	}
	world := skew.WorldOf(l.all)
	if skew.AskForEstate(policies) {
		if world.Estate, err = observed.Catalog(ctx, s.Cache, l.Cluster); err != nil {
			return "", err
		}
		if world.Estate.Problem != "" {
			return world.Estate.Problem, nil
		}
	}
	left, _ := skew.LeftBehind(policies, world, l.ControlPlane.Spec.Version)
	if left != "" {
		// What is said is the same in whatever order the cache has them; most have nothing said of them.
		sorted := listed(collections.FromMachineList(&clusterv1.MachineList{Items: l.all}))
		estate := world.Estate
		world = skew.WorldOf(sorted)
		world.Estate = estate
		left, _ = skew.LeftBehind(policies, world, l.ControlPlane.Spec.Version)
		left += plan.StateOf(sorted).Onward(policies, l.ControlPlane.Spec.Version)
	}
	return left, nil
}

// judgeKubeadm adds what kubeadm is to make beside members of etcd and API servers that do not allow it (R17, R18):
// admission asked a cluster that need not have answered. Etcd is judged apart, since its version may be asked for
// alone.
func (o *Observation) judgeKubeadm() {
	policies, err := skew.PoliciesOf(o.Cluster)
	if err != nil {
		return // that is said already
	}
	pods := make([]corev1.Pod, 0, len(o.Workload.pods))
	for _, name := range slices.Sorted(maps.Keys(o.Workload.pods)) {
		pods = append(pods, *o.Workload.pods[name])
	}
	world := skew.World{APIServers: skew.WorldOf(listed(o.Machines)).APIServers, Components: observed.StaticPods(pods)}
	spec := &o.ControlPlane.Spec
	kubeadm := observed.KubeadmOf(spec.Version, &spec.KubeadmConfigSpec.ClusterConfiguration)
	var members, others []skew.Violation
	for _, violation := range kubeadm.Judge(policies, world, skew.Kubeadm{}) {
		if violation.Component == skew.Etcd {
			members = append(members, violation)
		} else {
			others = append(others, violation)
		}
	}
	o.State.EtcdBehind = skew.Summary(members)
	refused := skew.Summary(others)
	if o.State.LeftBehind != "" && refused != "" {
		refused = "; " + refused
	}
	o.State.LeftBehind += refused
}

func listed(machines collections.Machines) []clusterv1.Machine {
	all := make([]clusterv1.Machine, 0, len(machines))
	for _, machine := range machines.SortedByCreationTimestamp() {
		all = append(all, *machine)
	}
	return all
}

// failsOnCgroupV1 reports whether the kubelet of a further Machine would not start on those of the hosts that have
// cgroup v1 (R20). QuoinMachines are held back by the same rule, which they ask of the bootstrap data: those are made
// of what is read here.
func (s *Sources) failsOnCgroupV1(ctx context.Context, inv *Inventory) (bool, error) {
	spec := &inv.ControlPlane.Spec
	return observed.FailsOnCgroupV1(inv.fleet, spec.Version, func() ([]byte, error) {
		return observed.KubeletSettings(ctx, s.Live, inv.ControlPlane.Namespace, &spec.KubeadmConfigSpec, inv.Initialized())
	}, func() bool {
		if !inv.Initialized() {
			return true
		}
		ctx, cancel := context.WithTimeout(ctx, WorkloadTimeout)
		defer cancel()
		workload, err := s.Workloads.GetUncachedReader(ctx, client.ObjectKeyFromObject(inv.Cluster))
		// A cluster that cannot be read may let it start.
		return err == nil && observed.SharedFailsOnCgroupV1(ctx, workload)
	})
}
