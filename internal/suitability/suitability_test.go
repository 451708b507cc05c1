// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package suitability

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

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
		"no name at all": {func(f *inspect.Facts) { f.Hostname = "" }, `the hostname is ""`},
		"no route":       {func(f *inspect.Facts) { f.DefaultInterface = "" }, "no default route"},
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

// What a person should know keeps no host from becoming a node.
func TestWhatAPersonShouldKnowOfAHost(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*inspect.Facts)
		want   string
	}{
		"nothing":          {func(*inspect.Facts) {}, ""},
		"cgroup v1":        {func(f *inspect.Facts) { f.CgroupVersion = 1 }, "cgroup v1"},
		"swap":             {func(f *inspect.Facts) { f.SwapEnabled = true }, "swap is on"},
		"cloud-init":       {func(f *inspect.Facts) { f.CloudInitEnabled = true }, "cloud-init is enabled"},
		"no forwarding":    {func(f *inspect.Facts) { f.TCPForwardingAllowed = new(bool) }, "does not allow TCP forwarding"},
		"forwarding":       {func(f *inspect.Facts) { f.TCPForwardingAllowed = ptr.To(true) }, ""},
		"a useful program": {func(f *inspect.Facts) { f.CommandsMissing = []string{"socat"} }, "lacks socat, which some"},
		"a clock that is off by as much as it may": {func(f *inspect.Facts) { f.ClockOffset = 30 * time.Second }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, facts := NewWithT(t), good()
			test.change(facts)
			problems, hints := Assess(facts, infrav1.NodeNetwork{})
			g.Expect(problems).To(BeEmpty())
			if test.want == "" {
				g.Expect(hints).To(BeEmpty())
			} else {
				g.Expect(hints).To(ConsistOf(ContainSubstring(test.want)))
			}
		})
	}
}

func TestAnAgingRuntimeIsAHintOnlyAndAnUnreadableVersionNothing(t *testing.T) {
	for runtime, want := range map[string]struct{ problem, hint string }{
		"containerd 1.6.20":     {hint: "1.x series"},
		"containerd 1.7.24~ds1": {hint: "1.x series"},
		"containerd 2.2.9":      {},
		"containerd ":           {},
		"containerd main":       {},
		"containerd 1.x":        {},
		"containerd 1.5.9":      {problem: "no CRI v1"},
		"containerd 1.0.2":      {problem: "no CRI v1"},
		"containerd 0.9.1":      {problem: "no CRI v1"},
		"cri-o 1.5.9":           {},
	} {
		t.Run(runtime, func(t *testing.T) {
			g, facts := NewWithT(t), good()
			facts.ContainerRuntime.Name, facts.ContainerRuntime.Version, _ = strings.Cut(runtime, " ")
			problems, hints := Assess(facts, infrav1.NodeNetwork{})
			for _, c := range []struct {
				said []string
				want string
			}{{problems, want.problem}, {hints, want.hint}} {
				g.Expect(strings.Join(c.said, "; ")).To(ContainSubstring(c.want))
				g.Expect(len(c.said) > 0).To(Equal(c.want != ""), "%v", c.said)
			}
		})
	}
}

func TestTheNodeNeverTakesAVirtualOrLinkLocalAddressForItsOwn(t *testing.T) {
	virtual := []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32")}
	facts := good()
	facts.Addresses = append(facts.Addresses,
		inspect.Address{Interface: "eth0", Address: netip.MustParseAddr("fd00::2"), Prefix: 64},
		inspect.Address{Interface: "eth2", Address: netip.MustParseAddr("::ffff:10.2.0.1"), Prefix: 24},
		inspect.Address{Interface: "eth2", Address: netip.MustParseAddr("10.2.0.2"), Prefix: 24})
	for _, c := range []struct {
		network infrav1.NodeNetwork
		virtual []netip.Prefix
		want    []string
		fails   string
	}{
		{virtual: virtual, want: []string{"10.0.0.1", "fd00::1"}},
		{want: []string{"10.0.0.100", "fd00::1"}},
		{network: infrav1.NodeNetwork{Interface: "eth1"}, virtual: virtual, want: []string{"10.1.0.1"}},
		{network: infrav1.NodeNetwork{Interface: "eth2"}, want: []string{"::ffff:10.2.0.1"}},
		{network: infrav1.NodeNetwork{Interface: "eth9"}, fails: "interface eth9 of the host has no global address"},
		{network: infrav1.NodeNetwork{Addresses: []string{"10.1.0.1", "fd00::2"}}, want: []string{"10.1.0.1", "fd00::2"}},
		{network: infrav1.NodeNetwork{Addresses: []string{"10.9.9.9"}}, fails: "does not have the address 10.9.9.9"},
		{network: infrav1.NodeNetwork{Addresses: []string{"10.1.0"}}, fails: `"10.1.0" is not an IP address`},
	} {
		g := NewWithT(t)
		addresses, err := NodeAddresses(facts, c.network, c.virtual)
		g.Expect(addresses).To(Equal(c.want), "%v", c)
		if c.fails == "" {
			g.Expect(err).NotTo(HaveOccurred())
		} else {
			g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
		}
	}
}
