// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// LoadManagersOnHosts puts the managers' images on every host, as a site does that has no registry. A reset leaves images.
func (l *Lab) LoadManagersOnHosts(ctx context.Context) error {
	return l.Step(ctx, "Loading the managers' images onto the hosts", 5*time.Minute, func(ctx context.Context, _ *progress.Step) error {
		archive := l.Path("managers.tar")
		defer func() { _ = os.Remove(archive) }()
		images := slices.Compact(slices.Sorted(maps.Values(l.tools.managers)))
		if _, err := l.docker(ctx, append([]string{"save", "--output", archive}, images...)...); err != nil {
			return err
		}
		group, loading := errgroup.WithContext(ctx)
		group.SetLimit(2)
		for _, host := range l.Hosts {
			group.Go(func() error {
				file, err := os.Open(archive)
				if err != nil {
					return fmt.Errorf("images of the managers: %w", err)
				}
				defer func() { _ = file.Close() }()
				_, err = l.run(loading, command{
					name: l.engine.client, stdin: file,
					args: []string{"exec", "--interactive", host.Container(), "ctr", "--namespace", "k8s.io", "images", "import", "-"},
				})
				return err
			})
		}
		return group.Wait()
	})
}

// packManagers writes the managers' images into the state folder, an archive each.
func (l *Lab) packManagers(ctx context.Context) ([]string, error) {
	if err := os.MkdirAll(l.Path("images"), 0o700); err != nil {
		return nil, fmt.Errorf("images of the managers: %w", err)
	}
	var archives []string
	for _, image := range slices.Compact(slices.Sorted(maps.Values(l.tools.managers))) {
		name, _, _ := strings.Cut(path.Base(image), ":")
		archive := l.Path("images", name+".tar")
		if _, err := l.docker(ctx, "save", "--output", archive, image); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// Init installs Cluster API and Quoin in a cluster with stock clusterctl.
func (l *Lab) Init(ctx context.Context, cluster *Cluster) error {
	return l.Step(ctx, "Installing Cluster API and Quoin in "+cluster.Name, 6*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return l.initInto(ctx, step, cluster.Kubeconfig())
	})
}

// Move moves everything in the namespace from the management cluster to another with stock clusterctl, as docs/move.md writes
// it, and asks the other one from then on.
func (l *Lab) Move(ctx context.Context, kubeconfig string) error {
	return l.moveTo(ctx, kubeconfig, func(ctx context.Context, step *progress.Step) error {
		_, err := l.run(ctx, command{
			name: l.tools.clusterctl, env: l.privateHome(), line: func(line string) { step.Waiting(line) },
			args: []string{"move", "-n", Namespace, "--kubeconfig", l.Kubeconfig(), "--to-kubeconfig", kubeconfig, "--config", l.clusterctlConfig()},
		})
		return err
	})
}

// Pivot makes a cluster its own management cluster with clusterctl's plugin, as docs/pivot.md writes it, and asks it from then
// on.
func (l *Lab) Pivot(ctx context.Context, cluster *Cluster) error {
	return l.moveTo(ctx, cluster.Kubeconfig(), func(ctx context.Context, step *progress.Step) error {
		return l.plugin(ctx, func(line string) { step.Waiting(line) }, "pivot", cluster.Name, "--workspace", l.Path("clusters", "workspace"),
			"--namespace", Namespace, "--kubeconfig", l.Kubeconfig(), "--to", cluster.Kubeconfig())
	})
}

// moveTo asks another management cluster once everything was moved there.
func (l *Lab) moveTo(ctx context.Context, kubeconfig string, move func(context.Context, *progress.Step) error) error {
	if err := l.Step(ctx, "Moving to another management cluster", 15*time.Minute, move); err != nil {
		return err
	}
	return l.Ask(kubeconfig)
}

// KindKubeconfig is that of the kind cluster, whichever cluster manages.
func (l *Lab) KindKubeconfig() string { return l.Path("kubeconfig") }

// RemoveKind removes the kind cluster, and with it whatever it still manages.
func (l *Lab) RemoveKind(ctx context.Context) error {
	return l.Step(ctx, "Removing the kind cluster", 2*time.Minute, func(ctx context.Context, _ *progress.Step) error {
		if err := l.removeContainers(ctx, "io.x-k8s.kind.cluster="+Name); err != nil {
			return err
		}
		return os.Remove(l.KindKubeconfig())
	})
}

// RemakeKind makes a kind cluster anew with the providers in it, to move to.
func (l *Lab) RemakeKind(ctx context.Context) error {
	return l.up(ctx, []stage{
		{"Creating the kind cluster " + Name + " anew", 5 * time.Minute, l.createKind},
		{"Loading the managers' images", 3 * time.Minute, l.loadManagers},
		{"Installing Cluster API and Quoin with clusterctl init", 5 * time.Minute, func(ctx context.Context, step *progress.Step) error {
			return l.initInto(ctx, step, l.KindKubeconfig())
		}},
	})
}
