//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// Proves: S0-60, S0-64, S0-65, S0-67, S0-68, S0-69
//
// birth is the life of a site that has hosts, files, and no cluster at all, by clusterctl's plugin: it is born, upgrades its
// control plane in place and its workers through a bootstrap cluster, and is taken down from a new bootstrap cluster.
func birth() {
	spec := lab.Site()
	var site *lab.Cluster

	It("has nothing but hosts and files", func(ctx SpecContext) {
		must(the.lab.AddRacks(ctx))
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

	It("upgrades the control plane that its managers run on, while the leader's own node is drained", func(ctx SpecContext) {
		writer, census := need(site.Write(ctx)), site.Count(ctx)
		defer writer.Stop()
		upgraded := make(chan error, 1)
		go func() { upgraded <- the.lab.UpgradeSite(ctx, spec, "--workers", "AsNeeded") }()
		Eventually(func(ctx context.Context) ([]clusterv1.Machine, error) { return site.Machines(ctx) }).WithContext(ctx).
			WithTimeout(10*time.Minute).WithPolling(time.Second).
			Should(ContainElement(HaveField("Spec.Version", lab.NewVersion)), "the first Machine of the new version")
		must(the.lab.DrainLeader(ctx, site, repository.ControlPlaneLabel))
		must(<-upgraded)
		writer.Stop()
		counts := census.Stop()
		the.lab.Printf("\nDuring the upgrade: %s\n  %+v", writer.Report(), counts)
		Expect(need(writer.Lost(ctx))).To(BeEmpty(), "acknowledged keys that are lost")
		Expect(counts.FewestVoters).To(Equal(3))
		must(site.AwaitReady(ctx, 2*time.Minute, lab.NewVersion, lab.OldVersion))
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeFalse(), "in place")
	}, NodeTimeout(40*time.Minute))

	It("is upgraded from a bootstrap cluster, and manages itself again", func(ctx SpecContext) {
		must(the.lab.MakeBootstrap(ctx, spec))
		must(the.lab.UpgradeSiteFromBootstrap(ctx, spec))
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeFalse())
		must(site.AwaitReady(ctx, 2*time.Minute, lab.NewVersion, lab.NewVersion))
		logNodes(ctx, site, "after both upgrades")
	}, NodeTimeout(40*time.Minute))

	It("is deleted from a new bootstrap cluster, and every host is clean", func(ctx SpecContext) {
		must(the.lab.MakeBootstrap(ctx, spec))
		must(the.lab.InitBootstrap(ctx, spec))
		must(the.lab.PivotSiteBack(ctx, spec))
		must(site.Delete(ctx, 15*time.Minute))
		expectNothingLeft(ctx, site)
		must(the.lab.AwaitHosts(ctx, 3*time.Minute, infrav1.HostStateAvailable))
		for _, host := range the.lab.Hosts {
			expectClean(ctx, host)
		}
		must(the.lab.ForgetHosts(ctx))
		must(the.lab.DeleteBootstrap(ctx, spec))
	}, NodeTimeout(40*time.Minute))
}
