// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// support is what a release series of Cluster API supports.
type support struct {
	Series   string `json:"series"`
	Workload uint64 `json:"workload"`
	Managing uint64 `json:"managing"`
	Newest   []struct {
		Minor uint64 `json:"minor"`
		Since string `json:"since"`
	} `json:"newest"`
}

//go:embed clusterapi.yaml
var supportText []byte

// supported is read when the process starts; a table that cannot be read is a defect of the program.
var supported = func() (all []support) {
	if err := yaml.UnmarshalStrict(supportText, &all); err != nil {
		panic(fmt.Errorf("table clusterapi.yaml: %w", err))
	}
	return all
}()

// lookAtProviders looks whether the providers that are installed, as clusterctl wrote them down, support the version.
// Self says that the Cluster is the one that they run in.
func lookAtProviders(ctx context.Context, s Subject, self bool) ([]quoinv1.Finding, error) {
	unknown := func(why string) []quoinv1.Finding {
		return []quoinv1.Finding{warns("", "ProvidersUnknown", "which providers are installed is not known: "+why,
			"see that the version of Cluster API supports "+s.Version)}
	}
	installed := &clusterctlv1.ProviderList{}
	switch err := s.Management.List(ctx, installed); {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return unknown("clusterctl did not install them"), nil
	case apierrors.IsForbidden(err):
		return unknown(err.Error()), nil
	case err != nil:
		return nil, fmt.Errorf("list the Providers: %w", err)
	case len(installed.Items) == 0:
		return unknown("clusterctl did not install them"), nil
	}
	target, err := skew.Parse(s.Version)
	if err != nil {
		return nil, err
	}
	var findings []quoinv1.Finding
	ours := map[string]string{}
	for i := range installed.Items {
		provider := &installed.Items[i]
		switch name := provider.ManifestLabel(); name {
		case "cluster-api", "bootstrap-kubeadm":
			findings = append(findings, judgeProvider(name, provider.Version, target, self)...)
		case "infrastructure-quoin", "control-plane-quoin":
			ours[name] = provider.Version
		}
	}
	if a, b := ours["infrastructure-quoin"], ours["control-plane-quoin"]; a != b && len(ours) > 1 {
		findings = append(findings, warns("Provider control-plane-quoin", "OtherVersion", fmt.Sprintf(
			"is %s, and infrastructure-quoin is %s: nobody tests the two together", b, a),
			"bring both to one version with clusterctl upgrade apply"))
	}
	return findings, nil
}

// judgeProvider finds a release of Cluster API that does not support the version.
func judgeProvider(name, version string, target *semver.Version, self bool) []quoinv1.Finding {
	object := "Provider " + name
	installed, err := skew.Parse(version)
	series := -1
	if err == nil {
		series = slices.IndexFunc(supported, func(of support) bool {
			return of.Series == fmt.Sprintf("%d.%d", installed.Major(), installed.Minor())
		})
	}
	of, newest := support{}, uint64(0)
	if series >= 0 {
		of = supported[series]
	}
	for _, step := range of.Newest {
		if since, err := skew.Parse(step.Since); err == nil && skew.Compare(since, installed) <= 0 {
			newest = step.Minor
		}
	}
	if newest == 0 { // an unknown series, or a version before its first release
		return []quoinv1.Finding{warns(object, "SupportUnknown", fmt.Sprintf(
			"whether %s supports v%d.%d is not known here", version, target.Major(), target.Minor()),
			"look at the support matrix in the book of Cluster API")}
	}
	oldest, what := of.Workload, "clusters"
	if self {
		oldest, what = of.Managing, "the cluster that it runs in"
	}
	if target.Minor() >= oldest && target.Minor() <= newest {
		return nil
	}
	return []quoinv1.Finding{warns(object, "NotSupported", fmt.Sprintf("%s supports v1.%d to v1.%d of %s, and not %s",
		version, oldest, newest, what, "v"+target.String()), "bring Cluster API to a release that supports it first: "+
		"clusterctl upgrade plan")}
}
