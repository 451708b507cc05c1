// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repository writes a local clusterctl repository: one folder per provider and version with its components,
// metadata and templates, and a clusterctl.yaml that points at them.
//
// The components of Cluster API come out of its module's kustomize configuration and ours out of config/, so that what
// is tested is what is released, changed only where a test has to differ.
package repository

import (
	"fmt"
	"slices"
	"strings"
)

// Mode says where the components are going to run.
type Mode string

const (
	// Standard leaves the components as they are shipped: certificates come from cert-manager.
	Standard Mode = "standard"
	// Resolved is for clusters without cert-manager: certificates and CA bundles are made while writing.
	Resolved Mode = "resolved"
	// Envtest is Resolved for a bare API server: webhooks are called on loopback ports and no pod is asked for.
	Envtest Mode = "envtest"
)

// Options of one repository.
type Options struct {
	// Root is the checkout that holds config/, templates/ and hack/tools/.
	Root string
	// Base is the folder to write. It is replaced as a whole.
	Base string
	// Mode is where the components are going to run.
	Mode Mode
	// Version of our own providers; empty means the first version of the newest series in metadata.yaml.
	Version string
	// Providers are the labels of the providers to include; empty means Labels.
	Providers []string
	// Images replaces the manager's image, by provider label.
	Images map[string]string
	// WebhookPorts are the loopback ports of Envtest, by provider label.
	WebhookPorts map[string]int
	// Variables are written to clusterctl.yaml, where clusterctl finds them for every command.
	Variables map[string]string
}

// Repository is what was written.
type Repository struct {
	// Base is the folder, absolute.
	Base string
	// Config is the path of clusterctl.yaml.
	Config string
	// Providers are those written, in the order clusterctl installs them.
	Providers []Written
}

// Written is one provider in a repository.
type Written struct {
	// Label is the clusterctl label, like infrastructure-quoin.
	Label string
	// Version is the provider's version.
	Version string
	// Components is the path of the components file.
	Components string
	// CertDir holds tls.crt and tls.key of the webhook server; empty in Standard mode.
	CertDir string
}

func (o Options) validate() error {
	switch o.Mode {
	case Standard, Resolved, Envtest:
	default:
		return fmt.Errorf("mode %q is none of %s, %s, %s", o.Mode, Standard, Resolved, Envtest)
	}
	known := labels(func(provider) bool { return true })
	for _, label := range o.labels() {
		if !slices.Contains(known, label) {
			return fmt.Errorf("provider %q is none of %s", label, strings.Join(known, ", "))
		}
		if o.Mode == Envtest && o.WebhookPorts[label] == 0 {
			return fmt.Errorf("mode %s needs a webhook port for %s", Envtest, label)
		}
	}
	for label := range o.Images {
		if !slices.Contains(known, label) {
			return fmt.Errorf("image for %q: provider is none of %s", label, strings.Join(known, ", "))
		}
	}
	return nil
}

func (o Options) labels() []string {
	if len(o.Providers) == 0 {
		return Labels()
	}
	return o.Providers
}
