// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/gomega"
)

// newRegistry starts a registry on loopback and returns its name.
func newRegistry(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	// Credentials of whoever runs the tests are none of their business.
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(wrap(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func asItIs(handler http.Handler) http.Handler { return handler }

func TestARegistryGetsTheImageOfTheArchive(t *testing.T) {
	g := NewWithT(t)
	image := newRegistry(t, asItIs) + "/quoin/manager"
	folder := filepath.Join(t.TempDir(), "dist")
	printed := releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: image, push: "yes"})

	tag, err := name.NewTag(image + ":v0.1.0")
	g.Expect(err).NotTo(HaveOccurred())
	index, err := remote.Index(tag)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validate.Index(index)).To(Succeed())
	digest, err := index.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(printed).To(ContainSubstring(tag.String() + "@" + digest.String()))
	g.Expect(read(t, folder, "infrastructure-quoin/v0.1.0/infrastructure-components.yaml")).To(ContainSubstring("image: " + tag.String() + "\n"))
	g.Expect(tarNames(t, filepath.Join(folder, "assets/v0.1.0/quoin-manager.tar"))).To(ContainElement("blobs/sha256/" + digest.Hex))

	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		g.Expect(err).NotTo(HaveOccurred())
		config, err := image.ConfigFile()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.Architecture).To(Equal(architecture))
		g.Expect(config.Config.User).To(Equal("65532:65532"))
		g.Expect(config.Config.Entrypoint).To(Equal([]string{"/manager"}))
		path := filepath.Join(t.TempDir(), "manager")
		g.Expect(fakeManager(t.Context(), options{root: checkoutRoot, version: "v0.1.0"}, managerPackage, architecture, path)).To(Succeed())
		g.Expect(program(t, image) == read(t, path)).To(BeTrue(), architecture)
	}
}

func TestATagIsPushedOnce(t *testing.T) {
	g := NewWithT(t)
	image := newRegistry(t, asItIs) + "/quoin/manager"
	folder := filepath.Join(t.TempDir(), "dist")
	a := arguments{root: checkoutRoot, folder: folder, version: "v0.1.0", image: image, push: "yes"}
	releaseInto(t, a)
	releaseInto(t, a)
	tag, err := name.NewTag(image + ":v0.1.0")
	g.Expect(err).NotTo(HaveOccurred())
	before, err := remote.Head(tag)
	g.Expect(err).NotTo(HaveOccurred())
	sums := read(t, folder, "assets/v0.1.0/SHA256SUMS")

	o, err := a.parse()
	g.Expect(err).NotTo(HaveOccurred())
	other := func(ctx context.Context, o options, pkg, architecture, path string) error {
		o.version = "v0.1.0-other"
		return fakeManager(ctx, o, pkg, architecture, path)
	}
	g.Expect(makeRelease(t.Context(), o, other, io.Discard)).To(MatchError(And(
		ContainSubstring("another image"), ContainSubstring(before.Digest.String()), ContainSubstring("choose another VERSION"))))
	after, err := remote.Head(tag)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after.Digest).To(Equal(before.Digest))
	g.Expect(read(t, folder, "assets/v0.1.0/SHA256SUMS")).To(Equal(sums), "nothing was written of what could not be pushed")
}

func TestARegistryThatRefusesLeavesNoRelease(t *testing.T) {
	g := NewWithT(t)
	image := newRegistry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="quoin"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	}) + "/quoin/manager"
	folder := filepath.Join(t.TempDir(), "dist")
	o, err := arguments{root: checkoutRoot, folder: folder, version: "v0.1.0", image: image, push: "yes"}.parse()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(makeRelease(t.Context(), o, fakeManager, io.Discard)).To(MatchError(ContainSubstring("docker login " + o.tag.RegistryStr())))
	g.Expect(folder).NotTo(BeADirectory())
}

// program is the content of /manager in an image of one layer.
func program(t *testing.T, image v1.Image) string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers instead of one: %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	reader := tar.NewReader(content)
	header, err := reader.Next()
	if err != nil || header.Name != "manager" || header.Mode&0o777 != 0o755 || header.Uid != 0 {
		t.Fatalf("not the program: %+v, %v", header, err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func tarNames(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var found []string
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, header.Name)
	}
}
