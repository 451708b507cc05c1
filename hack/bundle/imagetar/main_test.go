// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestSameInputSameBytes shows that neither the time nor the owner nor the
// folder's name reaches the image: checksums change with content only.
func TestSameInputSameBytes(t *testing.T) {
	g := NewWithT(t)
	first, second := layer(t), layer(t)
	g.Expect(os.Chtimes(filepath.Join(second, "program"), time.Now(), time.Now().Add(time.Hour))).To(Succeed())
	g.Expect(archiveOf(t, first)).To(Equal(archiveOf(t, second)))
}

// TestManifestTiesTogether shows that the archive names its image, and that
// every digest it speaks of is that of a file in it.
func TestManifestTiesTogether(t *testing.T) {
	g := NewWithT(t)
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archiveOf(t, layer(t))))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		files[header.Name], err = io.ReadAll(reader)
		g.Expect(err).NotTo(HaveOccurred())
	}

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	g.Expect(json.Unmarshal(files["manifest.json"], &manifest)).To(Succeed())
	g.Expect(manifest).To(HaveLen(1))
	g.Expect(manifest[0].RepoTags).To(Equal([]string{"quoin.test/a:v1", "quoin.test/a:v2"}))
	g.Expect(files).To(HaveKey(manifest[0].Layers[0]))

	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	g.Expect(json.Unmarshal(files[manifest[0].Config], &config)).To(Succeed())
	g.Expect(config.Config.Entrypoint).To(Equal([]string{"/program"}))
	g.Expect(config.RootFS.DiffIDs).To(HaveLen(1))
	g.Expect(config.RootFS.DiffIDs[0] + ".tar").To(Equal("sha256:" + manifest[0].Layers[0]))
}

func layer(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "program"), []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("program", filepath.Join(folder, "alias")); err != nil {
		t.Fatal(err)
	}
	return folder
}

func archiveOf(t *testing.T, folder string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	i := image{names: []string{"quoin.test/a:v1", "quoin.test/a:v2"}, entrypoint: []string{"/program"}, layers: []string{folder}}
	if err := i.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
