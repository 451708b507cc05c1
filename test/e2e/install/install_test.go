//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// hosts of the site: two in use, a spare one for each of the upgrade's halves.
const hosts = 3

// TestInstall types what docs/install.md says, block by block, and provides what the page leaves to its reader.
func TestInstall(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	l, err := lab.New(lab.Options{Root: root, State: filepath.Join(root, "_artifacts", "install"), Out: os.Stdout})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		cleanup, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if t.Failed() {
			l.Diagnose(cleanup, t.Name())
		}
		if os.Getenv("QUOIN_E2E_KEEP") != "" {
			return
		}
		if err := l.Remove(cleanup, false); err != nil {
			t.Error(err)
		}
	})
	g.Expect(l.UpBare(ctx, hosts)).To(Succeed())
	desk, err := l.NewDesk(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)

	site := &site{lab: l, desk: desk, image: strings.TrimPrefix(server.URL, "http://") + "/quoin/manager"}
	g.Expect(site.files()).To(Succeed())
	// What happens at the reader's site between the blocks; a heading that the page lost is an error.
	before := map[string]func(context.Context) error{
		"The image reaches the management cluster": site.mirrorClusterAPI,
		"cert-manager": site.certManager,
	}
	checks := map[string]func(context.Context, Gomega){
		"The image reaches the management cluster": site.checkImage,
		"Cluster API and Quoin":                    site.checkManagers("v0.1.0"),
		"The first cluster":                        site.checkNodes(lab.OldVersion),
		"An upgrade":                               site.checkNodes(lab.NewVersion),
		"A newer Quoin":                            site.checkManagers("v0.1.1"),
		"Back to the earlier Quoin":                site.checkManagers("v0.1.0"),
		"Going back":                               site.checkHosts,
	}
	// What is watched while the blocks of a heading are typed.
	during := map[string]func(context.Context, Gomega) func(){
		"A newer Quoin": site.watchGuard, "Back to the earlier Quoin": site.watchGuard,
	}
	// What is under way on the hosts while clusterctl replaces the providers.
	midway := map[string]func(context.Context, Gomega) *replacing{
		"A newer Quoin": site.replaceControlPlane, "Back to the earlier Quoin": site.replaceWorker,
	}
	heading, watched := "", func() {}
	var begun *replacing
	leave := func() {
		watched()
		watched = func() {}
		if begun != nil {
			begun.goesOn(ctx, g)
			begun = nil
		}
		if check := checks[heading]; check != nil {
			check(ctx, g)
			delete(checks, heading)
		}
	}
	for _, block := range read(t, "install.md") {
		if block.Language != "sh" {
			continue
		}
		if block.Heading != heading {
			leave()
			heading = block.Heading
			if prepare := before[heading]; prepare != nil {
				g.Expect(prepare(ctx)).To(Succeed())
				delete(before, heading)
			}
			if watch := during[heading]; watch != nil {
				watched = watch(ctx, g)
				delete(during, heading)
			}
		}
		if begin := midway[heading]; begin != nil && strings.HasPrefix(block.Text, "clusterctl upgrade apply") {
			begun = begin(ctx, g)
			delete(midway, heading)
		}
		out, err := desk.Type(ctx, fmt.Sprintf("docs/install.md:%d %s", block.Line, heading), 30*time.Minute, block.Text)
		g.Expect(err).NotTo(HaveOccurred(), block.Text)
		fmt.Print(indented(out))
	}
	leave()
	g.Expect(before).To(BeEmpty(), "headings that the page has no more")
	g.Expect(during).To(BeEmpty(), "headings that the page has no more")
	g.Expect(midway).To(BeEmpty(), "headings that the page has no more, or blocks that begin otherwise")
	g.Expect(checks).To(BeEmpty(), "headings that the page has no more")
}

func indented(text string) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return "     | " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n     | ") + "\n"
}

// checkImage finds what was pushed in the registry, and what was imported on the node that ssh reaches.
func (s *site) checkImage(ctx context.Context, g Gomega) {
	tag, err := name.NewTag(s.image + ":v0.1.0")
	g.Expect(err).NotTo(HaveOccurred())
	pushed, err := remote.Head(tag, remote.WithContext(ctx))
	g.Expect(err).NotTo(HaveOccurred())
	listed, err := s.lab.OnHost(ctx, s.lab.Hosts[hosts-1], "ctr --namespace k8s.io images ls")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed).To(MatchRegexp(`(?m)^%s .*%s`, tag.String(), pushed.Digest.String()))
}

// checkManagers sees that both managers that run of each provider are of a release, by what they say themselves.
func (s *site) checkManagers(version string) func(context.Context, Gomega) {
	return func(ctx context.Context, g Gomega) {
		for _, provider := range []string{repository.InfrastructureLabel, repository.ControlPlaneLabel} {
			// The pods before an upgrade take their time to go.
			g.Eventually(func(g Gomega) {
				pods, err := s.lab.Pods(ctx, provider)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(pods).To(HaveLen(2))
				for _, pod := range pods {
					g.Expect(pod.Spec.Containers[0].Image).To(Equal(s.image + ":" + version))
					log, err := s.lab.Kubectl(ctx, s.lab.Kubeconfig(), "logs", "--namespace", pod.Namespace, pod.Name)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(log).To(ContainSubstring("quoin " + version + " ("))
				}
			}).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Succeed())
		}
	}
}

// checkNodes sees a control plane and a worker, ready and of a version.
func (s *site) checkNodes(version string) func(context.Context, Gomega) {
	return func(ctx context.Context, g Gomega) {
		cluster, err := s.lab.Open(ctx, lab.ClusterSpec{Name: "first"})
		g.Expect(err).NotTo(HaveOccurred())
		// A host that left may be listed a moment longer.
		g.Eventually(func(g Gomega) {
			nodes := &corev1.NodeList{}
			g.Expect(cluster.Client.List(ctx, nodes)).To(Succeed())
			g.Expect(nodes.Items).To(HaveLen(2))
			for _, node := range nodes.Items {
				g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(version), node.Name)
				g.Expect(node.Status.Conditions).To(ContainElement(
					And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))), node.Name)
			}
		}).WithTimeout(3 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
	}
}

// checkHosts sees every host free again.
func (s *site) checkHosts(ctx context.Context, g Gomega) {
	g.Expect(s.lab.AwaitHosts(ctx, time.Minute, infrav1.HostStateAvailable)).To(Succeed())
}
