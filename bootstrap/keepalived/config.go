// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keepalived makes the control-plane hosts share the cluster's virtual address by VRRP.
package keepalived

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
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

const (
	confPath  = "/etc/keepalived/keepalived.conf"
	checkPath = "/etc/keepalived/quoin-check-apiserver"
	// mark is the first line of what we write; a configuration without it belongs to somebody else.
	mark = "# Written by Quoin. Do not edit: cleaning the host removes this file."
	// priority is the same everywhere. A host whose API server is healthy gains weight, and one that stays gains less: the
	// address follows health first, leaves a host before that leaves the control plane, and does not move back and forth
	// between equals.
	priority      = 100
	weightHealthy = 50
	weightStays   = 20
)

var interfaceName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)

// Validate says why the configuration cannot work.
func (c Config) Validate() error {
	switch {
	case !interfaceName.MatchString(c.Interface):
		return fmt.Errorf("interface %q is not the name of a network interface", c.Interface)
	case c.VirtualRouterID < 1 || c.VirtualRouterID > 255:
		return fmt.Errorf("virtual router ID %d is not between 1 and 255", c.VirtualRouterID)
	case len(c.Addresses) == 0:
		return errors.New("keepalived needs at least one virtual address")
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("port %d is not between 1 and 65535", c.Port)
	}
	for _, address := range c.Addresses {
		if !address.IsValid() || address.Addr().IsUnspecified() || address.Addr().IsLoopback() || address.Addr().
			IsMulticast() {
			return fmt.Errorf("%s cannot be a virtual address", address)
		}
	}
	return nil
}

// Render is the text of keepalived.conf. Equals that take over at the same moment both announce the address, and the
// one that yields may be heard last: who stays announces it again a second later, where keepalived would wait for five.
func (c Config) Render() (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	var own, other strings.Builder
	for _, address := range c.Addresses {
		line := fmt.Sprintf("    %s dev %s\n", address, c.Interface)
		// One VRRP instance speaks one family; addresses of the other one ride along.
		if address.Addr().Is4() == c.Addresses[0].Addr().Is4() {
			own.WriteString(line)
		} else {
			other.WriteString(line)
		}
	}
	excluded := ""
	if other.Len() > 0 {
		excluded = "  virtual_ipaddress_excluded {\n" + other.String() + "  }\n"
	}
	return fmt.Sprintf(`%s
global_defs {
  script_user root
  enable_script_security
}

vrrp_script quoin_apiserver {
  script "%s"
  interval 2
  timeout 4
  fall 2
  rise 2
  weight %d
  init_fail
}

vrrp_script quoin_stays {
  script "/usr/bin/test ! -e %s"
  interval 2
  fall 1
  rise 1
  weight %d
}

vrrp_instance quoin {
  state BACKUP
  interface %s
  virtual_router_id %d
  priority %d
  advert_int 1
  garp_master_delay 1
  garp_master_refresh 60
  garp_lower_prio_delay 1
  track_script {
    quoin_apiserver
    quoin_stays
  }
  virtual_ipaddress {
%s  }
%s}
`, mark, checkPath, weightHealthy, leavingPath, weightStays, c.Interface, c.VirtualRouterID, priority, own.String(),
		excluded), nil
}

// checkScript succeeds when this host's API server answers that it lives. Without anonymous requests
// (--anonymous-auth=false, or an AuthenticationConfiguration that leaves /livez out) it answers 401 or 403 to everybody
// who brings no credentials, and so do we: it serves then all the same. A server that is unwell says 500. Without curl
// an open port must do.
func (c Config) checkScript() string {
	return fmt.Sprintf(`#!/bin/sh
%s
if command -v curl >/dev/null; then
	code=$(curl -q --noproxy '*' --silent --insecure --max-time 3 --output /dev/null --write-out '%%{http_code}' \
		https://127.0.0.1:%d/livez)
	case $code in 200 | 401 | 403) exit 0 ;; esac
	exit 1
fi
exec grep -qi '^ *[0-9]*: [0-9A-F]*:%04X [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6
`, mark, c.Port, c.Port)
}
