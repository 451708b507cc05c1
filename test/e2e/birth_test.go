//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/page"
)

// Proves: S0-60, S0-64, S0-65, S0-67, S0-68, S0-69
//
// birth is the life of a site that has hosts, files, and no cluster at all, as docs/self-managed.md types it: it is born,
// upgrades its control plane in place and its workers through a bootstrap cluster, and is taken down from a new bootstrap
// cluster.
func birth() {
	spec := lab.Site()
	var site *lab.Cluster
	var desk *lab.Desk
	var guide *typist
	kubeconfig := func(name string) string { return filepath.Join(desk.Folder, "quoin-workspace", spec.Name, name) }

	It("has nothing but hosts and files", func(ctx SpecContext) {
		must(the.lab.AddRacks(ctx))
		desk = need(the.lab.SettleSite(ctx, spec))
		guide = &typist{desk: desk, blocks: need(page.Read(filepath.Join(the.lab.Root, "docs", "self-managed.md")))}
		must(the.lab.ForgetHosts(ctx))
		must(the.lab.RemoveKind(ctx))
	}, NodeTimeout(10*time.Minute))

	It("keeps the bootstrap cluster when the command dies in the middle", func(ctx SpecContext) {
		guide.typeSection(ctx, "Where no registry is")
		guide.before = need(desk.TypeAndKill(ctx, "Creating a cluster, and killing that", 20*time.Minute,
			guide.next("One command").Text, "install the providers on the cluster itself"))
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeTrue())
	}, NodeTimeout(25*time.Minute))

	It("manages itself when the same command was run again, and the bootstrap cluster is gone", func(ctx SpecContext) {
		guide.typeSection(ctx, "One command")
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeFalse())
		must(the.lab.Ask(kubeconfig("kubeconfig")))
		site = need(the.lab.Open(ctx, spec))
		must(site.AwaitReady(ctx, 5*time.Minute, spec.Version, spec.Version))
		hosts := &infrav1.QuoinHostList{}
		Expect(the.lab.Management.List(ctx, hosts, client.InNamespace(lab.Namespace))).To(Succeed())
		Expect(hosts.Items).To(HaveLen(len(the.lab.Hosts)))
		logNodes(ctx, site, "of a cluster that manages itself")
	}, NodeTimeout(25*time.Minute))

	It("grows by itself", func(ctx SpecContext) {
		guide.typeSection(ctx, "More workers")
		site.Workers = 2
		must(site.AwaitReady(ctx, 8*time.Minute, spec.Version, spec.Version))
	}, NodeTimeout(10*time.Minute))

	It("upgrades the control plane that its managers run on, while the leader's own node is drained", func(ctx SpecContext) {
		writer, census, duty := need(site.Write(ctx)), site.Count(ctx), the.lab.Attend(ctx)
		defer writer.Stop()
		defer duty.Stop()
		upgraded := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(upgraded)
			guide.typeSection(ctx, "It upgrades itself")
		}()
		Eventually(func(ctx context.Context) ([]clusterv1.Machine, error) { return site.Machines(ctx) }).WithContext(ctx).
			WithTimeout(10*time.Minute).WithPolling(time.Second).
			Should(ContainElement(HaveField("Spec.Version", lab.NewVersion)), "the first Machine of the new version")
		must(the.lab.DrainLeader(ctx, site, repository.ControlPlaneLabel))
		<-upgraded
		writer.Stop()
		counts := census.Stop()
		webhook, leader := duty.Stop()
		the.lab.Printf("\nDuring the upgrade: %s\n  %+v\n  %s", writer.Report(), counts, duty)
		Expect(need(writer.Lost(ctx))).To(BeEmpty(), "acknowledged keys that are lost")
		Expect(counts.FewestVoters).To(Equal(3))
		By("having had a webhook that answered, and leaders that handed over before their lease of a minute ran out [S0-37]")
		Expect(webhook).To(BeNumerically("<", 15*time.Second), "%s", duty)
		Expect(leader).To(BeNumerically("<", 40*time.Second), "%s", duty)
		must(site.AwaitReady(ctx, 2*time.Minute, lab.NewVersion, lab.OldVersion))
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeFalse(), "in place")
	}, NodeTimeout(40*time.Minute))

	It("is upgraded from a bootstrap cluster, and manages itself again", func(ctx SpecContext) {
		guide.typeSection(ctx, "It is upgraded from outside")
		Expect(need(the.lab.SiteHasBootstrap(ctx))).To(BeFalse())
		must(site.AwaitReady(ctx, 2*time.Minute, lab.NewVersion, lab.NewVersion))
		logNodes(ctx, site, "after both upgrades")
	}, NodeTimeout(40*time.Minute))

	It("is deleted from a new bootstrap cluster, and every host is clean", func(ctx SpecContext) {
		guide.typeSection(ctx, "Taking it down")
		must(the.lab.Ask(kubeconfig("bootstrap.kubeconfig")))
		expectNothingLeft(ctx, site)
		for _, host := range the.lab.Hosts {
			expectClean(ctx, host)
		}
		guide.typeSection(ctx, "What is left")
	}, NodeTimeout(40*time.Minute))

	It("printed all that the page shows", func() {
		Expect(guide.blocks).NotTo(ContainElement(HaveField("Language", "sh")), "commands that nobody typed")
		Expect(guide.unprinted).To(BeEmpty())
	})
}

// typist types a page of docs, section by section.
type typist struct {
	desk *lab.Desk
	// blocks that were not typed yet.
	blocks []page.Block
	// before is what was printed by a block that was killed, and is typed again.
	before string
	// unprinted is what the page shows and no command printed.
	unprinted []string
}

// next is the first block of commands below a heading.
func (t *typist) next(heading string) page.Block {
	GinkgoHelper()
	at := slices.IndexFunc(t.blocks, func(b page.Block) bool { return b.Heading == heading && b.Language == "sh" })
	Expect(at).NotTo(Equal(-1), "commands below %q", heading)
	return t.blocks[at]
}

// typeSection types what stands below a heading, and notes what is shown there and was not printed.
func (t *typist) typeSection(ctx context.Context, heading string) {
	GinkgoHelper()
	t.next(heading)
	printed := ""
	t.blocks = slices.DeleteFunc(t.blocks, func(b page.Block) bool {
		at := fmt.Sprintf("docs/self-managed.md:%d %s", b.Line, heading)
		switch {
		case b.Heading != heading:
			return false
		case b.Language == "sh":
			printed = t.before + need(t.desk.Type(ctx, at, 30*time.Minute, b.Text))
			t.before = ""
			the.lab.Printf("%s", printed)
		case b.Language == "text":
			if line := page.Unprinted(b.Text, printed); line != "" {
				t.unprinted = append(t.unprinted, at+": "+line)
			}
		}
		return true
	})
}
