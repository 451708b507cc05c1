//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs Quoin for real: hosts with systemd and sshd, kubeadm, kubelet, containerd, etcd, stock clusterctl and
// Cluster API's own controllers. `make e2e` runs it.
//
// QUOIN_E2E_KEEP=1 leaves the lab up at the end, for a look; `make quickstart-clean` removes it. QUOIN_E2E_REUSE=1 takes
// the lab that is up as it is, and its first cluster if there is one, for work on single specs (-ginkgo.focus).
package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	format.MaxLength = 20000
	SetDefaultEventuallyTimeout(time.Minute)
	// Else an Eventually with a context waits as long as the whole spec may take.
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(time.Second)
	suite, reporter := GinkgoConfiguration()
	if deadline, ok := t.Deadline(); ok {
		// Ginkgo ends a suite after an hour of its own; the rest is for what a failure says, and for the lab's removal.
		suite.Timeout = time.Until(deadline) - 6*time.Minute
	}
	RunSpecs(t, "End to end", suite, reporter)
}

// the is what the specs share: they tell one story, in order.
var the struct {
	lab   *lab.Lab
	demo  *lab.Cluster
	other *lab.Cluster
	trio  *lab.Cluster
	nodes []lab.Node
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	the.lab, err = lab.New(lab.Options{Root: "../..", Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		if os.Getenv("QUOIN_E2E_KEEP") != "" {
			return nil
		}
		// The engine and the kernel's settings are given back by whoever asked for the run: other runs may need them.
		return the.lab.Remove(ctx, false)
	}, NodeTimeout(5*time.Minute))
	if os.Getenv("QUOIN_E2E_REUSE") != "" {
		must(the.lab.Attach(ctx))
		// Without a first cluster only the specs that make one can run.
		if the.demo, err = the.lab.Open(ctx, lab.Demo()); err == nil {
			the.nodes = need(the.demo.Nodes(ctx))
		}
		if the.trio, err = the.lab.Open(ctx, lab.Trio()); err == nil {
			must(the.lab.AddRacks(ctx))
		}
		return
	}
	if err := the.lab.Up(ctx); err != nil {
		the.lab.Diagnose(context.WithoutCancel(ctx), "setting up the lab")
		Fail(err.Error())
	}
}, NodeTimeout(55*time.Minute))

// A failure is explained while everything still stands.
var _ = JustAfterEach(func(ctx SpecContext) {
	if report := CurrentSpecReport(); report.Failed() {
		the.lab.Diagnose(context.WithoutCancel(ctx), report.LeafNodeText)
	}
}, NodeTimeout(4*time.Minute))

// full is the label of what takes longer than a change can wait for: `make e2e-full`.
const full = "full"

var _ = Describe("Quoin on real hosts", Label(full), Ordered, func() {
	Context("with a control plane of three", func() { trio() })
	Context("with a cluster that manages itself", func() { pivot() })
})

var _ = Describe("Quoin on real hosts", Label("upgrade"), Ordered, func() {
	Context("with a cluster two minors behind", func() { climb() })
})

var _ = Describe("Quoin on real hosts", Label("workers"), Ordered, func() {
	Context("with a policy for workers", func() { workers() })
})

var _ = Describe("Quoin on real hosts", Label("plugin"), Ordered, func() {
	Context("with clusterctl's plugin", func() { birth() })
})

var _ = Describe("Quoin on real hosts", Label("creations"), Ordered, func() {
	Context("with clusters that are made again and again", func() { creations() })
})

var _ = Describe("Quoin on real hosts", Label("topology"), Ordered, func() {
	Context("with a cluster from the ClusterClass", func() { topology() })
})

var _ = Describe("Quoin on real hosts", Label("gaps"), Ordered, func() {
	Context("with a control plane of three that is measured", func() { gaps() })
})

var _ = Describe("Quoin on real hosts", Ordered, func() {
	Context("with a cluster from the template", func() { clusterLife() })
	Context("with hosts that reboot", func() { reboots() })
	Context("with faults while a host is provisioned", func() { faults() })
	Context("with versions that a user edits", func() { upgrades() })
	Context("with input that cannot work", func() { refusals() })
	Context("with the cluster deleted", func() { deletion() })
})

// must turns an error of the lab, which says enough by itself, into a failure.
func must(err error) {
	GinkgoHelper()
	if err != nil {
		Fail(err.Error())
	}
}

// need is must for a value.
func need[T any](value T, err error) T {
	GinkgoHelper()
	must(err)
	return value
}
