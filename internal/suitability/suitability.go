// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suitability says from a host's facts alone whether it can become a node, and which addresses its node has.
package suitability

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

// MaxClockOffset is how far a host's clock may be off: certificates that are valid from now on, and leases, break
// beyond it.
const MaxClockOffset = 30 * time.Second

// essential are the programs without which our plans or kubeadm's preflight end half-way. What else is missing matters
// to some versions and network plugins only.
var essential = []string{"awk", "flock", "ip", "iptables", "mount", "sha256sum", "systemd-run", "timeout"}

// Assess says why the host cannot become a node, and what a person should know all the same.
func Assess(facts *inspect.Facts, network infrav1.NodeNetwork) (problems, hints []string) {
	if !facts.Systemd {
		problems = append(problems, "systemd does not run the host; install an OS with systemd")
	}
	problem, hint := assessRuntime(facts.ContainerRuntime)
	if problem != "" {
		problems = append(problems, problem)
	}
	if hint != "" {
		hints = append(hints, hint)
	}
	needed, useful := missingPrograms(facts.CommandsMissing)
	if len(needed) > 0 {
		problems = append(problems, "the host lacks "+strings.Join(needed, ", ")+"; install the packages that hold them")
	}
	if facts.ClockOffset.Abs() > MaxClockOffset {
		direction := "ahead of"
		if facts.ClockOffset < 0 {
			direction = "behind"
		}
		problems = append(problems, fmt.Sprintf("the host's clock is %s %s the manager's; let both follow a time server",
			facts.ClockOffset.Abs().Round(time.Second), direction))
	}
	if facts.Hostname == "" || strings.HasPrefix(facts.Hostname, "localhost") {
		problems = append(problems, fmt.Sprintf("the hostname is %q, but the node is named after it; set one (hostnamectl "+
			"hostname <name>)", facts.Hostname))
	}
	if _, err := NodeAddresses(facts, network, nil); err != nil {
		problems = append(problems, err.Error())
	}
	if len(useful) > 0 {
		hints = append(hints, "the host lacks "+strings.Join(useful,
			", ")+", which some versions of kubeadm and some network plugins need")
	}
	if facts.CgroupVersion == 1 {
		hints = append(hints, "the host uses cgroup v1, which the kubelet refuses from v1.35 on unless its configuration "+
			"allows it; boot it with cgroup v2")
	}
	if facts.SwapEnabled {
		hints = append(hints, "swap is on, which the kubelet refuses unless its configuration allows it")
	}
	if facts.TCPForwardingAllowed != nil && !*facts.TCPForwardingAllowed {
		hints = append(hints, "sshd does not allow TCP forwarding, so etcd on this host cannot be read; set "+
			"AllowTcpForwarding to local or yes before the host joins a control plane")
	}
	if facts.CloudInitEnabled {
		hints = append(hints, "cloud-init is enabled and may change the hostname or network at the next boot")
	}
	return problems, hints
}

func assessRuntime(found inspect.ContainerRuntime) (problem, hint string) {
	switch {
	case found.Name == "":
		return "no container runtime was found; install containerd", ""
	case !found.SocketOK:
		return fmt.Sprintf("%s does not answer at /run/containerd/containerd.sock; start it (systemctl enable --now "+
			"containerd)", found.Name), ""
	case found.Name != "containerd":
		return "", ""
	}
	major, minor := release(found.Version)
	switch {
	case major == 0 && minor == 0:
		return "", ""
	case major < 1 || major == 1 && minor < 6:
		return fmt.Sprintf("containerd %s has no CRI v1, without which no kubelet starts; install containerd 1.6 or newer, "+
			"better 2.x", found.Version), ""
	case major == 1:
		return "", fmt.Sprintf("containerd %s is of the 1.x series, whose support the kubelet is giving up; install 2.x",
			found.Version)
	}
	return "", ""
}

// release reads major and minor of a version like 1.7.24~ds1; 0.0 when it cannot be read.
func release(version string) (major, minor int) {
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return 0, 0
	}
	return major, minor
}

func missingPrograms(missing []string) (needed, useful []string) {
	for _, name := range missing {
		if slices.Contains(essential, name) {
			needed = append(needed, name)
		} else {
			useful = append(useful, name)
		}
	}
	return needed, useful
}

// NodeAddresses picks the addresses that the node uses: those of the spec, else the first global address of each family
// on the wanted interface, IPv4 first. The virtual address, which this host may hold at the moment, is never one of
// them.
func NodeAddresses(facts *inspect.Facts, network infrav1.NodeNetwork, virtual []netip.Prefix) ([]string, error) {
	if wanted := network.Addresses; len(wanted) > 0 {
		for _, text := range wanted {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("spec.nodeNetwork.addresses: %q is not an IP address", text)
			}
			if !slices.ContainsFunc(facts.Addresses, func(a inspect.Address) bool { return a.Address == address }) {
				return nil, fmt.Errorf("the host does not have the address %s of spec.nodeNetwork; correct one of them", text)
			}
		}
		return wanted, nil
	}
	name := network.Interface
	if name == "" {
		name = facts.DefaultInterface
	}
	if name == "" {
		return nil, fmt.Errorf("the host has no default route, so its node address is unknown; set spec.nodeNetwork")
	}
	isVirtual := func(a netip.Addr) bool {
		return slices.ContainsFunc(virtual, func(v netip.Prefix) bool { return v.Addr() == a })
	}
	var v4, v6 []string
	for _, a := range facts.Addresses {
		switch {
		case a.Interface != name || isVirtual(a.Address) || a.Address.IsLinkLocalUnicast():
		case a.Address.Unmap().Is4():
			v4 = append(v4, a.Address.String())
		default:
			v6 = append(v6, a.Address.String())
		}
	}
	picked := slices.Concat(v4[:min(1, len(v4))], v6[:min(1, len(v6))])
	if len(picked) == 0 {
		return nil, fmt.Errorf("interface %s of the host has no global address for its node; set spec.nodeNetwork", name)
	}
	return picked, nil
}
