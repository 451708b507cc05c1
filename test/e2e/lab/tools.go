// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// tools are the programs and images that the lab uses, all built into the cache.
type tools struct {
	kind, kubectl, clusterctl string
	hostImage, kindImage      string
	// managers are the managers' images by the label of their provider.
	managers map[string]string
}

// build builds what the cache lacks. Each script says on standard error what it builds; with a warm cache all are silent.
func (l *Lab) build(ctx context.Context, step *progress.Step) error {
	script := func(path string, args ...string) (string, error) {
		out, err := l.run(ctx, command{name: filepath.Join(l.Root, path), args: args, line: func(line string) { step.Waiting(line) }})
		return strings.TrimSpace(out), err
	}
	program := func(into *string, name string, path string, args ...string) error {
		dir, err := script(path, args...)
		*into = filepath.Join(dir, name)
		return err
	}
	t := &l.tools
	for _, do := range []func() error{
		func() (err error) { t.clusterctl, err = script("hack/tools/build.sh", "clusterctl"); return err },
		func() error { return program(&t.kind, "kind", "hack/bundle/build-binaries.sh", "kind") },
		func() error {
			return program(&t.kubectl, "kubectl", "hack/bundle/build-binaries.sh", "kubernetes", NewVersion, "kubectl")
		},
		func() error { _, err := script("hack/bundle/make-bundle.sh", OldVersion); return err },
		func() error { _, err := script("hack/bundle/make-bundle.sh", NewVersion); return err },
		func() (err error) { t.hostImage, err = script("test/hostimage/build.sh", "host"); return err },
		func() (err error) { t.kindImage, err = script("test/hostimage/build.sh", "kind-node"); return err },
		func() (err error) {
			out, err := script("hack/components/images.sh")
			t.managers = pairs(out)
			return err
		},
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// BuildBundle makes the bundle of a version that the lab does not begin with, unless the cache has it. All hosts see it at once.
func (l *Lab) BuildBundle(ctx context.Context, version string) error {
	return l.Step(ctx, "Building the bundle of "+version, 45*time.Minute, func(ctx context.Context, step *progress.Step) error {
		_, err := l.run(ctx, command{name: l.file("hack", "bundle", "make-bundle.sh"), args: []string{version}, line: func(line string) { step.Waiting(line) }})
		return err
	})
}

// pairs reads lines of the form name=value.
func pairs(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			found[name] = value
		}
	}
	return found
}

// Kubectl runs kubectl against a kubeconfig.
func (l *Lab) Kubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	return l.run(ctx, command{name: l.tools.kubectl, args: append([]string{"--kubeconfig", kubeconfig}, args...), env: l.privateHome()})
}

// Apply applies manifests as a user would.
func (l *Lab) Apply(ctx context.Context, kubeconfig, manifests string) error {
	_, err := l.run(ctx, command{
		name: l.tools.kubectl, args: []string{"--kubeconfig", kubeconfig, "apply", "-f", "-"},
		stdin: strings.NewReader(manifests), env: l.privateHome(),
	})
	return err
}

// Clusterctl runs the stock clusterctl with the lab's repository.
func (l *Lab) Clusterctl(ctx context.Context, env []string, args ...string) (string, error) {
	// A kubeconfig is nothing for a log.
	quiet := slices.Contains(args, "kubeconfig")
	args = append(args, "--config", l.clusterctlConfig())
	return l.run(ctx, command{name: l.tools.clusterctl, args: args, env: append(l.privateHome(), env...), quiet: quiet})
}

// privateHome keeps the user's kubeconfig, clusterctl configuration and discovery caches out of everything.
func (l *Lab) privateHome() []string {
	home := l.Path("home")
	return []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_CACHE_HOME=" + filepath.Join(home, ".cache"),
		"KUBECONFIG=" + l.Kubeconfig(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
	}
}

// Commands are what a person needs to look around: programs and files, ready to paste.
func (l *Lab) Commands() (kubectl, clusterctl string) {
	return fmt.Sprintf("%s --kubeconfig %s", l.tools.kubectl, l.Kubeconfig()),
		fmt.Sprintf("%s --config %s --kubeconfig %s", l.tools.clusterctl, l.clusterctlConfig(), l.Kubeconfig())
}

// KubectlFor is the kubectl command for a workload cluster, ready to paste.
func (l *Lab) KubectlFor(cluster *Cluster) string {
	return fmt.Sprintf("%s --kubeconfig %s", l.tools.kubectl, cluster.Kubeconfig())
}
