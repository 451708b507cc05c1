// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

// managerLabels are the providers that run an image, by the image's last name.
var managerLabels = map[string][]string{
	"cluster-api-controller":       {repository.CoreLabel},
	"kubeadm-bootstrap-controller": {repository.BootstrapLabel},
	"quoin-manager":                {repository.InfrastructureLabel, repository.ControlPlaneLabel},
}

// managerImages reads the names of the images in archives and tells which provider runs which.
func managerImages(archives []string) (map[string]string, error) {
	images := map[string]string{}
	for _, archive := range archives {
		names, err := imageNames(archive)
		if err != nil {
			return nil, fmt.Errorf("image archive %s: %w", archive, err)
		}
		for _, name := range names {
			last, _, _ := strings.Cut(path.Base(name), ":")
			for _, label := range managerLabels[last] {
				images[label] = name
			}
		}
	}
	for _, label := range repository.Labels() {
		if images[label] == "" {
			return nil, fmt.Errorf("no image for the manager of %s among %s", label, strings.Join(archives, ", "))
		}
	}
	return images, nil
}

// imageNames reads an archive's manifest.
func imageNames(archive string) ([]string, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no manifest.json")
		}
		if err != nil {
			return nil, err
		}
		if header.Name != "manifest.json" {
			continue
		}
		var images []struct{ RepoTags []string }
		if err := json.NewDecoder(reader).Decode(&images); err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		var names []string
		for _, image := range images {
			names = append(names, image.RepoTags...)
		}
		return names, nil
	}
}
