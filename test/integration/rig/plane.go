// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// StartPlane brings up only the API server, with the types of Cluster API's core, of its kubeadm provider and of ours: for
// tests that run reconcilers in their own process. Nobody collects garbage, ends namespaces or runs webhooks there.
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

// installTypes installs all types, labeled with the contract that each version follows, as kustomize does, and as clusterctl's
// own, as `clusterctl init` does: without that label a move does not see them.
func (r *Rig) installTypes(ctx context.Context) error {
	upstream, err := r.run(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	r.ClusterAPI = strings.TrimSpace(upstream)
	var all []*apiextensionsv1.CustomResourceDefinition
	for folder, contracts := range map[string]map[string]string{
		filepath.Join(r.ClusterAPI, "core", "config", "crd", "bases"):                 {"cluster.x-k8s.io/v1beta2": "v1beta2"},
		filepath.Join(r.ClusterAPI, "bootstrap", "kubeadm", "config", "crd", "bases"): {"cluster.x-k8s.io/v1beta2": "v1beta2"},
		filepath.Join(r.Root, "config", "crd", "infrastructure", "bases"):             {"cluster.x-k8s.io/v1beta2": "v1alpha1"},
		filepath.Join(r.Root, "config", "crd", "control-plane", "bases"):              {"cluster.x-k8s.io/v1beta2": "v1alpha1"},
	} {
		read := envtest.CRDInstallOptions{Paths: []string{folder}, ErrorIfPathMissing: true}
		if err := envtest.ReadCRDFiles(&read); err != nil {
			return fmt.Errorf("reading the types in %s: %w", folder, err)
		}
		for _, crd := range read.CRDs {
			if crd.Labels == nil {
				crd.Labels = map[string]string{}
			}
			maps.Copy(crd.Labels, contracts)
			crd.Labels[clusterctlv1.ClusterctlLabel] = ""
		}
		all = append(all, read.CRDs...)
	}
	if _, err := envtest.InstallCRDs(r.Config, envtest.CRDInstallOptions{CRDs: all, MaxTime: patience}); err != nil {
		return fmt.Errorf("installing the types: %w", err)
	}
	return nil
}
