//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// Proves: S0-67, S0-69
//
// birth is how a site is born that has hosts, files, and no cluster at all.
func birth() {
	spec := lab.Site()
	var site *lab.Cluster

	It("has nothing but hosts and files", func(ctx SpecContext) {
		must(the.lab.LoadManagersOnHosts(ctx))
		must(the.lab.WriteSite(ctx, spec))
		must(the.lab.ForgetHosts(ctx))
		must(the.lab.RemoveKind(ctx))
	}, NodeTimeout(10*time.Minute))

	It("keeps the bootstrap cluster when the command dies in the middle", func(ctx SpecContext) {
		must(the.lab.MakeBootstrap(ctx, spec))
		Expect(need(the.lab.CreateSite(ctx, spec, "install the providers on the cluster itself"))).To(BeTrue(), "killed")
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeTrue())
	}, NodeTimeout(25*time.Minute))

	It("manages itself when the same command was run again, and the bootstrap cluster is gone", func(ctx SpecContext) {
		Expect(need(the.lab.CreateSite(ctx, spec, ""))).To(BeFalse())
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeFalse())
		site = need(the.lab.OpenSite(ctx, spec))
		must(site.AwaitReady(ctx, 5*time.Minute, spec.Version, spec.Version))
		hosts := &infrav1.QuoinHostList{}
		Expect(the.lab.Management.List(ctx, hosts, client.InNamespace(lab.Namespace))).To(Succeed())
		Expect(hosts.Items).To(HaveLen(len(the.lab.Hosts)))
		logNodes(ctx, site, "of a cluster that manages itself")
	}, NodeTimeout(25*time.Minute))

	It("grows by itself", func(ctx SpecContext) {
		must(site.ScaleWorkers(ctx, 2))
		site.Workers = 2
		must(site.AwaitReady(ctx, 8*time.Minute, spec.Version, spec.Version))
	}, NodeTimeout(10*time.Minute))
}
