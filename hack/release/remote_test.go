// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
)

// TestClusterctlReadsUploadedAssets gives clusterctl's own code the assets as a host of releases does: flat, over HTTPS.
func TestClusterctlReadsUploadedAssets(t *testing.T) {
	for base, served := range map[string]string{
		"https://github.com/example/quoin/releases":                                "/example/quoin/releases/download/",
		"https://gitlab.example.com/api/v4/projects/17/packages/generic/providers": "/api/v4/projects/17/packages/generic/providers/",
	} {
		t.Run(base, func(t *testing.T) {
			g := NewWithT(t)
			folder := filepath.Join(t.TempDir(), "dist")
			releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage, url: base})
			serveAssets(t, served, filepath.Join(folder, assetsLabel))
			g.Expect(read(t, folder, "assets/v0.1.0/clusterctl.yaml")).To(Equal(read(t, folder, "clusterctl.yaml")))
			g.Expect(check(filepath.Join(folder, "assets/v0.1.0"))).To(Succeed())

			settings, err := config.New(t.Context(), filepath.Join(folder, "assets/v0.1.0/clusterctl.yaml"))
			g.Expect(err).NotTo(HaveOccurred())
			for kind, file := range map[string]string{
				"InfrastructureProvider": "infrastructure-components.yaml", "ControlPlaneProvider": "control-plane-components.yaml",
			} {
				provider, err := settings.Providers().Get("quoin", clusterctlv1.ProviderType(kind))
				g.Expect(err).NotTo(HaveOccurred())
				client, err := repository.New(t.Context(), provider, settings)
				g.Expect(err).NotTo(HaveOccurred())
				components, err := client.Components().Raw(t.Context(), repository.ComponentsOptions{Version: client.DefaultVersion()})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(components)).To(Equal(read(t, folder, "assets/v0.1.0", file)))
				metadata, err := client.Metadata("v0.1.0").Get(t.Context())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(metadata.ReleaseSeries).NotTo(BeEmpty())
			}
			infrastructure, err := settings.Providers().Get("quoin", "InfrastructureProvider")
			g.Expect(err).NotTo(HaveOccurred())
			client, err := repository.New(t.Context(), infrastructure, settings)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = client.Templates("v0.1.0").Get(t.Context(), "topology", "default", true)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = client.ClusterClasses("v0.1.0").Get(t.Context(), "quoin", "default", true)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// serveAssets answers every request of this process from a folder, so that none leaves it.
func serveAssets(t *testing.T, prefix, folder string) {
	t.Helper()
	files := http.StripPrefix(prefix, http.FileServer(http.Dir(folder)))
	before := http.DefaultTransport
	http.DefaultTransport = roundTripper(func(request *http.Request) (*http.Response, error) {
		recorder := httptest.NewRecorder()
		files.ServeHTTP(recorder, request)
		response := recorder.Result()
		response.Request = request
		return response, nil
	})
	t.Cleanup(func() { http.DefaultTransport = before })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
