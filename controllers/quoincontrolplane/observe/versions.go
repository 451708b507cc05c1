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
	world := skew.WorldOf(listed(l.all))
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
		left += plan.StateOf(listed(l.all)).Onward(policies, l.ControlPlane.Spec.Version)
	}
	return left, nil
}

// judgeKubeadm adds what kubeadm is told to make beside members of etcd and API servers that do not allow it (R17,
// R18): admission asked a cluster that need not have answered. Etcd is told apart, since its version may be asked for
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
	tells := observed.KubeadmOf(spec.Version, &spec.KubeadmConfigSpec.ClusterConfiguration)
	var members, others []skew.Violation
	for _, violation := range tells.Judge(policies, world, skew.Kubeadm{}) {
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
