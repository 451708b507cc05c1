// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import "strconv"

// variables are those of our templates.
func (s ClusterSpec) variables() []string {
	return []string{
		"CONTROL_PLANE_ENDPOINT_IP=" + s.VirtualAddress,
		"VIRTUAL_ROUTER_ID=" + strconv.Itoa(s.RouterID),
	}
}
