// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: R19
func TestAHostWhoseContainerRuntimeIsTooOldServesOlderMachinesOnly(t *testing.T) {
	g := NewWithT(t)
	host := Host{Namespace: "team", Name: "h1", State: StateAvailable, Ready: true, Runtime: "containerd://1.7.24"}
	g.Expect(Select(Request{Namespace: "team", Version: "v1.35.4"}, []Host{host}).Chosen).NotTo(BeNil())
	result := Select(Request{Namespace: "team", Version: "v1.36.3"}, []Host{host})
	g.Expect(result.Chosen).To(BeNil())
	g.Expect(result.Reasons).To(Equal(map[Reason]int{"with containerd 1.x, which Kubernetes supports up to v1.35 " +
		"(R19)": 1}))
	host.Runtime = "containerd://2.0.1"
	g.Expect(Select(Request{Namespace: "team", Version: "v1.36.3"}, []Host{host}).Chosen).NotTo(BeNil())
	host.Runtime = ""
	g.Expect(Select(Request{Namespace: "team", Version: "v1.36.3"}, []Host{host}).Chosen).
		NotTo(BeNil(), "nothing is known")
}

// Proves: R20
func TestAHostWithCgroupV1ServesOlderMachinesAndThoseThatAreToldTo(t *testing.T) {
	g := NewWithT(t)
	host := Host{Namespace: "team", Name: "h1", State: StateAvailable, Ready: true, Cgroup: 1}
	chosen := func(version string, fail bool) *Host {
		return Select(Request{Namespace: "team", Version: version, FailCgroupV1: fail}, []Host{host}).Chosen
	}
	g.Expect(chosen("v1.34.4", true)).NotTo(BeNil())
	g.Expect(chosen("v1.35.0", true)).To(BeNil())
	g.Expect(chosen("v1.35.0", false)).NotTo(BeNil(), "failCgroupV1: false")
	result := Select(Request{Namespace: "team", Version: "v1.36.3", FailCgroupV1: true}, []Host{host})
	g.Expect(result.Reasons).To(Equal(map[Reason]int{"with cgroup v1, on which kubelets after v1.34 start only with " +
		"failCgroupV1: false (R20)": 1}))
	host.Cgroup = 2
	g.Expect(chosen("v1.36.3", true)).NotTo(BeNil())
	host.Cgroup = 0
	g.Expect(chosen("v1.36.3", true)).NotTo(BeNil(), "nothing is known")
}
