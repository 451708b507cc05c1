// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testnet is the pod network of the tests, as small as one can be: it
// runs on every node, and where all nodes share one link it is enough.
//
//   - A node's own pod range becomes a CNI configuration (ptp with host-local
//     addresses, portmap).
//   - Every other node's pod range becomes a route through that node.
//   - What leaves for somewhere that is no pod gets the node's address.
//
// It asks the API server by the address in the kubelet's own kubeconfig and
// not by the Service: kube-proxy may come later than the network.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// pause is the wait after something failed. Nodes come and go by the minute,
// an API server that restarts is back within seconds.
const pause = 2 * time.Second

func main() {
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	self := os.Getenv("NODE_NAME")
	if self == "" {
		log.Fatal("NODE_NAME must name the node that this runs on") //nolint:gocritic // the process ends, and its signal handler with it
	}
	network := &network{self: self, run: command}
	for ctx.Err() == nil {
		if err := follow(ctx, network); err != nil && ctx.Err() == nil {
			log.Print(err)
			sleep(ctx, pause)
		}
	}
}

// follow brings the node in line with the list of nodes, once now and again
// whenever a node changes.
func follow(ctx context.Context, network *network) error {
	client, err := newClient()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		nodes, revision, err := client.list(ctx)
		if err != nil {
			return err
		}
		if err := network.apply(nodes); err != nil {
			return err
		}
		if err := client.waitForChange(ctx, revision); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
