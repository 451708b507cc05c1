// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"strconv"
	"strings"
)

// RuntimeEnded says of a container runtime ("containerd://1.7.24") that a kubelet of the version does not support its
// series any more, in words that read well after a count of hosts; empty when it does, and when either is not known.
func RuntimeEnded(runtime, kubelet string) string {
	name, version, _ := strings.Cut(runtime, "://")
	major, _, _ := strings.Cut(version, ".")
	for _, series := range policies[DefaultPolicy].Runtimes {
		if series.Name != name || strconv.Itoa(series.Major) != major {
			continue // of thousands of hosts nearly all
		}
		if node, err := Parse(kubelet); err == nil && node.Minor() > series.Last {
			return fmt.Sprintf("with %s %s.x, which Kubernetes supports up to v%d.%d (%s)",
				name, major, node.Major(), series.Last, series.Rule)
		}
	}
	return ""
}

// CgroupEnded says of a host's version of control groups that a kubelet of the version does not start on it unless its
// configuration allows that, in words that read well after a count of hosts; empty when it does, and when either is not
// known.
func CgroupEnded(cgroup int32, kubelet string) string {
	for _, ended := range policies[DefaultPolicy].Cgroups {
		if ended.Version != cgroup {
			continue // of thousands of hosts nearly all
		}
		if node, err := Parse(kubelet); err == nil && node.Minor() > ended.Last {
			return fmt.Sprintf("with cgroup v%d, on which kubelets after v%d.%d start only with failCgroupV1: false (%s)",
				ended.Version, node.Major(), ended.Last, ended.Rule)
		}
	}
	return ""
}
