// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// pulled is a group of Machines whose hosts see something of bundles.
type pulled struct {
	// group as of function group.
	group    string
	domain   string
	template *infrav1.QuoinMachineTemplate
	// versions that the group gets, and those whose add-on images its hosts get while they serve.
	versions, addons []string
	// sent is what the manager read of each version that it sends to the hosts, which have to have room for it only; nil
	// where they read it themselves.
	sent map[string]*artifacts.Supply
}

// role of the group's Machines.
func (p pulled) role() artifacts.Role {
	if p.group == "" {
		return artifacts.ControlPlane
	}
	return artifacts.Worker
}

// mayTake reports whether a Machine of the group could be made on the free host.
func (p pulled) mayTake(host *infrav1.QuoinHost) bool {
	of := p.template.Spec.Template.Spec
	request := placement.Request{Namespace: p.template.Namespace, HostNamespaces: of.HostNamespaces,
		FailureDomain: p.domain, Worker: p.group != ""}
	if of.HostSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(of.HostSelector)
		if err != nil {
			return false
		}
		request.Selector = selector
	}
	return placement.Select(request, []placement.Host{placement.HostOf(host)}).Chosen != nil
}

// lookAtPulled asks each host that gets something whether it reads the bundles and has room for them: one that serves
// for the add-on images, and a free one for all that its role needs.
func (s Subject) lookAtPulled(ctx context.Context, groups []pulled, hosts []clusterHost) []quoinv1.Finding {
	var asked []clusterHost
	for _, host := range hosts {
		if slices.ContainsFunc(groups, func(p pulled) bool { return len(p.wants(host)) > 0 }) {
			asked = append(asked, host)
		}
	}
	return s.eachHost(ctx, asked,
		func(ctx context.Context, host clusterHost, connection ssh.Host) ([]quoinv1.Finding, error) {
			var findings []quoinv1.Finding
			for _, group := range groups {
				for _, one := range group.wants(host) {
					found, err := group.ask(ctx, host, connection, one, s.BundleKeys)
					if err != nil {
						return nil, err
					}
					for _, finding := range found {
						if !slices.Contains(findings, finding) {
							findings = append(findings, finding)
						}
					}
				}
			}
			return findings, nil
		})
}

// hostWant is a version that a host gets in a role; none where it is only to be read.
type hostWant struct {
	version string
	role    artifacts.Role
}

// wants is what the host gets of the group's bundles.
func (p pulled) wants(host clusterHost) []hostWant {
	var all []hostWant
	if host.machine == nil {
		if p.mayTake(host.QuoinHost) {
			for _, version := range p.versions {
				all = append(all, hostWant{version, p.role()})
			}
		}
		return all
	}
	if of := group(host.machine); of == nil || *of != p.group {
		return nil
	}
	for _, version := range p.addons {
		all = append(all, hostWant{version, artifacts.Addon})
	}
	for _, version := range p.versions {
		if !slices.Contains(p.addons, version) {
			all = append(all, hostWant{version: version})
		}
	}
	return all
}

// ask has the host read the manifest as its installation will, and compares sizes with the room that it has.
func (p pulled) ask(
	ctx context.Context, host clusterHost, connection ssh.Host, one hostWant, keys []string,
) ([]quoinv1.Finding, error) {
	of := p.template.Spec.Template.Spec.Artifacts.Bundle
	from := artifacts.Wanted{Version: one.version, Once: true, OperatorKeys: keys,
		Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: of.Location, PublicKeys: of.PublicKeys,
			Proxy: of.Proxy, CertificateAuthorities: of.CertificateAuthorities}}}
	if host.Status.Facts != nil {
		from.Architecture = host.Status.Facts.Architecture
	}
	supply, err := p.sent[one.version], error(nil)
	switch {
	case p.sent == nil:
		supply, err = artifacts.Find(ctx, connection, from)
	case supply == nil:
		return nil, nil // which the manager tells
	}
	if err == nil && one.role != "" {
		err = supply.HasRoom(ctx, connection, one.role)
	}
	var room *artifacts.RoomError
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &room):
		return []quoinv1.Finding{host.finding("NoRoom", fmt.Sprintf("%s as %s: %v", one.version, one.role, room),
			"make room on its disk")}, nil
	case errors.Is(err, fs.ErrNotExist):
		at := strings.ReplaceAll(of.Location, "{{version}}", one.version) + "/manifest.json"
		return []quoinv1.Finding{host.finding("NoBundle", err.Error(),
			"put the bundle of "+one.version+" there, or see that the host reads "+at)}, nil
	case ctx.Err() != nil || ssh.IsTransient(err) || ssh.NeverRan(err) || errors.As(err, &exit):
		return nil, err // nobody knows
	}
	return []quoinv1.Finding{host.finding("BadBundle", err.Error(), "make the bundle again, or correct what the message "+
		"names")}, nil
}
