// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/image"
)

var names = []string{"quoin.test/one:v2", "quoin.test/one:v1", "quoin.test/one:v2"}

// TestSameInputSameBytes shows that neither the time nor the owner nor the folder's name reaches an archive: checksums
// change with content only.
func TestSameInputSameBytes(t *testing.T) {
	for kind, archiveOf := range map[string]func(*testing.T, string) []byte{"docker": dockerArchive, "OCI": ociArchive} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			first, second := layer(t, "content"), layer(t, "content")
			g.Expect(os.Chtimes(filepath.Join(second, "program"), time.Now(), time.Now().Add(time.Hour))).To(Succeed())
			g.Expect(sum(archiveOf(t, first))).To(Equal(sum(archiveOf(t, second))))
			g.Expect(sum(archiveOf(t, first))).NotTo(Equal(sum(archiveOf(t, layer(t, "other")))))
			for _, when := range times(t, archiveOf(t, first)) {
				g.Expect(when.Unix()).To(BeZero())
			}
		})
	}
}

// TestADockerArchiveNamesItsImage reads the archive as an import does: by its manifest, every blob by its digest.
func TestADockerArchiveNamesItsImage(t *testing.T) {
	g := NewWithT(t)
	content := dockerArchive(t, layer(t, "content"))
	all := files(t, content)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	g.Expect(json.Unmarshal(all["manifest.json"], &manifest)).To(Succeed())
	g.Expect(manifest).To(HaveLen(1))
	g.Expect(manifest[0].RepoTags).To(ConsistOf("quoin.test/one:v1", "quoin.test/one:v2"))
	g.Expect(manifest[0].Layers).To(HaveLen(1))
	plain := all[manifest[0].Layers[0]]
	g.Expect(manifest[0].Layers[0]).To(Equal(sum(plain)+".tar"), "layers are carried as they are")
	g.Expect(files(t, plain)).To(HaveKeyWithValue("program", []byte("content")))

	var config v1.ConfigFile
	g.Expect(json.Unmarshal(all[manifest[0].Config], &config)).To(Succeed())
	g.Expect(config.RootFS.DiffIDs).To(Equal([]v1.Hash{{Algorithm: "sha256", Hex: sum(plain)}}))
	checkConfig(g, &config)

	file := filepath.Join(t.TempDir(), "image.tar")
	g.Expect(os.WriteFile(file, content, 0o644)).To(Succeed())
	tag, err := name.NewTag("quoin.test/one:v1")
	g.Expect(err).NotTo(HaveOccurred())
	read, err := tarball.ImageFromPath(file, &tag)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validate.Image(read)).To(Succeed())
}

// TestAnOCIArchiveHoldsEveryArchitecture unpacks the archive and follows every digest in it.
func TestAnOCIArchiveHoldsEveryArchitecture(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	for name, content := range files(t, ociArchive(t, layer(t, "content"))) {
		path := filepath.Join(folder, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, content, 0o644)).To(Succeed())
	}
	outer, err := layout.ImageIndexFromPath(folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validate.Index(outer)).To(Succeed())
	listed, err := outer.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed.Manifests).To(HaveLen(1))
	g.Expect(listed.Manifests[0].Annotations).To(Equal(map[string]string{
		"io.containerd.image.name": "quoin.test/one:v1", "org.opencontainers.image.ref.name": "v1",
	}))
	index, err := outer.ImageIndex(listed.Manifests[0].Digest)
	g.Expect(err).NotTo(HaveOccurred())
	inner, err := index.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	architectures := []string{}
	for _, one := range inner.Manifests {
		architectures = append(architectures, one.Platform.OS+"/"+one.Platform.Architecture)
		image, err := index.Image(one.Digest)
		g.Expect(err).NotTo(HaveOccurred())
		config, err := image.ConfigFile()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.Architecture).To(Equal(one.Platform.Architecture))
		checkConfig(g, config)
	}
	g.Expect(architectures).To(Equal([]string{"linux/amd64", "linux/arm64"}))
}

func TestWhatCannotBeAnImageIsRefused(t *testing.T) {
	g := NewWithT(t)
	builder, err := image.NewBuilder()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(builder.Close()).To(Succeed()) }()
	_, err = builder.Docker(image.Options{}, filepath.Join(t.TempDir(), "missing"))
	g.Expect(err).To(MatchError(ContainSubstring("missing")))
	made, err := builder.Docker(image.Options{}, layer(t, "content"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(image.WriteDocker(filepath.Join(t.TempDir(), "image.tar"), made, "no-registry:v1")).
		To(MatchError(ContainSubstring("no-registry:v1")))
}

var options = image.Options{
	Architecture: "amd64", Entrypoint: []string{"/program"}, Environment: []string{"A=b"}, User: "65532:65532",
	Labels: map[string]string{"key": "value"},
}

func checkConfig(g Gomega, config *v1.ConfigFile) {
	g.Expect(config.OS).To(Equal("linux"))
	g.Expect(config.Config.Entrypoint).To(Equal([]string{"/program"}))
	g.Expect(config.Config.Env).To(Equal([]string{"A=b"}))
	g.Expect(config.Config.User).To(Equal("65532:65532"))
	g.Expect(config.Config.Labels).To(HaveKeyWithValue("key", "value"))
	g.Expect(config.Created.Unix()).To(BeZero())
}

func layer(t *testing.T, content string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "program"), []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("program", filepath.Join(folder, "alias")); err != nil {
		t.Fatal(err)
	}
	return folder
}

func dockerArchive(t *testing.T, folder string) []byte {
	return written(t, func(builder *image.Builder, file string) error {
		made, err := builder.Docker(options, folder)
		if err != nil {
			return err
		}
		return image.WriteDocker(file, made, names...)
	})
}

func ociArchive(t *testing.T, folder string) []byte {
	return written(t, func(builder *image.Builder, file string) error {
		var images []v1.Image
		for _, architecture := range []string{"amd64", "arm64"} {
			one := options
			one.Architecture = architecture
			made, err := builder.OCI(one, folder)
			if err != nil {
				return err
			}
			images = append(images, made)
		}
		index, err := image.Index(images...)
		if err != nil {
			return err
		}
		tag, err := name.NewTag("quoin.test/one:v1")
		if err != nil {
			return err
		}
		return builder.WriteOCI(file, index, tag)
	})
}

func written(t *testing.T, write func(*image.Builder, string) error) []byte {
	t.Helper()
	builder, err := image.NewBuilder()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = builder.Close() }()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := write(builder, file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// files of an archive, by their names.
func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	each(t, archive, func(header *tar.Header, content []byte) {
		if header.Typeflag == tar.TypeReg {
			found[header.Name] = content
		}
	})
	return found
}

// times in the headers of an archive.
func times(t *testing.T, archive []byte) []time.Time {
	t.Helper()
	var found []time.Time
	each(t, archive, func(header *tar.Header, _ []byte) { found = append(found, header.ModTime) })
	return found
}

func each(t *testing.T, archive []byte, do func(*tar.Header, []byte)) {
	t.Helper()
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		do(header, content)
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
