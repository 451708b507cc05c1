// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func TestAMessageOfSeveralItemsIsCutToTheOneThatSaysMost(t *testing.T) {
	g := NewWithT(t)
	message := "* InfrastructureReady: host-1 is busy\n* NodeHealthy: waiting\n  for a node"

	g.Expect(bullet(message, 0)).To(Equal("InfrastructureReady: host-1 is busy"))
	g.Expect(bullet(message, -1)).To(Equal("NodeHealthy: waiting for a node"))
	g.Expect(bullet("Drain not completed yet:\n* Pod web-1: evicting", 0)).To(Equal("Pod web-1: evicting"))
	g.Expect(bullet("one sentence", -1)).To(Equal("one sentence"))
}

func TestATimelineTellsCauseFromEffect(t *testing.T) {
	g := NewWithT(t)
	line := &Timeline{seen: map[Fact]int{}, notes: map[string]int{"m: DrainingNode: web-1 violates": 3}, alive: map[Fact]bool{}}
	drained, cleaning, gone := Fact{MachineDrained, "m"}, Fact{HostCleaning, "h"}, Fact{NodeGone, "h"}
	line.looks = 1
	line.saw(drained)
	line.looks = 2
	line.saw(cleaning)
	line.saw(drained)

	g.Expect(line.Before(drained, cleaning)).To(Succeed())
	g.Expect(line.Before(cleaning, drained)).To(MatchError(ContainSubstring("host cleaning (h) came after machine drained (m)")))
	g.Expect(line.Before(drained, gone)).To(MatchError(ContainSubstring("never seen")))
	g.Expect(line.Noted("DrainingNode", "web-")).To(BeTrue())
	g.Expect(line.Noted("DrainingNode", "dns-")).To(BeFalse())
}

func TestATimelineTellsAKubeletThatChangesFromOneThatIsReplaced(t *testing.T) {
	g := NewWithT(t)
	line := &Timeline{kubelets: map[string]string{}}
	plane, worker := Node{Name: "h1", UID: "1", Kubelet: "v1.35.4", ControlPlane: true}, Node{Name: "h3", UID: "3", Kubelet: "v1.35.4"}
	line.versions([]Node{plane, worker})
	line.versions([]Node{plane, worker})
	plane.UID, plane.Kubelet = "2", "v1.36.3"
	line.versions([]Node{plane, worker})

	g.Expect(line.KubeletChanges()).To(BeEmpty(), "the same host is another Node")
	g.Expect(line.Mixes()).To(Equal([]string{"control plane v1.35.4; workers v1.35.4", "control plane v1.36.3; workers v1.35.4"}))
	worker.Kubelet = "v1.36.3"
	line.versions([]Node{plane, worker})
	g.Expect(line.KubeletChanges()).To(ConsistOf("node h3: v1.35.4 -> v1.36.3"))
}

func TestJournalsTellWhatPlansTook(t *testing.T) {
	g := NewWithT(t)
	plans := plansOf("h1", "plan provision-1\n1700000010 boot files start\n1700000012 boot files done 0\n1700000031 boot join done 0\n"+
		"plan addons-2\n1700000040 boot images start\n1700000041 boot images done 0\n")
	g.Expect(plans).To(Equal([]Plan{
		{Host: "h1", ID: "provision-1", Began: time.Unix(1700000010, 0), Took: 21 * time.Second,
			Steps: []PlanStep{{"files", time.Unix(1700000012, 0)}, {"join", time.Unix(1700000031, 0)}}},
		{Host: "h1", ID: "addons-2", Began: time.Unix(1700000040, 0), Took: time.Second,
			Steps: []PlanStep{{"images", time.Unix(1700000041, 0)}}},
	}))
	g.Expect(plansOf("h1", "")).To(BeEmpty())
}

// What kustomize does not find it silently leaves alone, so a renamed object in a template would lose its patch.
func TestTheSitesPatchesReachTheTemplates(t *testing.T) {
	for site, template := range map[string]string{"site": "cluster-template.yaml", "site-topology": "cluster-template-topology.yaml"} {
		t.Run(site, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			root := filepath.Join("..", "..", "..")
			g.Expect(os.CopyFS(folder, os.DirFS(filepath.Join(root, "test", "e2e", "data", site)))).To(Succeed())
			content, err := os.ReadFile(filepath.Join(root, "templates", template))
			g.Expect(err).NotTo(HaveOccurred())
			text := os.Expand(string(content), func(string) string { return "demo" })
			g.Expect(os.WriteFile(filepath.Join(folder, "cluster.yaml"), []byte(text), 0o600)).To(Succeed())

			resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)

			g.Expect(err).NotTo(HaveOccurred())
			built, err := resources.AsYaml()
			g.Expect(err).NotTo(HaveOccurred())
			for _, words := range []string{"role: control-plane", "role: worker", "SystemVerification", "maxPerCore", "KubeletConfiguration"} {
				g.Expect(string(built)).To(ContainSubstring(words))
			}
		})
	}
}
