// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
)

// slowest is a rate at which what is sent at once takes a minute; anything slower would look like a dead connection.
var slowest = resource.MustParse("1Ki")

// validateArtifacts asks what the host will be asked, minutes earlier. Only at creation: artifacts never change after
// that, and what was once admitted must remain updatable. The schema sees to it that there is exactly one source.
//
// Forbidden instead of Invalid, which would repeat the value: it may hold a password, or pages of PEM.
func validateArtifacts(path *field.Path, spec *infrav1.QuoinMachineSpec) field.ErrorList {
	path = path.Child("artifacts")
	if bundle := spec.Artifacts.Bundle; bundle != nil {
		return validateBundle(path.Child("bundle"), bundle)
	}
	if p := spec.Artifacts.Packages; p != nil {
		source := artifacts.Source{Packages: &artifacts.Packages{Repository: p.Repository, SigningKey: p.SigningKey}}
		if err := source.Check(); err != nil {
			return field.ErrorList{field.Forbidden(path.Child("packages"), err.Error())}
		}
	}
	return nil
}

func validateBundle(path *field.Path, bundle *infrav1.Bundle) field.ErrorList {
	var reasons field.ErrorList
	refuse := func(path *field.Path, why string) { reasons = append(reasons, field.Forbidden(path, why)) }
	if _, err := artifacts.ParseLocation(bundle.Location); err != nil {
		refuse(path.Child("location"), err.Error())
	}
	for i, key := range bundle.PublicKeys {
		if _, err := artifacts.ParsePublicKeys([]string{key}); err != nil {
			refuse(path.Child("publicKeys").Index(i), err.Error())
		}
	}
	remote := !strings.HasPrefix(bundle.Location, "/")
	switch err := artifacts.CheckProxy(bundle.Proxy); {
	case err != nil:
		refuse(path.Child("proxy"), err.Error())
	case bundle.Proxy != "" && !remote:
		refuse(path.Child("proxy"), "the location is a path, which no proxy is needed for: leave the proxy out")
	}
	switch err := artifacts.CheckAuthorities(bundle.CertificateAuthorities); {
	case err != nil:
		refuse(path.Child("certificateAuthorities"), err.Error())
	case bundle.CertificateAuthorities != "" && !strings.HasPrefix(bundle.Location, "https:"):
		refuse(path.Child("certificateAuthorities"), "the location is not https://, so there is no certificate to verify: "+
			"leave the authorities out, or correct the location")
	}
	if rate := bundle.BytesPerSecond; rate != nil {
		switch {
		case rate.Cmp(slowest) < 0 || resource.NewQuantity(rate.Value(), rate.Format).Cmp(*rate) != 0:
			refuse(path.Child("bytesPerSecond"), "give a whole number of at least 1Ki, such as 10M, or leave it out for no "+
				"bound")
		case !remote && bundle.Delivery != infrav1.BundleDeliveryPush:
			refuse(path.Child("bytesPerSecond"),
				"the location is a path on the host, from which nothing is fetched: leave the bound out")
		}
	}
	return reasons
}

// artifactWarnings are about what works and may be regretted.
func artifactWarnings(spec *infrav1.QuoinMachineSpec) []string {
	var warnings []string
	if b := spec.Artifacts.Bundle; b != nil && strings.HasPrefix(b.Location, "http:") && len(b.PublicKeys) == 0 {
		warnings = append(warnings, "the bundle comes over plain HTTP and nothing says whose it is: whoever answers at the "+
			"location has the hosts; "+
			"use https://, or sign the bundles and give spec.artifacts.bundle.publicKeys")
	}
	if p := spec.Artifacts.Packages; p != nil && p.Repository != "" && p.SigningKey == "" &&
		!strings.Contains(p.Repository, "signed-by=") {
		warnings = append(warnings, "nothing says whose packages the repository has: give spec.artifacts.packages.signingKey")
	}
	return warnings
}
