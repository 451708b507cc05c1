// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import "strconv"

// variables are those of our templates, as clusterctl reads them from its environment.
func (s ClusterSpec) variables() []string {
	bundles := s.Bundles
	if bundles == "" {
		bundles = bundlesOnHost
	}
	return []string{
		"CONTROL_PLANE_ENDPOINT_HOST=" + s.VirtualAddress,
		"KEEPALIVED_VIRTUAL_ROUTER_ID=" + strconv.Itoa(s.RouterID),
		"QUOIN_BUNDLE_LOCATION=" + bundles,
		"IMAGE_REPOSITORY=quoin.test",
		// There is no registry: what a bundle lacks must fail at once and not be looked for.
		"IMAGE_PULL_POLICY=Never",
	}
}
