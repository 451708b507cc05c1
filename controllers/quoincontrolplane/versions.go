// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	versions "github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// leaveBehind judges the wanted version by what runs on all Machines of the Cluster, as admission does when it is
// edited.
func (r *Reconciler) leaveBehind(ctx context.Context, s *scope, machines collections.Machines) error {
	policies, err := skew.PoliciesOf(s.cluster)
	if err != nil {
		s.snapshot.LeftBehind = err.Error() + "; correct the annotation"
		return nil //nolint:nilerr // a person's to correct
	}
	world := skew.WorldOf(listed(machines))
	if skew.AskForEstate(policies) {
		if world.Estate, err = versions.Catalog(ctx, r.Client, s.cluster); err != nil {
			return err
		}
		if s.snapshot.LeftBehind = world.Estate.Problem; s.snapshot.LeftBehind != "" {
			return nil
		}
	}
	s.snapshot.LeftBehind, _ = skew.LeftBehind(policies, world, s.plane.Spec.Version)
	return nil
}

// judgeKubeadm adds what kubeadm is told to make beside members of etcd and API servers that do not allow it (R17,
// R18): admission asked a cluster that need not have answered.
func (s *scope) judgeKubeadm() {
	policies, err := skew.PoliciesOf(s.cluster)
	if err != nil {
		return // that is said already
	}
	pods := make([]corev1.Pod, 0, len(s.workload.pods))
	for _, name := range slices.Sorted(maps.Keys(s.workload.pods)) {
		pods = append(pods, *s.workload.pods[name])
	}
	world := skew.World{APIServers: skew.WorldOf(listed(s.machines)).APIServers, Components: versions.StaticPods(pods)}
	tells := versions.KubeadmOf(s.plane.Spec.Version, &s.plane.Spec.KubeadmConfigSpec.ClusterConfiguration)
	refused := skew.Summary(tells.Judge(policies, world, skew.Kubeadm{}))
	if s.snapshot.LeftBehind != "" && refused != "" {
		refused = "; " + refused
	}
	s.snapshot.LeftBehind += refused
}

func listed(machines collections.Machines) []clusterv1.Machine {
	all := make([]clusterv1.Machine, 0, len(machines))
	for _, machine := range machines.SortedByCreationTimestamp() {
		all = append(all, *machine)
	}
	return all
}
