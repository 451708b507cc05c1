// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Whatever an operator allows, and whatever a name resolves to: what is read is written as it was meant, and no address
// is connected to that leads to what is reserved but by a network that lies within that.
func FuzzRules(f *testing.F) {
	for _, allowed := range []string{"", "10.0.0.0/8", "0.0.0.0/0 ::/0", "127.0.0.0/8 ::1", "10.1.2.3/16",
		"fe80::1%eth0", "::ffff:10.0.0.0/104", "169.254.0.0/16", "example.com", "64:ff9b::/96", "2002::/16"} {
		for _, address := range []string{"10.1.2.3:22", "[::ffff:127.0.0.1]:80", "169.254.169.254:80", "0.0.0.0:1",
			"[::]:443", "[fe80::1%eth0]:22", "[2002:7f00:1::]:1", "[64:ff9b::a9fe:a9fe]:1", "[::a9fe:a9fe]:1",
			"10.96.0.1:443", "x"} {
			f.Add(allowed, address)
		}
	}
	services := netip.MustParsePrefix("10.96.0.0/12")
	f.Fuzz(func(t *testing.T, allowed, address string) {
		networks, err := Parse(strings.Fields(allowed))
		if err != nil {
			if networks != nil || len(err.Error()) > 4*len(allowed)+200 {
				t.Fatalf("%v beside %v", networks, err)
			}
			return
		}
		written := make([]string, len(networks))
		for i, network := range networks {
			if written[i] = network.String(); network != network.Masked() || network.Addr().Is4In6() {
				t.Fatalf("%q was read as %s", allowed, network)
			}
		}
		if again, err := Parse(written); err != nil || len(again) != len(strings.Fields(allowed)) {
			t.Fatalf("%q was written as %q: %v", allowed, written, err)
		}
		rules := NewKnowing(networks, []netip.Prefix{services})
		if rules.Control(t.Context(), "tcp", address, nil) != nil {
			return
		}
		// By the standard library's own judgement, which knows nothing of these rules.
		host, _, err := net.SplitHostPort(address)
		ip := net.ParseIP(strings.Split(host, "%")[0])
		if err != nil || ip == nil {
			t.Fatalf("%q is no address", address)
		}
		to, _ := netip.AddrFromSlice(ip)
		for _, leads := range append(within(ip), to.Unmap()) {
			std := net.IP(leads.AsSlice())
			named := false
			for _, network := range networks {
				named = named || network.Contains(leads) && network.Bits() >= 8
			}
			if reserved := std.IsLoopback() || std.IsLinkLocalUnicast() || std.IsUnspecified() || std.IsMulticast() ||
				services.Contains(leads); reserved && !named {
				t.Fatalf("%s leads to %s, which %q does not name", address, leads, allowed)
			}
		}
	})
}

// within is the IPv4 address that an IPv6 address leads to, where it does (RFC 6052, RFC 3056, RFC 4291).
func within(ip net.IP) []netip.Addr {
	if ip = ip.To16(); ip.To4() != nil || ip.Equal(net.IPv6loopback) || ip.IsUnspecified() {
		return nil
	}
	for prefix, at := range map[string]int{"64:ff9b::": 12, "2002::": 2, "::": 12} {
		if slices.Equal(net.ParseIP(prefix)[:at], ip[:at]) {
			return []netip.Addr{netip.AddrFrom4([4]byte(ip[at : at+4]))}
		}
	}
	return nil
}
