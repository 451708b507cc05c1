// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube puts the programs of a Kubernetes node on simulated machines: kubeadm, the kubelet, containerd with ctr
// and crictl, and what package managers say about them. A machine that joins has a Node in a real API server.
//
// What is claimed about the real commands stands in docs/sim.md, and is compared with transcripts of real hosts.
package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// Options of a cluster.
type Options struct {
	// Config reaches the API server that Nodes register with. Nobody registers when nil.
	Config *rest.Config
	// Heartbeat is how often a kubelet renews its Node; never when 0.
	Heartbeat time.Duration
	// Versions that can be installed from bundles.
	Versions []string
	// Runtime is the version of containerd; 2.1.0 when empty.
	Runtime string
	// ControlPlane of the cluster: kubeadm init and join make its members, and Nodes register with its API server instead of
	// Config's. Without it kubeadm init fails with a sentence.
	ControlPlane *ControlPlane
	// OnPhase is called at the beginning of each phase of kubeadm: preflight, kubelet-start, tls-bootstrap, done. A control
	// plane has more of them, see docs/sim.md.
	OnPhase func(m *machine.Machine, verb, phase string)
}

// Cluster is what machines join.
type Cluster struct {
	options Options
	client  kubernetes.Interface

	mu    sync.Mutex
	joins map[*machine.Machine]int
}

// New makes a cluster.
func New(o Options) (*Cluster, error) {
	if o.Runtime == "" {
		o.Runtime = "2.1.0"
	}
	c := &Cluster{options: o, joins: map[*machine.Machine]int{}}
	if o.Config == nil {
		return c, nil
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = -1, 0
	var err error
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reaching the simulated nodes' API server: %w", err)
	}
	return c, nil
}

// Joins counts how often kubeadm join got beyond its preflight on the machine.
func (c *Cluster) Joins(m *machine.Machine) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joins[m]
}

func (c *Cluster) joined(m *machine.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joins[m]++
}

// Image is what every machine of the cluster is made from.
func (c *Cluster) Image() *machine.Image {
	files := map[string]machine.File{}
	for _, version := range c.options.Versions {
		for path, file := range Bundle(version) {
			files[path] = file
		}
	}
	programs := map[string]machine.Program{"ctr": c.ctr, "crictl": c.crictl}
	if c.options.ControlPlane != nil {
		programs["etcdutl"] = c.options.ControlPlane.etcdutl
	}
	return machine.NewImage(machine.Contents{
		Files:       files,
		Programs:    programs,
		Installable: map[string]machine.Program{"kubeadm": c.kubeadm, "kubelet": c.kubelet, "kubectl": kubectl},
	})
}

// versionOf is the version that a program was built as: it stands in its file.
func versionOf(p *machine.Process) string { return strings.TrimSpace(machine.ExecutableText(p.Image)) }

func (c *Cluster) phase(m *machine.Machine, verb, phase string) {
	if c.options.OnPhase != nil {
		c.options.OnPhase(m, verb, phase)
	}
}

func kubectl(_ context.Context, p *machine.Process) int {
	if len(p.Args) > 1 && p.Args[1] == "version" {
		p.Printf("Client Version: %s\n", versionOf(p))
		return 0
	}
	return p.Fail("simulated: only version is known")
}
