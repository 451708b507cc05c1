// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

const (
	checkoutRoot = "../.."
	testImage    = "registry.example.com/quoin/manager"
)

// fakeManager stands for each program: it is compiled in a moment.
func fakeManager(ctx context.Context, o options, pkg, architecture, path string) error {
	return compile(ctx, o.root, "./hack/release/testdata/program", "-X main.version="+o.version+pkg, architecture, path)
}

// releaseInto makes a release with a manager that needs no compiler, and returns what was printed.
func releaseInto(t *testing.T, a arguments) string {
	t.Helper()
	var out bytes.Buffer
	a.root = checkoutRoot
	o, err := a.parse()
	if err == nil {
		err = makeRelease(t.Context(), o, fakeManager, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAReleaseHasWhatClusterctlAndAPersonNeed(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "dist")
	printed := releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	g.Expect(names(t, folder)).To(ConsistOf(
		"clusterctl.yaml",
		"assets/v0.1.0/SHA256SUMS", "assets/v0.1.0/quoin-manager.tar", "assets/v0.1.0/quoin.cdx.json",
		"assets/v0.1.0/clusterctl-quoin-linux-amd64", "assets/v0.1.0/clusterctl-quoin-linux-arm64",
		"assets/v0.1.0/metadata.yaml",
		"assets/v0.1.0/infrastructure-components.yaml", "assets/v0.1.0/control-plane-components.yaml",
		"assets/v0.1.0/cluster-template.yaml", "assets/v0.1.0/cluster-template-topology.yaml",
		"assets/v0.1.0/cluster-template-topology-network-plugin.yaml", "assets/v0.1.0/clusterclass-quoin.yaml",
		"control-plane-quoin/v0.1.0/SHA256SUMS", "control-plane-quoin/v0.1.0/metadata.yaml",
		"control-plane-quoin/v0.1.0/control-plane-components.yaml",
		"infrastructure-quoin/v0.1.0/SHA256SUMS", "infrastructure-quoin/v0.1.0/metadata.yaml",
		"infrastructure-quoin/v0.1.0/infrastructure-components.yaml",
		"infrastructure-quoin/v0.1.0/cluster-template.yaml", "infrastructure-quoin/v0.1.0/cluster-template-topology.yaml",
		"infrastructure-quoin/v0.1.0/cluster-template-topology-network-plugin.yaml",
		"infrastructure-quoin/v0.1.0/clusterclass-quoin.yaml",
	))
	for _, path := range []string{"infrastructure-quoin/v0.1.0/infrastructure-components.yaml", "assets/v0.1.0/control-plane-components.yaml"} {
		g.Expect(read(t, folder, path)).To(ContainSubstring("image: " + testImage + ":v0.1.0\n"))
	}
	g.Expect(printed).To(ContainSubstring(testImage + ":v0.1.0"))
	g.Expect(printed).To(ContainSubstring(filepath.Join(folder, "clusterctl.yaml")))

	for _, label := range []string{"assets", "control-plane-quoin", "infrastructure-quoin"} {
		version := filepath.Join(folder, label, "v0.1.0")
		g.Expect(check(version)).To(Succeed())
		// Each file is on the list, but the list.
		g.Expect(strings.Count(read(t, version, "SHA256SUMS"), "\n")).To(Equal(len(names(t, version)) - 1))
		g.Expect(os.WriteFile(filepath.Join(version, "metadata.yaml"), []byte("another"), 0o644)).To(Succeed())
		g.Expect(check(version)).NotTo(Succeed())
	}
}

// TestTheSameCommitGivesTheSameBytes releases twice, at other places, under another umask.
func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	g := NewWithT(t)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	releaseInto(t, arguments{folder: first, version: "v0.1.0", image: testImage})
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	releaseInto(t, arguments{folder: second, version: "v0.1.0", image: testImage})
	g.Expect(read(t, second, "assets/v0.1.0/SHA256SUMS")).To(Equal(read(t, first, "assets/v0.1.0/SHA256SUMS")))
	g.Expect(read(t, second, "clusterctl.yaml")).NotTo(Equal(read(t, first, "clusterctl.yaml")), "it names its folder")
}

func TestAReleaseReplacesItsVersionAndNoOther(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "dist")
	releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	sums := read(t, folder, "assets/v0.1.0/SHA256SUMS")
	g.Expect(os.WriteFile(filepath.Join(folder, "assets/v0.1.0/old"), nil, 0o644)).To(Succeed())
	releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	g.Expect(filepath.Join(folder, "assets/v0.1.0/old")).NotTo(BeAnExistingFile())
	releaseInto(t, arguments{folder: folder, version: "v0.1.1", image: testImage})
	g.Expect(read(t, folder, "assets/v0.1.0/SHA256SUMS")).To(Equal(sums))
	g.Expect(read(t, folder, "clusterctl.yaml")).To(ContainSubstring("/infrastructure-quoin/v0.1.1/infrastructure-components.yaml"))
	left, err := filepath.Glob(filepath.Join(folder, ".*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

// TestAFailedReleaseLeavesTheEarlierOne breaks off while the image is written, which comes before anything is replaced.
func TestAFailedReleaseLeavesTheEarlierOne(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "dist")
	releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	there := names(t, folder)
	config := read(t, folder, "clusterctl.yaml")
	o, err := arguments{root: checkoutRoot, folder: folder, version: "v0.1.1", image: testImage}.parse()
	g.Expect(err).NotTo(HaveOccurred())
	full := errors.New("no space left on device")
	g.Expect(write(o, func(string) error { return full })).To(MatchError(full))
	g.Expect(names(t, folder)).To(Equal(there))
	g.Expect(read(t, folder, "clusterctl.yaml")).To(Equal(config))
	broken := func(context.Context, options, string, string, string) error { return full }
	g.Expect(makeRelease(t.Context(), o, broken, nil)).To(MatchError(full))
	g.Expect(names(t, folder)).To(Equal(there))
}

// TestBadInputSaysWhatToGive runs the command as make does.
func TestBadInputSaysWhatToGive(t *testing.T) {
	for name, bad := range map[string]struct {
		args []string
		want []string
	}{
		"nothing":           {nil, []string{"VERSION is missing", "make release VERSION=v0.1.0 IMAGE="}},
		"no v":              {[]string{"--version=0.1.0"}, []string{`"0.1.0"`, "v before it"}},
		"not semantic":      {[]string{"--version=v0.1"}, []string{`"v0.1"`, "semantic version"}},
		"build metadata":    {[]string{"--version=v0.1.0+dirty"}, []string{"build metadata", "leave out"}},
		"no release series": {[]string{"--version=v7.3.0"}, []string{"v7.3.0", "metadata.yaml", "add 7.3"}},
		"no image":          {[]string{"--version=v0.1.0"}, []string{"IMAGE is missing", "make release"}},
		"a short image":     {[]string{"--version=v0.1.0", "--image=manager"}, []string{`"manager"`, "registry.example.com/"}},
		"a digest":          {[]string{"--version=v0.1.0", "--image=" + testImage + "@sha256:00"}, []string{"digest", "repository[:tag]"}},
		"an image's letters": {[]string{"--version=v0.1.0", "--image=registry.example.com/Quoin"},
			[]string{"registry.example.com/Quoin", "full name of an image"}},
		"a push of neither": {[]string{"--version=v0.1.0", "--image=" + testImage, "--push=true"}, []string{"PUSH", "yes or no"}},
		"a folder that is not absolute": {[]string{"--version=v0.1.0", "--image=" + testImage, "--url=dist"},
			[]string{`"dist"`, "absolute path"}},
		"a server that clusterctl does not know": {[]string{"--version=v0.1.0", "--image=" + testImage, "--url=https://files.example.com/quoin"},
			[]string{"files.example.com", "github.com/<owner>", "gitlab."}},
		"a page of a project": {[]string{"--version=v0.1.0", "--image=" + testImage, "--url=https://github.com/owner/quoin"},
			[]string{"https://github.com/<owner>/<repository>/releases"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := filepath.Join(t.TempDir(), "dist")
			err := run(t.Context(), append(bad.args, "--root="+checkoutRoot, "--out="+folder), os.Stdout)
			g.Expect(err).To(HaveOccurred())
			for _, part := range bad.want {
				g.Expect(err).To(MatchError(ContainSubstring(part)))
			}
			g.Expect(folder).NotTo(BeADirectory())
		})
	}
}

func TestTheTagIsTheVersionUnlessGiven(t *testing.T) {
	g := NewWithT(t)
	for given, want := range map[string]string{
		testImage:                  testImage + ":v0.1.0",
		testImage + ":stable":      testImage + ":stable",
		"127.0.0.1:5000/quoin":     "127.0.0.1:5000/quoin:v0.1.0",
		"127.0.0.1:5000/quoin:one": "127.0.0.1:5000/quoin:one",
	} {
		tag, err := parseImage(given, "v0.1.0")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(tag.Name()).To(Equal(want))
	}
}

// names of the files below a folder.
func names(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		found = append(found, relative)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// check verifies a folder as a person does.
func check(folder string) error {
	command := exec.Command("sha256sum", "--check", "--strict", "--quiet", sumsName)
	command.Dir = folder
	return command.Run()
}
