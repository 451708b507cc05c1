// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package egress decides which addresses this process connects to when a user names them: those of hosts, BMCs, servers
// of bundles, object stores, and checks of rollouts. The process may reach what users may not, such as its own node,
// metadata services and what listens in the management cluster.
package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Flag is that of the manager by which an operator names networks.
const Flag = "allowed-networks"

// RefusedError says that an address is not connected to.
type RefusedError struct {
	Address netip.Addr
	// Why is the end of a sentence that begins with the address.
	Why string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("address %s is refused: %s; the manager's operator can allow it by the flag --%s", e.Address, e.Why,
		Flag)
}

// Rules are what an operator allows. It is safe for concurrent use; nil refuses nothing.
type Rules struct {
	allowed  []netip.Prefix
	services *services
	// serving says that Services are connected to whatever is allowed.
	serving bool
}

// New makes rules. Where any network is allowed, nothing outside of them is connected to. What nobody needs as a user
// (loopback, link-local and multicast addresses, those of metadata services, and the Services of the cluster that
// reader reads) is connected to only by a network that lies within it, so 0.0.0.0/0 does not do.
func New(allowed []netip.Prefix, reader client.Reader) *Rules {
	return &Rules{allowed: allowed, services: &services{reader: reader, now: time.Now}}
}

// NewKnowing makes rules for who cannot read the cluster's Services, and knows their ranges.
func NewKnowing(allowed, ranges []netip.Prefix) *Rules {
	return &Rules{allowed: allowed, services: &services{known: ranges}}
}

// WithServices returns the same rules for what a Service of the management cluster may well be: a store of backups, or
// what a check of a rollout asks.
func (r *Rules) WithServices() *Rules {
	if r == nil {
		return nil
	}
	return &Rules{allowed: r.allowed, services: r.services, serving: true}
}

// Parse reads networks in CIDR notation; a single address is one of its own.
func Parse(networks []string) ([]netip.Prefix, error) {
	var parsed []netip.Prefix
	for _, network := range networks {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			address, asAddress := netip.ParseAddr(network)
			if asAddress != nil || address.Zone() != "" {
				return nil, fmt.Errorf("network %q is none such as 10.1.0.0/16, 2001:db8::/32 or 10.1.2.3", network)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		if prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("network %q has an IPv4 address in an IPv6 one; write the IPv4 network", network)
		}
		if prefix != prefix.Masked() {
			return nil, fmt.Errorf("network %q has bits set behind its prefix; write %s, or %s for the one address", network,
				prefix.Masked(), prefix.Addr())
		}
		parsed = append(parsed, prefix)
	}
	return parsed, nil
}

// Control is for net.Dialer, which asks it before it connects to an address, when names are resolved already.
func (r *Rules) Control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if r == nil {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %.64q cannot be read", address)
	}
	return r.Check(ctx, to.Addr())
}

// Check tells whether an address is connected to. Its error is a *RefusedError, or says that the Services' ranges
// cannot be read.
func (r *Rules) Check(ctx context.Context, address netip.Addr) error {
	if r == nil {
		return nil
	}
	reached := embedded(address.Unmap().WithZone(""))
	for _, one := range reserved {
		if one.network.Contains(reached) && !r.names(reached, one.network) {
			return &RefusedError{address, one.why}
		}
	}
	ranges, err := r.services.ranges(ctx)
	if err != nil {
		return fmt.Errorf("address %s is not connected to, because which ones are those of Services cannot be read: %w",
			address, err)
	}
	for _, network := range ranges {
		switch {
		case !network.Contains(reached):
		case r.serving:
			return nil
		case !r.names(reached, network):
			return &RefusedError{address, "it is that of a Service of the management cluster"}
		}
	}
	if len(r.allowed) > 0 && !r.names(reached, netip.Prefix{}) {
		return &RefusedError{address, "it is in none of the allowed networks, " + r.String()}
	}
	return nil
}

// names reports whether the operator names a network of the address that lies within another one; the zero one has all
// within it.
func (r *Rules) names(address netip.Addr, within netip.Prefix) bool {
	return slices.ContainsFunc(r.allowed, func(network netip.Prefix) bool {
		return network.Contains(address) && network.Bits() >= within.Bits()
	})
}

// String lists the allowed networks.
func (r *Rules) String() string {
	if r == nil || len(r.allowed) == 0 {
		return "all but reserved ones"
	}
	var all []string
	for _, network := range r.allowed {
		all = append(all, network.String())
	}
	return strings.Join(all, ", ")
}

// reserved networks are nobody's host.
var reserved = slices.Concat(
	reservations("it is the manager's own", "0.0.0.0/8", "::/128", "127.0.0.0/8", "::1/128"),
	reservations("it is link-local", "169.254.0.0/16", "fe80::/10"),
	reservations("it is no single host's", "224.0.0.0/4", "255.255.255.255/32", "ff00::/8"),
	reservations("it leads to an IPv4 address that cannot be known", "64:ff9b:1::/48"), // RFC 8215
	// They give whoever asks the rights of the manager's host.
	reservations("it is a metadata service's", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
		"fd00:ec2::254/128", "fd20:ce::254/128"),
)

type reservation struct {
	network netip.Prefix
	why     string
}

func reservations(why string, networks ...string) []reservation {
	var all []reservation
	for _, network := range networks {
		all = append(all, reservation{netip.MustParsePrefix(network), why})
	}
	return all
}

// embeds are prefixes of IPv6 addresses that lead to the IPv4 address in them, with the place where that begins.
var embeds = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("::/96"), 12},
}

// embedded is the IPv4 address that an IPv6 address leads to, or the address itself.
func embedded(address netip.Addr) netip.Addr {
	if address == netip.IPv6Unspecified() || address == netip.IPv6Loopback() {
		return address
	}
	for _, embed := range embeds {
		if embed.prefix.Contains(address) {
			of := address.As16()
			return netip.AddrFrom4([4]byte(of[embed.at : embed.at+4]))
		}
	}
	return address
}
