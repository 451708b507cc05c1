// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package artifacts brings the binaries, units and images of one Kubernetes version from a bundle to a host.
package artifacts

import (
	"context"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Kind is what a file of a bundle is.
type Kind string

const (
	// Binary is an executable, installed atomically.
	Binary Kind = "binary"
	// Image is a docker-archive or OCI tar with one image, imported into containerd.
	Image Kind = "image"
	// Unit is a systemd unit or drop-in.
	Unit Kind = "unit"
)

// Role says which hosts need a file.
type Role string

const (
	// ControlPlane hosts run the API server, etcd and their companions.
	ControlPlane Role = "control-plane"
	// Worker hosts run workloads only.
	Worker Role = "worker"
	// Addon marks images that hosts of an older version must hold before kube-proxy and CoreDNS follow to this version.
	Addon Role = "addon"
)

// Manifest is <bundle>/manifest.json.
type Manifest struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	OS                string `json:"os"`
	// Architecture in Go's words: amd64, arm64.
	Architecture string `json:"architecture"`
	Files        []File `json:"files"`
}

// File is one file of a bundle.
type File struct {
	// Path is relative to the manifest.
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Kind   Kind   `json:"kind"`
	// Install is the absolute path on the host, for binaries and units.
	Install string `json:"install,omitempty"`
	// Mode is octal text; default 0755 for binaries, 0644 for units.
	Mode string `json:"mode,omitempty"`
	// Images are the names that the tar carries.
	Images []string `json:"images,omitempty"`
	Roles  []Role   `json:"roles"`
}

// ParseManifest reads and checks a manifest: known kinds and roles, safe paths, well-formed checksums.
func ParseManifest(data []byte) (*Manifest, error) { panic("not yet") }

// Check says whether the manifest is for this version and machine. An empty architecture is not compared.
func (m *Manifest) Check(version, architecture string) error { panic("not yet") }

// For returns the files that role needs, in the manifest's order.
func (m *Manifest) For(role Role) []File { panic("not yet") }

// ImageNames returns the image names that role needs.
func (m *Manifest) ImageNames(role Role) []string { panic("not yet") }

// Source is where bundles come from: an absolute path on the host or an http(s) URL, with {{version}} in it.
type Source struct{ location string }

// ParseSource checks a location.
func ParseSource(location string) (Source, error) { panic("not yet") }

// At is the location of one version's bundle, version being "v1.36.3".
func (s Source) At(version string) string { panic("not yet") }

// Remote says that the bundle is fetched by HTTP.
func (s Source) Remote() bool { panic("not yet") }

// FetchManifest reads the manifest through the host, as the host itself will read the files (one SSH exchange), and checks
// it for version and architecture.
func FetchManifest(ctx context.Context, host ssh.Host, source Source, version, architecture string) (*Manifest, error) {
	panic("not yet")
}

// InstallSteps fetches, verifies and installs what role needs, and imports and pins its images. Every step may run again;
// on a host that already holds the version they take a moment.
func InstallSteps(m *Manifest, source Source, role Role) ([]run.Step, error) { panic("not yet") }

// AddonSteps imports and pins only the images with role Addon.
func AddonSteps(m *Manifest, source Source) ([]run.Step, error) { panic("not yet") }
