// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// judgeHealing warns of pools whose version stays so far behind the control plane that no further Machine of them comes
// to be: its host cannot join (R15), or Cluster API does not make it (C17). Only a bundle brings the control plane's
// kubeadm to a worker: packages, and hosts that carry a version already, have that of the pool. Of another provider's
// control plane nothing is known.
func (s Subject) judgeHealing(
	ctx context.Context, pools []clusterv1.MachineDeployment, goals goals,
) ([]quoinv1.Finding, error) {
	policies, err := skew.PoliciesOf(s.Cluster)
	if err != nil || s.ControlPlane == nil {
		return nil, nil //nolint:nilerr // VersionPath blocks by it
	}
	var findings []quoinv1.Finding
	for i := range pools {
		goal, object := s.goal(goals, pools[i].Name), "MachineDeployment "+pools[i].Name
		from, err := s.artifacts(ctx, pools[i].Spec.Template.Spec.InfrastructureRef)
		if err != nil {
			return nil, err
		}
		if from == nil || goal == s.Version {
			continue
		}
		installer := skew.Installer{Object: "its hosts", Version: goal, Kubelet: goal, Cluster: s.Version}
		var violations []skew.Violation
		for _, policy := range policies {
			violations = append(violations, policy.CheckInstaller(installer)...)
		}
		if from.Bundle == nil && len(violations) > 0 {
			findings = append(findings, warns(object, "CannotHeal", fmt.Sprintf("it stays at %s and its hosts are %s, with a "+
				"kubeadm of that version, which joins no control plane of %s (%s): from then on the pool neither heals nor grows",
				goal, installed(from), s.Version, violations[0].Rule), fmt.Sprintf("raise it with the control plane, by workers: "+
				"All or spec.template.spec.version: %s, or give it a template with artifacts.bundle", s.Version)))
			continue
		}
		template := pools[i].Spec.Template.Spec
		skipped, err := observed.Skipped(ctx, s.Management, &pools[i], template)
		if err != nil {
			return nil, err
		}
		template.Version = goal
		if missing := observed.StoppedBy(s.Cluster, template, s.Version, skipped); len(missing) > 0 {
			findings = append(findings, warns(object, "CannotHeal", fmt.Sprintf("it stays at %s, for which Cluster API makes "+
				"no Machine beside a control plane of %s while it makes its check %s (C17): from then on the pool neither heals "+
				"nor grows", goal, s.Version, strings.Join(missing, " and ")), fmt.Sprintf("set annotation %s: %s of it, in a "+
				"topology by metadata.annotations of its class or its entry there, or raise it with the control plane",
				clusterv1.MachineSetSkipPreflightChecksAnnotation, strings.Join(append(skipped, missing...), ","))))
		}
	}
	return findings, nil
}

// artifacts says how the template's hosts come by them; nil where the template is not ours, and where it is not there.
func (s Subject) artifacts(
	ctx context.Context, ref clusterv1.ContractVersionedObjectReference,
) (*infrav1.Artifacts, error) {
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return nil, nil //nolint:nilnil // another provider's
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: s.Cluster.Namespace, Name: ref.Name}
	switch err := s.Management.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // it has no hosts
	case err != nil:
		return nil, fmt.Errorf("read QuoinMachineTemplate %s: %w", key, err)
	}
	return &template.Spec.Template.Spec.Artifacts, nil
}

// installed says how hosts come by a kubeadm of their own version.
func installed(from *infrav1.Artifacts) string {
	if from.Packages != nil {
		return "installed from packages"
	}
	return "preinstalled"
}
