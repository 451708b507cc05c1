// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Wanted is one version for one host.
type Wanted struct {
	// Version such as "v1.36.3".
	Version string
	// Architecture of the host in Go's words; empty when unknown.
	Architecture string
	Source
	// Kubeadm is the version whose kubeadm comes with Version, for a node that joins API servers of a newer one: the
	// kubelet may be three minors older than they are, kubeadm none. Empty means that of Version. Bundles alone can mix.
	Kubeadm string
	// AddonVersions are further versions whose add-on images the host needs, because CoreDNS and kube-proxy are of one of
	// them: they stay when what other versions left is removed, and from bundles that can be had they come before the node
	// joins.
	AddonVersions []string
	// OperatorKeys are public keys of whoever runs the manager: a bundle that none of them signed is refused, whatever
	// keys its source names. Without any, the source's count alone.
	OperatorKeys []string
	// Once has a host that fetches try once, and a few seconds only, as who just looks does.
	Once bool
	// Vetted remembers what was read of pushed bundles, over many calls; nil begins anew with each.
	Vetted *Vetted
	// Control is that of net.Dialer, for this process's own connections to the server of a bundle: what it refuses is not
	// connected to. Nothing is refused when nil.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// Place names the source, for people.
func (w Wanted) Place() string {
	switch {
	case w.Bundle != nil:
		location, err := ParseLocation(w.Bundle.Location)
		if err != nil {
			return w.Bundle.Location
		}
		return location.At(w.Version)
	case w.Packages != nil:
		return "packages of Kubernetes " + w.Version
	}
	return "preinstalled Kubernetes " + w.Version
}

// Supply is a version whose source was found and may be trusted.
type Supply struct {
	wanted   Wanted
	location Location
	manifest *Manifest
}

// Find looks at the source of a version, as far as it can be looked at without changing the host: the manifest of a
// bundle is read, by the host or by this process, and its signature verified.
func Find(ctx context.Context, host ssh.Host, wanted Wanted) (*Supply, error) {
	if !versionText.MatchString(wanted.Version) {
		return nil, fmt.Errorf("version %q is not of the form v1.36.3", wanted.Version)
	}
	if err := wanted.Check(); err != nil {
		return nil, err
	}
	s := &Supply{wanted: wanted}
	if wanted.Bundle == nil {
		return s, nil
	}
	var err error
	if s.location, err = ParseLocation(wanted.Bundle.Location); err != nil {
		return nil, err
	}
	if s.manifest, err = s.read(ctx, host, wanted); err != nil {
		return nil, err
	}
	for _, version := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(wanted.AddonVersions),
		wanted.Kubeadm)))) {
		if version == "" || version == wanted.Version {
			continue
		}
		of := wanted
		of.Version = version
		other, err := s.read(ctx, host, of)
		if err != nil && (version == wanted.Kubeadm || ctx.Err() != nil) {
			return nil, err
		}
		if err != nil {
			continue // a node joins without them, and the plan that brings them later says what is wrong
		}
		if version == wanted.Kubeadm {
			if err := s.manifest.takeKubeadm(other); err != nil {
				return nil, err
			}
		}
		if slices.Contains(wanted.AddonVersions, version) {
			s.manifest.takeAddons(other)
		}
	}
	return s, nil
}

// read reads the manifest of a version's bundle.
func (s *Supply) read(ctx context.Context, host ssh.Host, wanted Wanted) (*Manifest, error) {
	if !versionText.MatchString(wanted.Version) {
		return nil, fmt.Errorf("version %q is not of the form v1.36.3", wanted.Version)
	}
	read := func(ctx context.Context, name string) ([]byte, error) {
		return readByHost(ctx, host, wanted, s.location, name)
	}
	if wanted.Pushed() {
		d := openDepot(wanted, s.location, wanted.Version)
		defer d.close()
		read = d.read
	}
	return readManifest(ctx, read, wanted)
}

// Plan is what brings to a host what role needs, with the files that the steps read. With role Addon these are the
// images that a host of an older version must hold before kube-proxy and CoreDNS follow to this version.
//
// Every step may run again; on a host that has the version already they take a moment.
func (s *Supply) Plan(role Role) ([]run.Step, []run.File, error) {
	if role != ControlPlane && role != Worker && role != Addon {
		return nil, nil, fmt.Errorf("role %q is unknown; known are %s, %s and %s", role, ControlPlane, Worker, Addon)
	}
	switch {
	case s.wanted.Packages != nil:
		return s.packagesPlan(role)
	case s.wanted.Preinstalled != nil:
		return s.preinstalledPlan(role), nil, nil
	}
	return s.bundlePlan(role)
}

// HasRoom asks the host, in one exchange that changes nothing, whether its file systems have room for what role needs
// of a bundle, by the sizes of the manifest: the very words by which the installation refuses to begin. Files that are
// pushed wait on the host until all of them are there, so they take their room twice. It returns a *RoomError when
// there is too little.
func (s *Supply) HasRoom(ctx context.Context, host ssh.Host, role Role) error {
	if s.manifest == nil {
		return nil // of packages, and what lies on hosts already, nobody knows the sizes here
	}
	files := s.manifest.For(role)
	_, err := host.Run(ctx, ssh.Command{Sudo: true, Script: "QUOIN_ROOT=" + ssh.Quote(hostRoot) + "\n" + run.Prelude +
		s.library() + s.roomScript(files, s.wanted.Pushed())})
	var exit *ssh.ExitError
	if errors.As(err, &exit) && exit.Code == 1 {
		return &RoomError{text: strings.TrimSpace(exit.Stderr)}
	}
	if err != nil {
		return fmt.Errorf("ask the host for its room: %w", err)
	}
	return nil
}

// RoomError says which file system of a host has too little room.
type RoomError struct{ text string }

func (e *RoomError) Error() string { return e.text }
