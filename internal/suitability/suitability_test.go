// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package suitability

import (
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

// good is a host that can become a node.
func good() *inspect.Facts {
	return &inspect.Facts{
		Hostname: "host-1", Systemd: true, CgroupVersion: 2, DefaultInterface: "eth0",
		ContainerRuntime: inspect.ContainerRuntime{Name: "containerd", Version: "2.2.0", SocketOK: true},
		Addresses: []inspect.Address{
			{Interface: "eth0", Address: netip.MustParseAddr("fe80::1"), Prefix: 64},
			{Interface: "eth0", Address: netip.MustParseAddr("10.0.0.100"), Prefix: 32},
			{Interface: "eth0", Address: netip.MustParseAddr("10.0.0.1"), Prefix: 24},
			{Interface: "eth0", Address: netip.MustParseAddr("fd00::1"), Prefix: 64},
			{Interface: "eth1", Address: netip.MustParseAddr("10.1.0.1"), Prefix: 24},
		},
	}
}

func TestWhatKeepsAHostFromBecomingANode(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*inspect.Facts)
		want  string
	}{
		"no systemd": {func(f *inspect.Facts) { f.Systemd = false }, "systemd does not run the host"},
		"no runtime": {func(f *inspect.Facts) {
			f.ContainerRuntime = inspect.ContainerRuntime{}
		}, "no container runtime"},
		"a runtime that is down": {func(f *inspect.Facts) { f.ContainerRuntime.SocketOK = false }, "does not answer"},
		"containerd without CRI v1": {func(f *inspect.Facts) {
			f.ContainerRuntime.Version = "1.4.13~ds1"
		}, "install containerd 1.6"},
		"no flock":       {func(f *inspect.Facts) { f.CommandsMissing = []string{"flock"} }, "lacks flock"},
		"a clock ahead":  {func(f *inspect.Facts) { f.ClockOffset = 31 * time.Second }, "31s ahead of"},
		"a clock behind": {func(f *inspect.Facts) { f.ClockOffset = -31 * time.Second }, "31s behind"},
		"no name": {func(f *inspect.Facts) {
			f.Hostname = "localhost.localdomain"
		}, "the node is named after it"},
		"no route": {func(f *inspect.Facts) { f.DefaultInterface = "" }, "no default route"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			problems, _ := Assess(good(), infrav1.NodeNetwork{})
			g.Expect(problems).To(BeEmpty())
			facts := good()
			test.spoil(facts)
			problems, _ = Assess(facts, infrav1.NodeNetwork{})
			g.Expect(problems).To(ConsistOf(ContainSubstring(test.want)))
		})
	}
}

func TestAnAgingRuntimeIsAHintOnlyAndAnUnreadableVersionNothing(t *testing.T) {
	g := NewWithT(t)
	for version, want := range map[string]int{"1.6.20": 1, "1.7.24~ds1": 1, "2.2.9": 0, "": 0, "main": 0} {
		facts := good()
		facts.ContainerRuntime.Version = version
		problems, hints := Assess(facts, infrav1.NodeNetwork{})
		g.Expect(problems).To(BeEmpty(), version)
		g.Expect(hints).To(HaveLen(want), version)
	}
}

func TestTheNodeNeverTakesAVirtualOrLinkLocalAddressForItsOwn(t *testing.T) {
	g := NewWithT(t)
	virtual := []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32")}
	g.Expect(NodeAddresses(good(), infrav1.NodeNetwork{}, virtual)).To(Equal([]string{"10.0.0.1", "fd00::1"}))
	g.Expect(NodeAddresses(good(), infrav1.NodeNetwork{Interface: "eth1"}, virtual)).To(Equal([]string{"10.1.0.1"}))
	_, err := NodeAddresses(good(), infrav1.NodeNetwork{Addresses: []string{"10.9.9.9"}}, virtual)
	g.Expect(err).To(MatchError(ContainSubstring("does not have the address 10.9.9.9")))
}
