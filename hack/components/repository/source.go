// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// module is a Go module in the module cache.
type module struct {
	Dir     string
	Version string
	Error   string
}

// fetchModule brings the module that a tools module pins into the module cache, checked against its go.sum.
func fetchModule(root, tools, path string) (module, error) {
	var stdout, stderr bytes.Buffer
	command := exec.Command("go", "mod", "download", "-json", path)
	command.Dir = filepath.Join(root, "hack", "tools", tools)
	command.Env = append(os.Environ(), "GOWORK=off")
	command.Stdout, command.Stderr = &stdout, &stderr
	runErr := command.Run()
	var found module
	if err := json.Unmarshal(stdout.Bytes(), &found); err != nil {
		return module{}, fmt.Errorf("fetching module %s: %w: %s", path, runErr, stderr.String())
	}
	if runErr != nil || found.Error != "" {
		return module{}, fmt.Errorf("fetching module %s: %s", path, found.Error)
	}
	return found, nil
}

// render builds a kustomization into objects.
func render(dir string) ([]*unstructured.Unstructured, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w", dir, err)
	}
	objects := make([]*unstructured.Unstructured, 0, resources.Size())
	for _, resource := range resources.Resources() {
		// Through JSON, for the number types that unstructured objects insist on.
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("kustomize build %s: %s: %w", dir, resource.CurId(), err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("kustomize build %s: %s: %w", dir, resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// encode writes objects as one YAML stream.
func encode(objects []*unstructured.Unstructured) ([]byte, error) {
	var stream bytes.Buffer
	for i, object := range objects {
		if i > 0 {
			stream.WriteString("---\n")
		}
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		stream.Write(document)
	}
	return stream.Bytes(), nil
}

// newestVersion is the first version of the newest series in a clusterctl metadata file.
func newestVersion(metadata string) (string, error) {
	content, err := os.ReadFile(metadata)
	if err != nil {
		return "", fmt.Errorf("reading the release series: %w", err)
	}
	var file struct {
		ReleaseSeries []struct {
			Major int `json:"major"`
			Minor int `json:"minor"`
		} `json:"releaseSeries"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return "", fmt.Errorf("reading the release series of %s: %w", metadata, err)
	}
	if len(file.ReleaseSeries) == 0 {
		return "", fmt.Errorf("%s names no release series", metadata)
	}
	newest := file.ReleaseSeries[0]
	for _, series := range file.ReleaseSeries {
		if series.Major > newest.Major || series.Major == newest.Major && series.Minor > newest.Minor {
			newest = series
		}
	}
	return fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor), nil
}
