// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/resolve"
)

// templatePatterns are the files of templates/ that clusterctl looks for beside an infrastructure provider.
var templatePatterns = []string{"cluster-template*.yaml", "clusterclass-*.yaml"}

// provider writes the folder of one provider.
func (w *writer) provider(p provider) (Written, error) {
	root, metadata, version := w.options.Root, w.options.Root, w.ownVersion
	switch {
	case p.tests:
		// Released together, with one file of metadata.
		root, metadata, version = w.clusterAPITests.Dir, w.clusterAPI.Dir, w.clusterAPITests.Version
	case !p.own:
		root, metadata, version = w.clusterAPI.Dir, w.clusterAPI.Dir, w.clusterAPI.Version
	}
	folder := filepath.Join(p.label, version)
	written := Written{Label: p.label, Version: version, Components: filepath.Join(w.base, folder, p.components)}

	objects, err := render(filepath.Join(root, p.overlay))
	if err != nil {
		return Written{}, err
	}
	if image := w.options.Images[p.label]; image != "" {
		if err := resolve.ManagerImage(objects, image); err != nil {
			return Written{}, err
		}
	}
	if w.options.Mode != Standard {
		if objects, err = w.resolve(p, objects); err != nil {
			return Written{}, err
		}
		written.CertDir = filepath.Join(w.base, certFolder(p))
	}
	components, err := encode(objects)
	if err != nil {
		return Written{}, err
	}
	if err := w.file(filepath.Join(folder, p.components), components, 0o644); err != nil {
		return Written{}, err
	}
	if err := w.copy(filepath.Join(metadata, "metadata.yaml"), folder); err != nil {
		return Written{}, err
	}
	if p.templates {
		return written, w.copyTemplates(filepath.Join(root, "templates"), folder)
	}
	return written, nil
}

// resolve makes the components independent of cert-manager, and of pods in Envtest mode.
func (w *writer) resolve(p provider, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var addresses []net.IP
	if w.options.Mode == Envtest {
		addresses = append(addresses, net.IPv4(127, 0, 0, 1))
	}
	objects, certificates, err := resolve.Certificates(objects, w.authority, addresses...)
	if err != nil {
		return nil, err
	}
	if len(certificates) > 1 {
		return nil, fmt.Errorf("%d serving certificates: only the webhook's was expected", len(certificates))
	}
	for _, certificate := range certificates {
		if err := w.file(filepath.Join(certFolder(p), "tls.crt"), certificate.Certificate, 0o644); err != nil {
			return nil, err
		}
		if err := w.file(filepath.Join(certFolder(p), "tls.key"), certificate.Key, 0o600); err != nil {
			return nil, err
		}
	}
	if err := resolve.TrustWebhooks(objects, w.authority); err != nil {
		return nil, err
	}
	if w.options.Mode != Envtest {
		return objects, nil
	}
	if err := resolve.LocalWebhooks(objects, w.options.WebhookPorts[p.label]); err != nil {
		return nil, err
	}
	return objects, resolve.ScaleToZero(objects)
}

func certFolder(p provider) string { return filepath.Join("pki", p.label) }

func (w *writer) copyTemplates(from, folder string) error {
	for _, pattern := range templatePatterns {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return fmt.Errorf("templates: %w", err)
		}
		for _, file := range files {
			if err := w.copy(file, folder); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) copy(file, folder string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("copying %s: %w", filepath.Base(file), err)
	}
	return w.file(filepath.Join(folder, filepath.Base(file)), content, 0o644)
}
