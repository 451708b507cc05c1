// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command coredns is CoreDNS with the few plugins that a cluster of the tests
// needs: the full list would drag in the clients of a dozen clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	// Each of these registers itself; which of them answers first is decided
	// by dnsserver.Directives, not by the order here.
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// A directive without its plugin is a start-up error, so the list names
	// only what is compiled in. The order is that of upstream's plugin.cfg.
	dnsserver.Directives = []string{
		"reload", "ready", "health", "prometheus", "errors", "log",
		"loadbalance", "cache", "kubernetes", "loop", "forward",
	}
	coremain.Run()
}
