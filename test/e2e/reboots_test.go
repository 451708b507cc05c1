//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// reboots restarts hosts that are nodes.
func reboots() {
	It("brings them back as the same nodes, and a restarted manager does not bootstrap them again", func(ctx SpecContext) {
		worker := need(the.lab.Host(firstWorker()))
		plane, _ := controlPlaneNode(ctx)
		for _, host := range []*lab.Host{worker, need(the.lab.Host(plane.Name))} {
			before := nodeNamed(ctx, host.Name)
			runs := need(the.lab.OnHost(ctx, host, "ls /var/lib/quoin/runs"))
			calls := need(the.lab.OnHost(ctx, host, "cat /var/log/kubeadm-calls"))

			must(the.lab.Reboot(ctx, host))
			must(the.lab.Restart(ctx, repository.InfrastructureLabel))
			must(the.demo.AwaitReady(ctx, 5*time.Minute, lab.OldVersion, lab.OldVersion))
			must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateProvisioned, host))

			// The Node is called Ready until its lease runs out, whether its host runs or not.
			Eventually(func(ctx context.Context) string { return nodeNamed(ctx, host.Name).BootID }).WithContext(ctx).
				WithTimeout(3*time.Minute).ShouldNot(Equal(before.BootID), "the host did boot, and its kubelet says so")
			must(the.demo.AwaitReady(ctx, 5*time.Minute, lab.OldVersion, lab.OldVersion))
			after := nodeNamed(ctx, host.Name)
			Expect(after.UID).To(Equal(before.UID), "node %s is the same object", host.Name)
			Expect(after.ProviderID).To(Equal(before.ProviderID))
			// The manager had its time: the host's object is settled, and nothing new was started on the host.
			Expect(need(the.lab.OnHost(ctx, host, "ls /var/lib/quoin/runs"))).To(Equal(runs))
			Expect(need(the.lab.OnHost(ctx, host, "cat /var/log/kubeadm-calls"))).To(Equal(calls))
			Eventually(func(ctx context.Context) string {
				return condition(quoinHost(ctx, host.Name).Status.Conditions, infrav1.HostReadyCondition)
			}).WithContext(ctx).Should(HavePrefix("Ready=True"))
		}
		expectWeb(ctx, the.demo)
	}, NodeTimeout(14*time.Minute))
}

func firstWorker() string {
	for _, node := range the.nodes {
		if !node.ControlPlane {
			return node.Name
		}
	}
	Fail("the cluster has no worker")
	return ""
}

// nodeNamed is a node of the first cluster.
func nodeNamed(ctx context.Context, name string) lab.Node {
	GinkgoHelper()
	for _, one := range need(the.demo.Nodes(ctx)) {
		if one.Name == name {
			return one
		}
	}
	Fail("no node " + name)
	return lab.Node{}
}
