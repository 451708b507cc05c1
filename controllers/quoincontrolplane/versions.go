// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// leaveBehind judges the wanted version by what runs on all Machines of the Cluster, as admission does when it is
// edited.
func (s *scope) leaveBehind(machines collections.Machines) {
	policies, err := skew.PoliciesOf(s.cluster)
	if err != nil {
		s.snapshot.LeftBehind = err.Error() + "; correct the annotation"
		return
	}
	all := make([]clusterv1.Machine, 0, len(machines))
	for _, machine := range machines.SortedByCreationTimestamp() {
		all = append(all, *machine)
	}
	s.snapshot.LeftBehind, _ = skew.LeftBehind(policies, skew.WorldOf(all), s.plane.Spec.Version)
}
