// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package artifacts brings the binaries, units and images of one Kubernetes version from a bundle to a host.
package artifacts

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
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

	// version of the bundle that the file is from, when it is not that of its manifest.
	version string
}

var (
	// Names that go into scripts and into paths: nothing that a shell or a URL would read otherwise.
	safePath  = regexp.MustCompile(`^[A-Za-z0-9._@+-]+(/[A-Za-z0-9._@+-]+)*$`)
	imageName = regexp.MustCompile(`^[A-Za-z0-9._/:@-]+$`)
	sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)
	fileMode  = regexp.MustCompile(`^0?[0-7]{3}$`)
)

// ParseManifest reads and checks a manifest: known kinds and roles, safe paths, well-formed checksums.
func ParseManifest(data []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("manifest.json is not the JSON of a bundle: %w; make the bundle again", err)
	}
	if m.KubernetesVersion == "" || m.Architecture == "" || len(m.Files) == 0 {
		return nil, fmt.Errorf("manifest.json lacks kubernetesVersion, architecture or files; make the bundle again")
	}
	if uname[m.Architecture] == "" {
		return nil,
			fmt.Errorf("manifest.json is for architecture %.64q, which is unknown; known are amd64, arm64, ppc64le, riscv64 "+
				"and s390x", m.Architecture)
	}
	seen := map[string]bool{}
	for i := range m.Files {
		file := &m.Files[i]
		if err := file.check(); err != nil {
			return nil, fmt.Errorf("manifest.json: file %q %w", file.Path, err)
		}
		for _, name := range []string{file.Path, file.Install} {
			if name != "" && seen[name] {
				return nil, fmt.Errorf("manifest.json names %s twice", name)
			}
			seen[name] = true
		}
	}
	return &m, nil
}

// of is the version whose bundle holds the file, which is in the manifest of version.
func (f *File) of(version string) string { return orDefault(f.version, version) }

func (f *File) check() error {
	f.SHA256 = strings.ToLower(f.SHA256)
	switch {
	case !safePath.MatchString(f.Path) || path.Clean(f.Path) != f.Path || strings.HasPrefix(f.Path, ".."):
		return fmt.Errorf("must be a plain path below the manifest")
	case !sha256Hex.MatchString(f.SHA256):
		return fmt.Errorf("has no sha256 of 64 hexadecimal digits")
	case f.Size < 0:
		return fmt.Errorf("has the size %d", f.Size)
	case len(f.Roles) == 0:
		return fmt.Errorf("has no roles, so nobody would ever need it")
	}
	for _, role := range f.Roles {
		if role != ControlPlane && role != Worker && role != Addon {
			return fmt.Errorf("has role %q; known are %s, %s and %s", role, ControlPlane, Worker, Addon)
		}
	}
	switch f.Kind {
	case Image:
		if len(f.Images) == 0 {
			return fmt.Errorf("is an image without a name in images")
		}
		for _, name := range f.Images {
			if !imageName.MatchString(name) {
				return fmt.Errorf("carries an image with the name %q", name)
			}
		}
		return nil
	case Binary:
		f.Mode = orDefault(f.Mode, "0755")
	case Unit:
		f.Mode = orDefault(f.Mode, "0644")
	default:
		return fmt.Errorf("has kind %q; known are %s, %s and %s", f.Kind, Binary, Image, Unit)
	}
	if !strings.HasPrefix(f.Install, "/") || path.Clean(f.Install) != f.Install || !safePath.MatchString(f.Install[1:]) {
		return fmt.Errorf("has install %q, which is not a plain absolute path", f.Install)
	}
	if !fileMode.MatchString(f.Mode) {
		return fmt.Errorf("has mode %q, which is not octal such as 0755", f.Mode)
	}
	if slices.Contains(f.Roles, Addon) {
		return fmt.Errorf("has role %s, but only images may: that role goes to hosts of an older version", Addon)
	}
	return nil
}

func orDefault(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

// Check says whether the manifest is for this version and machine. An empty architecture is not compared.
func (m *Manifest) Check(version, architecture string) error {
	switch {
	case m.KubernetesVersion != version:
		return fmt.Errorf("manifest.json is of a bundle for Kubernetes %s, expected %s; put the right bundle at that "+
			"location", m.KubernetesVersion, version)
	case m.OS != "" && m.OS != "linux":
		return fmt.Errorf("manifest.json is of a bundle for %s, expected linux; put the right bundle at that location", m.OS)
	case architecture != "" && m.Architecture != architecture:
		return fmt.Errorf("manifest.json is of a bundle for architecture %s, but the host is %s; put a bundle for %s at "+
			"that location, or select other hosts", m.Architecture, architecture, architecture)
	}
	return nil
}

// For returns the files that role needs, in the manifest's order.
func (m *Manifest) For(role Role) []File {
	var files []File
	for _, file := range m.Files {
		if slices.Contains(file.Roles, role) {
			files = append(files, file)
		}
	}
	return files
}

// takeKubeadm replaces the manifest's kubeadm by that of another version.
func (m *Manifest) takeKubeadm(other *Manifest) error {
	isKubeadm := func(f File) bool { return f.Kind == Binary && path.Base(f.Install) == "kubeadm" }
	from, at := slices.IndexFunc(other.Files, isKubeadm), slices.IndexFunc(m.Files, isKubeadm)
	for version, found := range map[string]int{other.KubernetesVersion: from, m.KubernetesVersion: at} {
		if found < 0 {
			return fmt.Errorf("the bundle of Kubernetes %s holds no binary kubeadm; make the bundle again", version)
		}
	}
	kubeadm := other.Files[from]
	kubeadm.version, kubeadm.Roles, kubeadm.Install = other.KubernetesVersion, m.Files[at].Roles, m.Files[at].Install
	m.Files[at] = kubeadm
	return nil
}

// takeAddons adds the images of another version's add-ons that are not in the manifest yet.
func (m *Manifest) takeAddons(other *Manifest) {
	for _, file := range other.For(Addon) {
		there := func(f File) bool { return f.Kind == Image && slices.Equal(f.Images, file.Images) }
		if !slices.ContainsFunc(m.Files, there) {
			file.version, file.Roles = other.KubernetesVersion, []Role{ControlPlane, Worker}
			m.Files = append(m.Files, file)
		}
	}
}
