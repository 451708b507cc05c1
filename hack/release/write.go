// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

const (
	// configName is the configuration that points clusterctl at the release.
	configName = "clusterctl.yaml"
	// archiveName is the manager's image, as an OCI archive.
	archiveName = "quoin-manager.tar"
	// sumsName is the list that `sha256sum --check` reads.
	sumsName = "SHA256SUMS"
	// assetsLabel is the folder of what is uploaded to a remote repository, where all files lie side by side.
	assetsLabel = "assets"
)

// assets is the folder with all files of the version.
func (o options) assets() string { return filepath.Join(o.folder, assetsLabel, o.version) }

// write makes the release's folders beside each other and gives each its name when it is complete:
//
//	<folder>/clusterctl.yaml
//	<folder>/<provider label>/<version>/   what clusterctl reads from a folder
//	<folder>/assets/<version>/             all of it, the image and the plugin, to be uploaded
//
// Folders of other versions stay: clusterctl generates clusters from the version that is installed.
func write(o options, programs func(folder string) error) error {
	if err := os.MkdirAll(o.folder, 0o755); err != nil {
		return fmt.Errorf("folder of the release: %w", err)
	}
	staging, err := os.MkdirTemp(o.folder, ".release-")
	if err != nil {
		return fmt.Errorf("folder of the release: %w", err)
	}
	defer func() { _ = os.RemoveAll(staging) }()

	images := map[string]string{}
	for _, label := range repository.OwnLabels() {
		images[label] = o.tag.String()
	}
	written, err := repository.Write(repository.Options{
		Root: o.root, Base: filepath.Join(staging, "repository"), Mode: repository.Standard,
		Version: o.version, Providers: repository.OwnLabels(), Images: images,
	})
	if err != nil {
		return err
	}
	assets := filepath.Join(staging, assetsLabel)
	if err := os.Mkdir(assets, 0o755); err != nil {
		return fmt.Errorf("folder of the release: %w", err)
	}
	folders := map[string]string{assetsLabel: assets}
	for _, provider := range written.Providers {
		folders[provider.Label] = filepath.Dir(provider.Components)
		if err := copyAll(folders[provider.Label], assets); err != nil {
			return err
		}
	}
	if err := programs(assets); err != nil {
		return err
	}
	config := clusterctlConfig(o, written.Providers)
	if o.location.flat {
		if err := os.WriteFile(filepath.Join(assets, configName), config, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", configName, err)
		}
	}
	for label, folder := range folders {
		if err := publish(folder, filepath.Join(o.folder, label, o.version)); err != nil {
			return err
		}
	}
	// Last: it names nothing that is not there.
	pending := filepath.Join(staging, configName)
	if err := os.WriteFile(pending, config, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", configName, err)
	}
	return os.Rename(pending, filepath.Join(o.folder, configName))
}

// clusterctlConfig is the entries that clusterctl needs to know our providers.
func clusterctlConfig(o options, written []repository.Written) []byte {
	var text bytes.Buffer
	text.WriteString("# Copy it to $HOME/.config/cluster-api/clusterctl.yaml, or add its entries to what is there.\nproviders:\n")
	for _, provider := range written {
		name, kind := repository.NameAndType(provider.Label)
		_, _ = fmt.Fprintf(&text, "- name: %q\n  type: %q\n  url: %q\n", name, kind,
			o.location.components(provider.Label, provider.Version, filepath.Base(provider.Components)))
	}
	return text.Bytes()
}

// publish adds the checksums of a folder to it and puts it into its place.
func publish(from, to string) error {
	if err := writeSums(from); err != nil {
		return err
	}
	if err := os.Chmod(from, 0o755); err != nil {
		return fmt.Errorf("publishing %s: %w", to, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("publishing %s: %w", to, err)
	}
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("removing the earlier %s: %w", to, err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("publishing %s: %w", to, err)
	}
	return nil
}

// writeSums lists the checksums of all files of a flat folder.
func writeSums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	var text bytes.Buffer
	for _, entry := range entries {
		sum, err := checksum(filepath.Join(folder, entry.Name()))
		if err != nil {
			return fmt.Errorf("checksum of %s: %w", entry.Name(), err)
		}
		_, _ = fmt.Fprintf(&text, "%s  %s\n", sum, entry.Name())
	}
	if err := os.WriteFile(filepath.Join(folder, sumsName), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	return nil
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func copyAll(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("collecting the files of the release: %w", err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return fmt.Errorf("collecting the files of the release: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), content, 0o644); err != nil {
			return fmt.Errorf("collecting the files of the release: %w", err)
		}
	}
	return nil
}
