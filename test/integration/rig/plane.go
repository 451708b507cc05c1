// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// StartPlane brings up only the API server, with the types of Cluster API's core and ours: for tests that run
// reconcilers in their own process. Nobody collects garbage, ends namespaces or runs webhooks there.
func StartPlane(ctx context.Context, options Options) (*Rig, error) {
	r, err := newRig(options)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{r.startReaper, r.startAPIServer, r.installTypes} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, r.Stop())
		}
	}
	return r, nil
}

func (r *Rig) installTypes(ctx context.Context) error {
	upstream, err := r.run(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	core := filepath.Join(strings.TrimSpace(upstream), "core", "config", "crd", "bases")
	_, err = envtest.InstallCRDs(r.Config, envtest.CRDInstallOptions{
		Paths: []string{
			filepath.Join(core, "cluster.x-k8s.io_clusters.yaml"), filepath.Join(core, "cluster.x-k8s.io_machines.yaml"),
			filepath.Join(r.Root, "config", "crd", "infrastructure", "bases"),
		},
		ErrorIfPathMissing: true,
	})
	if err != nil {
		return fmt.Errorf("installing the types: %w", err)
	}
	return nil
}
