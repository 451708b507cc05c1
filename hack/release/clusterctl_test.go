// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// clusterctl is the stock binary with a home of its own, whose configuration is that of a release.
type clusterctl struct {
	program, home string
}

func newClusterctl(t *testing.T, config string) clusterctl {
	t.Helper()
	var stderr bytes.Buffer
	build := exec.Command(filepath.Join(checkoutRoot, "hack", "tools", "build.sh"), "clusterctl")
	build.Stderr = &stderr
	path, err := build.Output()
	if err != nil {
		t.Fatalf("clusterctl: %v\n%s", err, stderr.String())
	}
	c := clusterctl{program: strings.TrimSpace(string(path)), home: t.TempDir()}
	// Where docs/install.md has the reader put it.
	folder := filepath.Join(c.home, ".config", "cluster-api")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "clusterctl.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c clusterctl) run(variables []string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.Command(c.program, args...)
	command.Env = append([]string{
		"HOME=" + c.home, "PATH=" + os.Getenv("PATH"), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
		"KUBECONFIG=" + filepath.Join(c.home, "none"),
	}, variables...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("clusterctl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// TestClusterctlReadsARelease has the stock binary read what was written, from a folder with a difficult name.
func TestClusterctlReadsARelease(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "the 100% dist #1")
	releaseInto(t, arguments{folder: folder, version: "v0.1.0", image: testImage})
	releaseInto(t, arguments{folder: folder, version: "v0.1.1", image: testImage})
	c := newClusterctl(t, read(t, folder, "clusterctl.yaml"))

	listed, err := c.run(nil, "config", "repositories")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed).To(MatchRegexp(`(?m)^quoin +InfrastructureProvider +file:.* infrastructure-components.yaml$`))
	g.Expect(listed).To(MatchRegexp(`(?m)^quoin +ControlPlaneProvider +file:.* control-plane-components.yaml$`))

	for _, flag := range []string{"--infrastructure", "--control-plane"} {
		for _, version := range []string{"v0.1.0", "v0.1.1"} {
			components, err := c.run(nil, "generate", "provider", flag, "quoin:"+version)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(components).To(ContainSubstring("image: " + testImage + ":" + version + "\n"))
			// The metadata names the contract, without which clusterctl init stops.
			described, err := c.run(nil, "generate", "provider", flag, "quoin:"+version, "--describe")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(described).To(ContainSubstring(testImage + ":" + version))
		}
		_, err := c.run(nil, "generate", "provider", flag, "quoin:v0.1.2")
		g.Expect(err).To(HaveOccurred())
	}

	generate := []string{"generate", "cluster", "first", "--infrastructure", "quoin:v0.1.0", "--kubernetes-version", "v1.36.3",
		"--target-namespace", "default"}
	variables, err := c.run(nil, append(generate, "--list-variables")...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(variables).To(ContainSubstring("CONTROL_PLANE_ENDPOINT_HOST"))
	_, err = c.run(nil, generate...)
	g.Expect(err).To(MatchError(ContainSubstring("CONTROL_PLANE_ENDPOINT_HOST")))
	cluster, err := c.run([]string{"CONTROL_PLANE_ENDPOINT_HOST=192.0.2.1"}, generate...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cluster).To(And(ContainSubstring("kind: QuoinControlPlane"), ContainSubstring("host: 192.0.2.1")))
}
