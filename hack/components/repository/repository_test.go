// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const ownOverlay = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: system}
spec: {template: {spec: {containers: [{name: manager, image: "controller:latest"}]}}}
`

// ownCheckout is a checkout with nothing but what our own providers are made from.
func ownCheckout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"metadata.yaml": "releaseSeries:\n- {major: 0, minor: 2, contract: v1beta2}\n- {major: 0, minor: 10, contract: v1beta2}\n",
		"config/infrastructure-quoin/manager.yaml":       ownOverlay,
		"config/control-plane-quoin/manager.yaml":        ownOverlay,
		"templates/cluster-template.yaml":                "kind: Cluster\n",
		"templates/clusterclass-quick-start.yaml":        "kind: ClusterClass\n",
		"templates/README.md":                            "not for clusterctl",
		"config/infrastructure-quoin/kustomization.yaml": "resources: [manager.yaml]\n",
		"config/control-plane-quoin/kustomization.yaml":  "resources: [manager.yaml]\n",
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRepositoryHasTheLayoutThatClusterctlInsistsOn(t *testing.T) {
	g := NewWithT(t)
	base := filepath.Join(t.TempDir(), "repository")
	written, err := Write(Options{
		Root: ownCheckout(t), Base: base, Mode: Standard, Providers: OwnLabels(),
		Images:    map[string]string{InfrastructureLabel: "quoin.test/quoin-manager:dev"},
		Variables: map[string]string{"CLUSTER_TOPOLOGY": "true"},
	})
	g.Expect(err).NotTo(HaveOccurred())

	// The tenth minor is newer than the second.
	folder := filepath.Join(base, "infrastructure-quoin", "v0.10.0")
	names := []string{}
	entries, err := os.ReadDir(folder)
	g.Expect(err).NotTo(HaveOccurred())
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	g.Expect(names).To(ConsistOf(
		"infrastructure-components.yaml", "metadata.yaml", "cluster-template.yaml", "clusterclass-quick-start.yaml"))
	components, err := os.ReadFile(filepath.Join(folder, "infrastructure-components.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(components)).To(ContainSubstring("image: quoin.test/quoin-manager:dev"))

	var config struct {
		Providers []struct{ Name, Type, URL string }
		Topology  string `json:"CLUSTER_TOPOLOGY"`
	}
	content, err := os.ReadFile(written.Config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &config)).To(Succeed())
	g.Expect(config.Topology).To(Equal("true"))
	g.Expect(config.Providers).To(HaveLen(2))
	g.Expect(config.Providers[1].Type).To(Equal("InfrastructureProvider"))
	g.Expect(config.Providers[1].URL).To(Equal(filepath.Join(folder, "infrastructure-components.yaml")))
	g.Expect(filepath.IsAbs(config.Providers[1].URL)).To(BeTrue())
}

func TestOnlyARepositoryIsReplaced(t *testing.T) {
	g := NewWithT(t)
	options := Options{Root: ownCheckout(t), Base: t.TempDir(), Mode: Standard, Providers: OwnLabels()}
	precious := filepath.Join(options.Base, "precious")
	g.Expect(os.WriteFile(precious, nil, 0o644)).To(Succeed())
	_, err := Write(options)
	g.Expect(err).To(MatchError(ContainSubstring("not replaced")))
	g.Expect(precious).To(BeAnExistingFile())

	options.Base = filepath.Join(t.TempDir(), "repository")
	for range 2 {
		_, err = Write(options)
		g.Expect(err).NotTo(HaveOccurred())
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(options.Base), ".*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestOptionsAreCheckedBeforeAnythingIsWritten(t *testing.T) {
	g := NewWithT(t)
	for _, options := range []Options{
		{Mode: "other"},
		{Mode: Standard, Providers: []string{"infrastructure-other"}},
		{Mode: Standard, Images: map[string]string{"quoin": "x"}},
		{Mode: Envtest, WebhookPorts: map[string]int{CoreLabel: 1}},
	} {
		_, err := Write(options)
		g.Expect(err).To(HaveOccurred())
	}
}
