// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keepalived makes the control-plane hosts share the cluster's virtual address by VRRP.
package keepalived

import (
	"context"
	"net/netip"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Config is the same on every control-plane host, but for Interface.
type Config struct {
	// Interface carries the address.
	Interface string
	// VirtualRouterID is 1 to 255 and unique in the broadcast domain.
	VirtualRouterID int
	// Addresses are the virtual addresses; the first one's family is VRRP's own.
	Addresses []netip.Prefix
	// Port of the API server on this host.
	Port int
}

// Validate says why the configuration cannot work.
func (c Config) Validate() error { panic("not yet") }

// Render is the text of keepalived.conf.
func (c Config) Render() (string, error) { panic("not yet") }

// Ownership says what may answer at the virtual address before keepalived starts.
type Ownership struct {
	// ClaimedByUs is true when a member of this very cluster may hold the address. Else it must be silent.
	ClaimedByUs bool
}

// InstallSteps probe the address, write the configuration, enable and start keepalived.
func InstallSteps(c Config, o Ownership) ([]run.Step, error) { panic("not yet") }

// ReleaseSteps stop and disable keepalived, and remove its configuration and the addresses, if they are ours.
func ReleaseSteps(addresses []netip.Prefix) []run.Step { panic("not yet") }

// Probe asks through host whether anything answers at addr (neighbour table, ping) or at its port. The answer is a sentence
// naming who answers, empty when the address is free or held by this host itself.
func Probe(ctx context.Context, host ssh.Host, iface string, addr netip.Addr, port int) (string, error) {
	panic("not yet")
}
