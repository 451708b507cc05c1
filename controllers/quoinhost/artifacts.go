// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
)

// artifacts of a version for this host: what the QuoinMachine says, in the words of the package that acts on it.
func (t *turn) artifacts(version string) artifacts.Wanted {
	spec := t.claim.quoinMachine.Spec
	wanted := artifacts.Wanted{Version: version, Source: sourceOf(spec.Artifacts), AddonVersions: spec.AddonVersions}
	if t.host.Status.Facts != nil {
		wanted.Architecture = t.host.Status.Facts.Architecture
	}
	return wanted
}

// sourceOf translates the API's words.
func sourceOf(a infrav1.Artifacts) artifacts.Source {
	var source artifacts.Source
	if b := a.Bundle; b != nil {
		source.Bundle = &artifacts.Bundle{
			Location: b.Location, Push: b.Delivery == infrav1.BundleDeliveryPush, PublicKeys: b.PublicKeys,
			Proxy: b.Proxy, CertificateAuthorities: b.CertificateAuthorities,
		}
		if b.BytesPerSecond != nil {
			source.Bundle.BytesPerSecond = b.BytesPerSecond.Value()
		}
	}
	if p := a.Packages; p != nil {
		source.Packages = &artifacts.Packages{Repository: p.Repository, SigningKey: p.SigningKey}
	}
	if p := a.Preinstalled; p != nil {
		source.Preinstalled = &artifacts.Preinstalled{ImagesRequired: p.Images == "Required"}
	}
	return source
}
