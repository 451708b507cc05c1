// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab/progress"
)

// Site is a cluster that clusterctl's plugin creates, with a bootstrap cluster of its own. It needs the hosts of Lab.AddRacks.
func Site() ClusterSpec {
	return ClusterSpec{Name: "site", Version: OldVersion, VirtualAddress: "172.30.0.106", RouterID: 106, ControlPlanes: 3, Workers: 1}
}

// siteKind is what the plugin calls the kind cluster of Site.
const siteKind = "quoin-site"

// WriteSite writes what a person has before there is any cluster: files of the hosts, their Secret, and the Cluster.
func (l *Lab) WriteSite(ctx context.Context, spec ClusterSpec) error {
	var hosts bytes.Buffer
	objects := []client.Object{&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: CredentialsSecret},
		Type:       corev1.SecretTypeSSHAuth, Data: map[string][]byte{corev1.SSHAuthPrivateKey: l.keys.private},
	}}
	for _, host := range l.Hosts {
		object, err := l.QuoinHost(ctx, host)
		if err != nil {
			return err
		}
		object.SetGroupVersionKind(infrav1.GroupVersion.WithKind("QuoinHost"))
		objects = append(objects, object)
	}
	for _, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("file of the hosts: %w", err)
		}
		fmt.Fprintf(&hosts, "---\n%s", content)
	}
	manifests, err := l.Generate(ctx, spec)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(l.Path("clusters", spec.Name, "hosts-of-site.yaml"), hosts.Bytes(), 0o600),
		os.WriteFile(l.Path("clusters", spec.Name, "cluster-of-site.yaml"), []byte(manifests), 0o600))
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

// plugin runs clusterctl's plugin; each gets the lines that it prints.
func (l *Lab) plugin(ctx context.Context, each func(string), args ...string) error {
	program := l.Path("bin", "clusterctl-quoin")
	if _, err := l.run(ctx, command{name: "go", args: []string{"build", "-o", program, "./cmd/clusterctl-quoin"}}); err != nil {
		return err
	}
	// What it prints is its progress, which is standard output.
	_, err := l.run(ctx, command{name: "sh", args: append([]string{"-c", `exec "$@" >&2`, "sh", program}, args...),
		env: append(l.privateHome(), l.kindEnv()...), line: each})
	return err
}

// MakeBootstrap has the plugin make the bootstrap cluster, and loads the managers' images there, as a site does that has no
// registry.
func (l *Lab) MakeBootstrap(ctx context.Context, spec ClusterSpec) error {
	return l.Step(ctx, "Making the bootstrap cluster", 6*time.Minute, func(ctx context.Context, step *progress.Step) error {
		err := l.plugin(ctx, func(line string) { step.Waiting(line) }, "bootstrap", "create", spec.Name, "--workspace", l.workspace(),
			"--image", l.tools.kindImage, "--config", l.file("test", "hostimage", "kind.yaml"))
		if err != nil {
			return err
		}
		args := []string{"load", "docker-image", "--name", siteKind}
		args = append(args, slices.Compact(slices.Sorted(maps.Values(l.tools.managers)))...)
		return l.kind(ctx, func(line string) { step.Waiting(line) }, args...)
	})
}

func (l *Lab) workspace() string { return l.Path("clusters", "workspace") }

// CreateSite runs `clusterctl quoin create cluster`, and kills it at the first line with a text, unless that is empty.
func (l *Lab) CreateSite(ctx context.Context, spec ClusterSpec, fatal string) (killed bool, err error) {
	err = l.Step(ctx, "Creating "+spec.Name+" with clusterctl quoin", 20*time.Minute, func(ctx context.Context, step *progress.Step) error {
		ctx, kill := context.WithCancel(ctx)
		defer kill()
		err := l.plugin(ctx, func(line string) {
			step.Waiting(line)
			if fatal != "" && strings.Contains(line, fatal) {
				killed = true
				kill()
			}
		}, "create", "cluster", spec.Name, "--workspace", l.workspace(), "--clusterctl-config", l.clusterctlConfig(),
			"-f", l.Path("clusters", spec.Name, "hosts-of-site.yaml"), "-f", l.Path("clusters", spec.Name, "cluster-of-site.yaml"),
			"--network", l.file("test", "hostimage", "testnet", "testnet.yaml"), "--timeout", "10m")
		if killed {
			return nil
		}
		return err
	})
	return killed, err
}

// UpgradeSite runs `clusterctl quoin upgrade` to NewVersion, and confirms its plans.
func (l *Lab) UpgradeSite(ctx context.Context, spec ClusterSpec, flags ...string) error {
	return l.Step(ctx, "Upgrading "+spec.Name+" with clusterctl quoin", 25*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return l.plugin(ctx, func(line string) { step.Waiting(line) }, append([]string{"upgrade", spec.Name, "--workspace", l.workspace(),
			"--namespace", Namespace, "--version", NewVersion, "--yes", "--deadline", "20m"}, flags...)...)
	})
}

// UpgradeSiteFromBootstrap runs it with a bootstrap cluster, which is made and deleted again.
func (l *Lab) UpgradeSiteFromBootstrap(ctx context.Context, spec ClusterSpec) error {
	return l.UpgradeSite(ctx, spec, "--use-bootstrap", "--clusterctl-config", l.clusterctlConfig())
}

// PivotSiteBack moves the cluster's objects to its bootstrap cluster, and asks that from then on.
func (l *Lab) PivotSiteBack(ctx context.Context, spec ClusterSpec) error {
	bootstrap := filepath.Join(l.workspace(), spec.Name, "bootstrap.kubeconfig")
	return l.moveTo(ctx, bootstrap, func(ctx context.Context, step *progress.Step) error {
		return l.plugin(ctx, func(line string) { step.Waiting(line) }, "pivot", spec.Name, "--workspace", l.workspace(),
			"--namespace", Namespace, "--kubeconfig", l.Kubeconfig(), "--to", bootstrap)
	})
}

// InitBootstrap installs the providers on the bootstrap cluster with stock clusterctl.
func (l *Lab) InitBootstrap(ctx context.Context, spec ClusterSpec) error {
	return l.Step(ctx, "Installing Cluster API and Quoin in the bootstrap cluster", 6*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return l.initInto(ctx, step, filepath.Join(l.workspace(), spec.Name, "bootstrap.kubeconfig"))
	})
}

// DeleteBootstrap has the plugin delete the bootstrap cluster.
func (l *Lab) DeleteBootstrap(ctx context.Context, spec ClusterSpec) error {
	return l.Step(ctx, "Deleting the bootstrap cluster", 2*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return l.plugin(ctx, func(line string) { step.Waiting(line) }, "bootstrap", "delete", spec.Name, "--workspace", l.workspace())
	})
}

// OpenSite makes a handle to a cluster that manages itself by what the plugin left in its workspace.
func (l *Lab) OpenSite(ctx context.Context, spec ClusterSpec) (*Cluster, error) {
	l.management = l.Path("clusters", "workspace", spec.Name, "kubeconfig")
	if err := l.connect(); err != nil {
		return nil, err
	}
	return l.Open(ctx, spec)
}

// SiteHasBootstrap reports whether the bootstrap cluster of Site exists.
func (l *Lab) SiteHasBootstrap(ctx context.Context) (bool, error) {
	out, err := l.docker(ctx, "ps", "--all", "--quiet", "--filter", "label=io.x-k8s.kind.cluster="+siteKind)
	return strings.TrimSpace(out) != "", err
}
