// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	. "github.com/onsi/gomega"
)

// What the list says of the programs is compared with those that are in the image, and what it says of their modules
// with go.sum.
func TestTheListOfModulesIsThatOfTheProgramsInTheImage(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "dist")
	releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	list := cyclonedx.NewBOM()
	text := read(t, folder, "assets/v0.1.0", sbomName)
	g.Expect(cyclonedx.NewBOMDecoder(strings.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(list)).To(Succeed())
	g.Expect(list.Metadata.Component.Version).To(Equal("v0.1.0"))
	said := map[string]string{}
	for _, one := range *list.Components {
		said[one.BOMRef] = ""
		if one.Hashes != nil {
			said[one.BOMRef] = (*one.Hashes)[0].Value
		}
	}
	programs := programsOf(t, filepath.Join(folder, "assets/v0.1.0", archiveName))
	g.Expect(programs).To(HaveLen(len(architectures)))
	for _, architecture := range architectures {
		g.Expect(programs).To(ContainElement(said["manager-linux-"+architecture]))
		plugin := "clusterctl-quoin-linux-" + architecture
		g.Expect(checksum(filepath.Join(folder, "assets/v0.1.0", plugin))).To(Equal(said[plugin]))
	}
	info, _ := debug.ReadBuildInfo()
	g.Expect(said).To(HaveKey("pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")))
	modules := 0
	for _, module := range info.Deps {
		if module.Path == "github.com/spf13/pflag" {
			modules++
			sum, err := ofModule(module)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(said).To(HaveKeyWithValue("pkg:golang/github.com/spf13/pflag@"+module.Version, (*sum.Hashes)[0].Value))
		}
	}
	g.Expect(modules).To(Equal(1))
	g.Expect(said).To(HaveLen(2*len(architectures)+2), "two programs, the standard library and one module")
}

// programsOf are the checksums of the programs in an archive of images.
func programsOf(t *testing.T, archive string) []string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var found []string
	eachFile(t, file, func(_ string, blob []byte) {
		layer, err := gzip.NewReader(bytes.NewReader(blob))
		if err != nil {
			return
		}
		eachFile(t, layer, func(name string, content []byte) {
			if strings.TrimPrefix(name, "/") == "manager" {
				sum := sha256.Sum256(content)
				found = append(found, hex.EncodeToString(sum[:]))
			}
		})
	})
	return found
}

func eachFile(t *testing.T, archive io.Reader, do func(name string, content []byte)) {
	t.Helper()
	for reader := tar.NewReader(archive); ; {
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
		if header.Typeflag == tar.TypeReg {
			do(header.Name, content)
		}
	}
}

func TestAModuleOfAFolderIsNoRelease(t *testing.T) {
	g := NewWithT(t)
	_, err := ofModule(&debug.Module{Path: "example.com/x", Version: "v1.0.0", Replace: &debug.Module{Path: "../x"}})
	g.Expect(err).To(MatchError(ContainSubstring("module ../x comes from a folder")))
	replaced, err := ofModule(&debug.Module{Path: "example.com/x", Version: "v1.0.0",
		Replace: &debug.Module{Path: "example.com/y", Version: "v1.0.1", Sum: "h1:AAAA"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(replaced.PackageURL).To(Equal("pkg:golang/example.com/y@v1.0.1"))
	_, err = ofModule(&debug.Module{Path: "example.com/x", Version: "v1.0.0", Sum: "h1:?"})
	g.Expect(err).To(MatchError(ContainSubstring("checksum h1:? of module example.com/x")))
}

func TestWhatIsNoProgramOfGoIsRefused(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "manager")
	g.Expect(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755)).To(Succeed())
	_, err := sbom("v0.1.0", []builtProgram{{name: "manager-linux-amd64", path: path}})
	g.Expect(err).To(MatchError(ContainSubstring("modules of manager-linux-amd64")))
}

// The manager itself, compiled in two checkouts.
func TestTwoFoldersGiveOneManager(t *testing.T) {
	g := NewWithT(t)
	files, err := exec.CommandContext(t.Context(), "git", "-C", checkoutRoot, "ls-files", "-z").Output()
	if err != nil {
		t.Skip("this is no checkout of git")
	}
	sums := map[string]string{}
	for _, name := range []string{"first", "the second"} {
		root := filepath.Join(t.TempDir(), name)
		for file := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
			content, err := os.ReadFile(filepath.Join(checkoutRoot, file))
			if os.IsNotExist(err) {
				continue
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(root, file), content, 0o644)).To(Succeed())
		}
		path := filepath.Join(root, "manager")
		g.Expect(buildProgram(t.Context(), options{root: root, version: "v0.1.0"}, managerPackage, "amd64", path)).To(Succeed())
		sums[name], err = checksum(path)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(sums["first"]).To(Equal(sums["the second"]))
}
