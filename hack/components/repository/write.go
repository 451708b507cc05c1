// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/resolve"
)

// configName is the file that marks a folder as a repository of ours.
const configName = "clusterctl.yaml"

// writer carries what the steps of one Write share.
type writer struct {
	options Options
	// base is where the repository will be, staging where it is being made.
	base, staging   string
	authority       *resolve.Authority
	clusterAPI      module
	clusterAPITests module
	ownVersion      string
}

// Write makes the repository. Nothing is left of it when it fails, and an earlier repository in the same place stays
// until the new one is complete.
func Write(options Options) (*Repository, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	w, err := newWriter(options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(w.staging) }()

	result := &Repository{Base: w.base, Config: filepath.Join(w.base, configName)}
	for _, p := range providers {
		if !slices.Contains(options.labels(), p.label) {
			continue
		}
		written, err := w.provider(p)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", p.label, err)
		}
		result.Providers = append(result.Providers, written)
	}
	if err := w.clusterctlConfig(result.Providers); err != nil {
		return nil, err
	}
	return result, w.publish()
}

func newWriter(options Options) (*writer, error) {
	base, err := filepath.Abs(options.Base)
	if err != nil {
		return nil, fmt.Errorf("repository folder: %w", err)
	}
	w := &writer{options: options, base: base, ownVersion: options.Version}
	if options.includes(func(p provider) bool { return p.own }) && w.ownVersion == "" {
		if w.ownVersion, err = newestVersion(filepath.Join(options.Root, "metadata.yaml")); err != nil {
			return nil, err
		}
	}
	if options.includes(func(p provider) bool { return !p.own }) {
		if w.clusterAPI, err = fetchModule(options.Root, "cluster-api", "sigs.k8s.io/cluster-api"); err != nil {
			return nil, err
		}
	}
	if options.includes(func(p provider) bool { return p.tests }) {
		if w.clusterAPITests, err = fetchModule(options.Root, "peer", "sigs.k8s.io/cluster-api/test"); err != nil {
			return nil, err
		}
	}
	if options.Mode != Standard {
		if w.authority, err = resolve.NewAuthority(time.Now()); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return nil, fmt.Errorf("repository folder: %w", err)
	}
	if w.staging, err = os.MkdirTemp(filepath.Dir(base), "."+filepath.Base(base)+"-"); err != nil {
		return nil, fmt.Errorf("repository folder: %w", err)
	}
	return w, nil
}

// includes says whether one of the providers is of a kind.
func (o Options) includes(kind func(provider) bool) bool {
	return slices.ContainsFunc(labels(kind), func(label string) bool { return slices.Contains(o.labels(), label) })
}

// file writes one file of the repository, path being relative to its base.
func (w *writer) file(path string, content []byte, mode os.FileMode) error {
	target := filepath.Join(w.staging, path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.WriteFile(target, content, mode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// publish puts the finished repository in its place. A folder there that is not a repository is never replaced.
func (w *writer) publish() error {
	if err := os.Chmod(w.staging, 0o755); err != nil {
		return fmt.Errorf("publishing the repository: %w", err)
	}
	if entries, err := os.ReadDir(w.base); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(w.base, configName)); err != nil {
			return fmt.Errorf("%s is not empty and holds no %s: it is not replaced", w.base, configName)
		}
	}
	if err := os.RemoveAll(w.base); err != nil {
		return fmt.Errorf("removing the earlier repository: %w", err)
	}
	if err := os.Rename(w.staging, w.base); err != nil {
		return fmt.Errorf("publishing the repository: %w", err)
	}
	return nil
}
