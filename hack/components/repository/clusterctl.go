// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const certManagerComponents = "cert-manager.yaml"

// clusterctlConfig writes clusterctl.yaml. clusterctl wants absolute paths, so the file is bound to the base folder.
func (w *writer) clusterctlConfig(written []Written) error {
	type entry struct {
		Name string `json:"name"`
		Type string `json:"type"`
		URL  string `json:"url"`
	}
	config := map[string]any{
		// A folder of our own, or overrides from the user's home would leak into what is tested.
		"overridesFolder": filepath.Join(w.base, "overrides"),
		// The check asks the network for a newer clusterctl.
		"CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
	}
	for name, value := range w.options.Variables {
		config[name] = value
	}
	entries := make([]entry, 0, len(written))
	for _, one := range written {
		name, kind := NameAndType(one.Label)
		entries = append(entries, entry{Name: name, Type: kind, URL: one.Components})
	}
	config["providers"] = entries
	if w.options.Mode != Standard {
		url, version, err := w.certManager()
		if err != nil {
			return fmt.Errorf("cert-manager: %w", err)
		}
		config["cert-manager"] = map[string]any{"url": url, "version": version, "timeout": "1m"}
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", configName, err)
	}
	return w.file(configName, content, 0o644)
}

// certManager writes a cert-manager of CRDs alone. clusterctl init refuses to go on until an Issuer and a Certificate
// can be created, and with the CRDs they can; nobody acts on them, and nobody has to.
func (w *writer) certManager() (url, version string, err error) {
	found, err := fetchModule(w.options.Root, "cert-manager", "github.com/cert-manager/cert-manager")
	if err != nil {
		return "", "", err
	}
	files, err := filepath.Glob(filepath.Join(found.Dir, "deploy", "crds", "*.yaml"))
	if err != nil {
		return "", "", err
	}
	if len(files) == 0 {
		return "", "", fmt.Errorf("module %s holds no CRDs", found.Version)
	}
	// Its objects are looked up by namespace when a cluster is upgraded or moved.
	stream := bytes.NewBufferString("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: cert-manager\n")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", "", err
		}
		if !bytes.HasPrefix(content, []byte("---")) {
			stream.WriteString("---\n")
		}
		stream.Write(content)
	}
	path := filepath.Join("cert-manager", found.Version, certManagerComponents)
	return filepath.Join(w.base, path), found.Version, w.file(path, stream.Bytes(), 0o644)
}
