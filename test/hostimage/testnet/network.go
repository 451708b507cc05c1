// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	conflist = "/etc/cni/net.d/10-testnet.conflist"
	// routeProtocol marks our routes, so that the ones of nodes that left can
	// be told from everybody else's.
	routeProtocol = "99"
	chain         = "QUOIN-TESTNET"
)

// network is the state of this node's pod network.
type network struct {
	self string
	// run executes a command and returns what it printed.
	run func(name string, arguments ...string) (string, error)
	// masqueraded are the ranges that the chain was last built for.
	masqueraded []string
}

// apply brings configuration, routes and masquerading in line with the nodes.
func (n *network) apply(nodes []node) error {
	var own string
	routes := map[string]string{}
	ranges := []string{}
	for _, node := range nodes {
		if node.PodCIDR == "" || strings.Contains(node.PodCIDR, ":") {
			continue
		}
		ranges = append(ranges, node.PodCIDR)
		switch {
		case node.Name == n.self:
			own = node.PodCIDR
		case node.Address != "":
			routes[node.PodCIDR] = node.Address
		}
	}
	slices.Sort(ranges)
	if own == "" {
		return fmt.Errorf("node %s has no pod range yet", n.self)
	}
	if err := n.route(routes); err != nil {
		return err
	}
	if err := n.masquerade(own, ranges); err != nil {
		return err
	}
	// Last: with the configuration there the node becomes Ready.
	return writeConflist(own)
}

// route makes our routes exactly these.
func (n *network) route(want map[string]string) error {
	have, err := n.run("ip", "-4", "route", "show", "proto", routeProtocol)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(have, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		if _, ok := want[fields[0]]; !ok {
			log.Printf("removing route %s", line)
			if _, err := n.run("ip", "-4", "route", "del", fields[0], "proto", routeProtocol); err != nil {
				return err
			}
		}
	}
	for destination, gateway := range want {
		if strings.Contains(have, destination+" via "+gateway+" ") {
			continue
		}
		log.Printf("route %s via %s", destination, gateway)
		if _, err := n.run("ip", "-4", "route", "replace", destination, "via", gateway, "proto", routeProtocol); err != nil {
			return err
		}
	}
	return nil
}

// masquerade gives the node's address to what pods send to no pod. The chain
// is replaced in one transaction: there is no moment without it.
func (n *network) masquerade(own string, ranges []string) error {
	if slices.Equal(ranges, n.masqueraded) {
		return nil
	}
	rules := []string{"*nat", ":" + chain + " - [0:0]"}
	for _, r := range ranges {
		rules = append(rules, "-A "+chain+" -d "+r+" -j RETURN")
	}
	rules = append(rules, "-A "+chain+" -d 224.0.0.0/4 -j RETURN", "-A "+chain+" -j MASQUERADE", "COMMIT", "")
	restore := exec.Command("iptables-restore", "--wait", "10", "--noflush")
	restore.Stdin = strings.NewReader(strings.Join(rules, "\n"))
	if output, err := restore.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, output)
	}
	jump := []string{"POSTROUTING", "-s", own, "-m", "comment", "--comment", "quoin testnet", "-j", chain}
	if _, err := n.run("iptables", slices.Concat([]string{"--wait", "10", "-t", "nat", "-C"}, jump)...); err != nil {
		if _, err := n.run("iptables", slices.Concat([]string{"--wait", "10", "-t", "nat", "-A"}, jump)...); err != nil {
			return err
		}
	}
	n.masqueraded = ranges
	return nil
}

// writeConflist writes the CNI configuration unless it is there already: the
// container runtime reloads at every write.
func writeConflist(podCIDR string) error {
	want := fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "testnet",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": 1500,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "routes": [{"dst": "0.0.0.0/0"}],
        "ranges": [[{"subnet": %q}]]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, podCIDR)
	if have, err := os.ReadFile(conflist); err == nil && string(have) == want {
		return nil
	}
	log.Printf("pod range %s", podCIDR)
	temporary := filepath.Join(filepath.Dir(conflist), ".testnet.new")
	if err := os.WriteFile(temporary, []byte(want), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, conflist)
}

// command runs a program; an error carries what it printed.
func command(name string, arguments ...string) (string, error) {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return string(output), nil
}
