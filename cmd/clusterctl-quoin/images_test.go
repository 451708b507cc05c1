// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

// clusterctl itself lists, from the components that are installed, what an empty cluster pulls: also where the user's kubeconfig
// leads nowhere, in the versions that are named, and each image once.
func TestImagesAreThoseOfWhatIsInstalled(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	base := filepath.Join(t.TempDir(), "repository")
	images := map[string]string{repository.CoreLabel: "quoin.test/core:c", repository.BootstrapLabel: "quoin.test/kubeadm:k",
		repository.ControlPlaneLabel: "quoin.test/quoin-manager:v0.1.0", repository.InfrastructureLabel: "quoin.test/quoin-manager:v0.1.0"}
	written, err := repository.Write(repository.Options{Root: filepath.Join("..", ".."), Base: base, Mode: repository.Resolved,
		Version: "v0.1.0", Images: images})
	g.Expect(err).NotTo(HaveOccurred())
	for _, p := range written.Providers { // a newer release of ours
		if slices.Contains(repository.OwnLabels(), p.Label) {
			folder := filepath.Dir(p.Components)
			next := filepath.Join(filepath.Dir(folder), "v0.1.1")
			g.Expect(os.CopyFS(next, os.DirFS(folder))).To(Succeed())
			file := filepath.Join(next, filepath.Base(p.Components))
			content, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.WriteFile(file, bytes.ReplaceAll(content, []byte("quoin-manager:v0.1.0"), []byte("quoin-manager:v0.1.1")),
				0o600)).To(Succeed())
		}
	}
	// That repository has the types of cert-manager alone.
	configuration := map[string]any{}
	content, err := os.ReadFile(written.Config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &configuration)).To(Succeed())
	certManager, _ := configuration["cert-manager"].(map[string]any)["url"].(string)
	file, err := os.OpenFile(certManager, os.O_APPEND|os.O_WRONLY, 0)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = file.WriteString("\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w, namespace: cert-manager}\n" +
		"spec: {template: {spec: {containers: [{name: w, image: 'quoin.test/cert-manager-webhook:v1.20.0'}]}}}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Close()).To(Succeed())

	list := func(flags ...string) string {
		var out bytes.Buffer
		root := newRoot(&out)
		root.SetArgs(append([]string{"images", "--clusterctl-config", written.Config}, flags...))
		g.Expect(root.ExecuteContext(t.Context())).To(Succeed())
		return out.String()
	}
	const others = "quoin.test/cert-manager-webhook:v1.20.0\nquoin.test/core:c\nquoin.test/kubeadm:k\n"
	g.Expect(list()).To(Equal(others + "quoin.test/quoin-manager:v0.1.0\n"))
	var listed []string
	g.Expect(json.Unmarshal([]byte(list("--control-plane", "quoin:v0.1.1", "--infrastructure", "quoin:v0.1.1", "-o", "json")),
		&listed)).To(Succeed())
	g.Expect(listed).To(Equal(strings.Fields(others + "quoin.test/quoin-manager:v0.1.1")))
}
