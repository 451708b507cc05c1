// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// judgeHealing warns of pools whose version stays so far behind the control plane that no further host of them can join
// (R15). Only a bundle brings the control plane's kubeadm to a worker: packages, and hosts that carry a version
// already, have that of the pool. Of another provider's control plane nothing is known.
func (s Subject) judgeHealing(
	ctx context.Context, pools []clusterv1.MachineDeployment, goals goals,
) ([]quoinv1.Finding, error) {
	policies, err := skew.PoliciesOf(s.Cluster)
	if err != nil || s.ControlPlane == nil {
		return nil, nil //nolint:nilerr // VersionPath blocks by it
	}
	var findings []quoinv1.Finding
	for i := range pools {
		goal := s.goal(goals, pools[i].Name)
		installer := skew.Installer{Object: "its hosts", Version: goal, Kubelet: goal, Cluster: s.Version}
		var violations []skew.Violation
		for _, policy := range policies {
			violations = append(violations, policy.CheckInstaller(installer)...)
		}
		if len(violations) == 0 {
			continue
		}
		brings, err := s.bringsOwnKubeadm(ctx, pools[i].Spec.Template.Spec.InfrastructureRef)
		if err != nil {
			return nil, err
		}
		if brings != "" {
			findings = append(findings, warns("MachineDeployment "+pools[i].Name, "CannotHeal", fmt.Sprintf("it stays at %s "+
				"and its hosts are %s, with a kubeadm of that version, which joins no control plane of %s (%s): from then on "+
				"the pool neither heals nor grows", goal, brings, s.Version, violations[0].Rule), fmt.Sprintf("raise it with the "+
				"control plane, by workers: All or spec.template.spec.version: %s, or give it a template with artifacts.bundle",
				s.Version)))
		}
	}
	return findings, nil
}

// bringsOwnKubeadm says how the template's hosts come by a kubeadm of their own version; empty where they get that of
// the control plane, where the template is not ours, and where it is not there.
func (s Subject) bringsOwnKubeadm(ctx context.Context, ref clusterv1.ContractVersionedObjectReference) (string, error) {
	if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return "", nil
	}
	template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: s.Cluster.Namespace, Name: ref.Name}
	switch err := s.Management.Get(ctx, key, template); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read QuoinMachineTemplate %s: %w", key, err)
	}
	switch from := template.Spec.Template.Spec.Artifacts; {
	case from.Bundle != nil:
		return "", nil
	case from.Packages != nil:
		return "installed from packages", nil
	}
	return "preinstalled", nil
}
