// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// Remove takes back everything that the lab made: kind cluster, hosts, network, rule, keys, kubeconfigs. Logs and
// diagnostics stay. It finds things by their label, so it needs no memory of how they were made, and it goes on after an
// error to remove what it can. With engine, what ensure.sh changed on the machine is taken back too.
func (l *Lab) Remove(ctx context.Context, engine bool) error {
	err := l.Step(ctx, "Removing the lab", 5*time.Minute, func(ctx context.Context, step *progress.Step) error {
		if l.readEngine() != nil {
			return nil //nolint:nilerr // without a record of an engine nothing was ever made
		}
		// One that was killed keeps its containers, and only a running one can remove them.
		if _, err := l.docker(ctx, "version"); err != nil {
			if err := l.ensureEngine(ctx, step); err != nil {
				return err
			}
		}
		return l.removeAll(ctx, step)
	})
	if err != nil || !engine {
		return err
	}
	return l.Step(ctx, "Taking back what was changed on this machine", 2*time.Minute, func(ctx context.Context, _ *progress.Step) error {
		_, err := l.run(ctx, command{name: l.file("hack", "engine", "stop.sh")})
		return err
	})
}

func (l *Lab) removeAll(ctx context.Context, _ *progress.Step) error {
	errs := []error{
		// kind labels its nodes itself, with the name of their cluster.
		l.removeContainers(ctx, "io.x-k8s.kind.cluster="+Name),
		l.removeContainers(ctx, "io.x-k8s.kind.cluster="+siteKind),
		l.removeContainers(ctx, Label+"="+Name),
		l.removeNetwork(ctx),
		l.fence(ctx, false),
	}
	for _, path := range []string{
		l.KindKubeconfig(), l.privateKeyFile(), l.Path("home"), l.Path("clusters"), l.Path("repository"),
		l.Path("clone"), l.Path("insider"), l.Path("bin"), l.Path("variables.sh"),
	} {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// removeContainers ends the containers with a label, and removes them with their volumes.
func (l *Lab) removeContainers(ctx context.Context, label string) error {
	out, err := l.docker(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+label)
	if err != nil {
		return err
	}
	ids := strings.Fields(out)
	if len(ids) == 0 {
		return nil
	}
	if _, err := l.docker(ctx, append([]string{"rm", "--force", "--volumes"}, ids...)...); err != nil {
		return fmt.Errorf("removing the containers with label %s: %w", label, err)
	}
	return nil
}

func (l *Lab) removeNetwork(ctx context.Context) error {
	out, err := l.docker(ctx, "network", "ls", "--quiet", "--filter", "label="+Label+"="+Name)
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(out) {
		if _, err := l.docker(ctx, "network", "rm", id); err != nil {
			return err
		}
	}
	return nil
}
