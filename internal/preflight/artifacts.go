// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// lookAtArtifacts looks whether each version on the way can be had where the templates say: by the manager that pushes
// a bundle, and by each host that reads it itself. Packages it does not see.
func lookAtArtifacts(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	versions, err := s.raised(ctx)
	if err != nil {
		return "", nil, err
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return "", nil, err
	}
	hosts, err := s.clusterHosts(ctx)
	if err != nil {
		return "", nil, err
	}
	looked := sources{s: s, hosts: hosts, addons: versions[string(plan.ControlPlane)]}
	var findings []quoinv1.Finding
	if s.ControlPlane != nil {
		found, err := looked.judge(ctx, "QuoinControlPlane "+s.ControlPlane.Name, pulled{versions: looked.addons},
			s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef)
		if err != nil {
			return "", nil, err
		}
		findings = append(findings, found...)
	}
	for i := range pools {
		object, template := "MachineDeployment "+pools[i].Name, pools[i].Spec.Template.Spec
		found, err := looked.judge(ctx, object,
			pulled{group: pools[i].Name, domain: template.FailureDomain, versions: versions[object]}, template.InfrastructureRef)
		if err != nil {
			return "", nil, err
		}
		findings = append(findings, found...)
	}
	findings = append(findings, s.lookAtPulled(ctx, looked.pulled, hosts)...)
	return fmt.Sprintf("%d bundles, as their manifests tell", looked.bundles), findings, nil
}

// raised are the versions that the control plane and the pools get on the way. Where no way is known that is the
// target, and a minor of which any patch will do is left out.
func (s Subject) raised(ctx context.Context) (map[string][]string, error) {
	seen, way, err := s.planned(ctx)
	if err != nil {
		return nil, err
	}
	versions := map[string][]string{}
	if way == nil {
		versions[string(plan.ControlPlane)] = []string{s.Version}
		for _, pool := range seen.state().Pools {
			versions[pool.Object] = []string{s.Version}
		}
		return versions, nil
	}
	for _, step := range way.Steps {
		raised := step.Pool
		if step.Raises == plan.ControlPlane {
			raised = string(plan.ControlPlane)
		}
		if !way.AnyPatch || step.To == way.Target {
			versions[raised] = append(versions[raised], step.To)
		}
	}
	return versions, nil
}

// sources are what templates say.
type sources struct {
	s     Subject
	hosts []clusterHost
	// addons are the versions whose add-on images every host gets.
	addons []string
	// pulled are the groups whose hosts are to be asked.
	pulled []pulled
	// bundles is how many were looked at.
	bundles int
}

// judge finds what the template's source lacks of the versions. Supply says of a template that is not there.
func (l *sources) judge(
	ctx context.Context, object string, of pulled, ref clusterv1.ContractVersionedObjectReference,
) ([]quoinv1.Finding, error) {
	versions := of.versions
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group || len(versions) == 0 {
		return nil, nil
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: l.s.Cluster.Namespace, Name: ref.Name}
	switch err := l.s.Management.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read QuoinMachineTemplate %s of %s: %w", key, object, err)
	}
	switch from := template.Spec.Template.Spec.Artifacts; {
	case from.Packages != nil:
		return judgePackages(object, from.Packages, versions), nil
	case from.Bundle != nil && from.Bundle.Delivery != infrav1.BundleDeliveryPush && l.asks(of, template):
		l.bundles += len(versions)
		return nil, nil
	case from.Bundle != nil && !strings.HasPrefix(from.Bundle.Location, "/"):
		var findings []quoinv1.Finding
		of.sent = map[string]*artifacts.Supply{}
		for _, version := range versions {
			found, supply := l.judgeBundle(ctx, object, template, version)
			findings, of.sent[version] = append(findings, found...), supply
		}
		if from.Bundle.Delivery == infrav1.BundleDeliveryPush {
			l.asks(of, template) // for their room
		}
		return findings, nil
	}
	return []quoinv1.Finding{unseen(object, "QuoinMachineTemplate "+key.Name+" has them lie on its hosts, or beside what "+
		"brings them there", versions)}, nil
}

// asks reports whether there are hosts that see the group's bundles, and has them asked.
func (l *sources) asks(of pulled, template *infrav1.QuoinMachineTemplate) bool {
	of.template, of.addons = template, l.addons
	if !slices.ContainsFunc(l.hosts, func(host clusterHost) bool { return len(of.wants(host)) > 0 }) {
		return false
	}
	l.pulled = append(l.pulled, of)
	return true
}

// judgeBundle reads a bundle's manifest as whoever brings the bundle to a host does, and verifies its signature. The
// supply is nil when that fails.
func (l *sources) judgeBundle(
	ctx context.Context, object string, template *infrav1.QuoinMachineTemplate, version string,
) ([]quoinv1.Finding, *artifacts.Supply) {
	of := template.Spec.Template.Spec.Artifacts.Bundle
	l.bundles++
	supply, err := artifacts.Find(ctx, nil, artifacts.Wanted{
		Version: version, Architecture: string(template.Status.NodeInfo.Architecture),
		Control: l.s.Egress.Control, OperatorKeys: l.s.BundleKeys,
		Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: of.Location, Push: true, PublicKeys: of.PublicKeys,
			Proxy: of.Proxy, CertificateAuthorities: of.CertificateAuthorities}}})
	var unread *artifacts.DepotError
	switch {
	case err == nil:
		return nil, supply
	case errors.Is(err, fs.ErrNotExist):
		return []quoinv1.Finding{blocks(object, "NoBundle", err.Error(),
			fmt.Sprintf("put the bundle of %s there, or ask for a version that there is one of", version))}, nil
	case errors.As(err, &unread) && of.Delivery != infrav1.BundleDeliveryPush:
		return []quoinv1.Finding{warns(object, "BundleNotSeen", err.Error()+"; its hosts, which fetch it, may be able to",
			"see that they are: curl -I "+strings.ReplaceAll(of.Location, "{{version}}", version)+"/manifest.json")}, nil
	}
	return []quoinv1.Finding{blocks(object, "BadBundle", err.Error(),
		"make the bundle again, or correct what the message names")}, nil
}

// minorOfRepository is a minor in a repository's path, such as that of packages.test/core:/stable:/v1.35/deb/.
var minorOfRepository = regexp.MustCompile(`[/:]v(\d+\.\d+)(?:[./\s]|$)`)

// judgePackages finds a repository of one minor, which has no other.
func judgePackages(object string, packages *infrav1.Packages, versions []string) []quoinv1.Finding {
	fixed := minorOfRepository.FindStringSubmatch(packages.Repository)
	var lacking []string
	for _, version := range versions {
		if of, err := skew.Parse(version); fixed != nil && err == nil &&
			fixed[1] != fmt.Sprintf("%d.%d", of.Major(), of.Minor()) {
			lacking = append(lacking, version)
		}
	}
	if len(lacking) == 0 {
		return []quoinv1.Finding{unseen(object, "its hosts' package manager gets them", versions)}
	}
	return []quoinv1.Finding{blocks(object, "OtherMinor", fmt.Sprintf(
		"its repository of packages is that of v%s, which has no %s", fixed[1], strings.Join(lacking, ", ")),
		"make a template with {{minor}} in the repository, and refer to it")}
}

// unseen is said of what only hosts see.
func unseen(object, why string, versions []string) quoinv1.Finding {
	return warns(object, "NotLookedAt", fmt.Sprintf("whether %s can be had is not known: %s",
		strings.Join(versions, ", "), why), "see that each host has what it needs")
}
