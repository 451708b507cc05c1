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
	g.Expect(result.Reasons).To(Equal(map[Reason]int{"with containerd 1.x, which Kubernetes supports up to v1.35 (R19)": 1}))
	host.Runtime = "containerd://2.0.1"
	g.Expect(Select(Request{Namespace: "team", Version: "v1.36.3"}, []Host{host}).Chosen).NotTo(BeNil())
	host.Runtime = ""
	g.Expect(Select(Request{Namespace: "team", Version: "v1.36.3"}, []Host{host}).Chosen).NotTo(BeNil(), "nothing is known")
}
