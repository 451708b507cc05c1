// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// Site is a cluster that clusterctl's plugin creates, with a bootstrap cluster of its own. It needs the hosts of Lab.AddRacks.
func Site() ClusterSpec {
	return ClusterSpec{Name: "site", Version: OldVersion, VirtualAddress: "172.30.0.106", RouterID: 106, ControlPlanes: 3, Workers: 1,
		// Those that have the managers' images, too.
		Bundles: bundlesOnHost + "/own"}
}

// siteKind is what the plugin calls the kind cluster of Site.
const siteKind = "quoin-site"

// SettleSite makes the desk of somebody who has hosts, files, and no cluster at all: the files that docs/self-managed.md names,
// clusterctl with its plugin, and a clusterctl.yaml that finds the providers.
func (l *Lab) SettleSite(ctx context.Context, spec ClusterSpec) (*Desk, error) {
	d, err := l.NewDesk(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.buildPlugin(ctx); err != nil {
		return nil, err
	}
	hosts, err := l.inventory(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := l.Generate(ctx, spec)
	if err != nil {
		return nil, err
	}
	network, err := os.ReadFile(l.file("test", "hostimage", "testnet", "testnet.yaml"))
	if err != nil {
		return nil, fmt.Errorf("network plugin: %w", err)
	}
	providers, err := os.ReadFile(l.clusterctlConfig())
	if err != nil {
		return nil, fmt.Errorf("clusterctl.yaml: %w", err)
	}
	config := filepath.Join(d.Home(), ".config", "cluster-api", "clusterctl.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		return nil, fmt.Errorf("clusterctl.yaml: %w", err)
	}
	archives, err := l.packManagers(ctx)
	if err != nil {
		return nil, err
	}
	env := fmt.Sprintf("KIND_FLAGS='--image %s --config %s'\nARCHIVES='%s'\n", l.tools.kindImage, l.file("test", "hostimage", "kind.yaml"),
		strings.Join(archives, " "))
	return d, errors.Join(os.WriteFile(config, providers, 0o600), d.Write("site.env", env), d.Write("hosts.yaml", hosts),
		d.Write("site.yaml", cluster), d.Write("network-plugin.yaml", string(network)))
}

// inventory is a manifest of the lab's hosts and of the Secret that logs in to them.
func (l *Lab) inventory(ctx context.Context) (string, error) {
	var manifest bytes.Buffer
	objects := []client.Object{&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: CredentialsSecret},
		Type:       corev1.SecretTypeSSHAuth, Data: map[string][]byte{corev1.SSHAuthPrivateKey: l.keys.private},
	}}
	for _, host := range l.Hosts {
		object, err := l.QuoinHost(ctx, host)
		if err != nil {
			return "", err
		}
		object.SetGroupVersionKind(infrav1.GroupVersion.WithKind("QuoinHost"))
		objects = append(objects, object)
	}
	for _, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			return "", fmt.Errorf("file of the hosts: %w", err)
		}
		fmt.Fprintf(&manifest, "---\n%s", content)
	}
	return manifest.String(), nil
}

// ForgetHosts deletes the QuoinHosts of the management cluster: nobody looks after the hosts any more.
func (l *Lab) ForgetHosts(ctx context.Context) error {
	if err := l.Management.DeleteAllOf(ctx, &infrav1.QuoinHost{}, client.InNamespace(Namespace)); err != nil {
		return fmt.Errorf("deleting the hosts: %w", err)
	}
	return l.Step(ctx, "Waiting until no host is left", 2*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
			list := &infrav1.QuoinHostList{}
			err := l.Management.List(ctx, list, client.InNamespace(Namespace))
			return len(list.Items) == 0 && err == nil, nil, client.IgnoreNotFound(err)
		})
	})
}

// buildPlugin puts clusterctl's plugin where a Desk finds it.
func (l *Lab) buildPlugin(ctx context.Context) error {
	_, err := l.run(ctx, command{name: "go", args: []string{"build", "-o", l.Path("bin", "clusterctl-quoin"), "./cmd/clusterctl-quoin"}})
	return err
}

// plugin runs clusterctl's plugin; each gets the lines that it prints.
func (l *Lab) plugin(ctx context.Context, each func(string), args ...string) error {
	if err := l.buildPlugin(ctx); err != nil {
		return err
	}
	// What it prints is its progress, which is standard output.
	_, err := l.run(ctx, command{name: "sh", args: append([]string{"-c", `exec "$@" >&2`, "sh", l.Path("bin", "clusterctl-quoin")}, args...),
		env: append(l.privateHome(), l.kindEnv()...), line: each})
	return err
}

// Ask has the cluster of a kubeconfig asked as the management cluster from then on.
func (l *Lab) Ask(kubeconfig string) error {
	l.management = kubeconfig
	return l.connect()
}

// SiteHasBootstrap reports whether the bootstrap cluster of Site exists.
func (l *Lab) SiteHasBootstrap(ctx context.Context) (bool, error) {
	out, err := l.docker(ctx, "ps", "--all", "--quiet", "--filter", "label=io.x-k8s.kind.cluster="+siteKind)
	return strings.TrimSpace(out) != "", err
}
