// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"

// refuseStale changes nothing once a single host of the control plane has said that it serves a newer generation. The
// host itself keeps the stale side away, and so does each of the others once it has heard of the newer side; etcd, the
// API server and the objects here know no generations. That the other hosts have not heard of it yet says nothing: they
// may be silent.
func refuseStale(s facts) *controlplane.Step {
	if len(s.StaleHosts) == 0 {
		return nil
	}
	names := make([]string, 0, len(s.StaleHosts))
	for _, host := range s.StaleHosts {
		names = append(names, host.Name)
	}
	return s.refusal(controlplane.Repair, controlplane.ReasonStaleClaim,
		"nothing of this control plane is changed from here, because another management cluster manages it: QuoinHost %s: %s",
		list(names), s.StaleHosts[0].Message)
}
