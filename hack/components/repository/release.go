// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"os"
	"path/filepath"
)

// Release writes the files that clusterctl expects among the assets of a release, side by side in one folder: the
// components of our providers, metadata and templates. Components are those of Standard mode, whatever was asked for.
func Release(options Options, folder string) error {
	staging, err := os.MkdirTemp("", "quoin-release-")
	if err != nil {
		return fmt.Errorf("release folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(staging) }()

	options.Mode, options.Providers, options.Base = Standard, OwnLabels(), filepath.Join(staging, "repository")
	written, err := Write(options)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("release folder: %w", err)
	}
	for _, one := range written.Providers {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(one.Components), "*"))
		if err != nil {
			return fmt.Errorf("release of %s: %w", one.Label, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("release of %s: %w", one.Label, err)
			}
			if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), content, 0o644); err != nil {
				return fmt.Errorf("release of %s: %w", one.Label, err)
			}
		}
	}
	return nil
}
