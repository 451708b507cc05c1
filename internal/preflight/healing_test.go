// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Proves: R15
//
// A host of a pool that stays behind joins no control plane of a later minor, unless its bundle brings that one's
// kubeadm: who asks for the upgrade hears of it before, and not when a host has failed.
func TestSupplyWarnsOfPoolsThatCannotHeal(t *testing.T) {
	const cannot = "Warn MachineDeployment blue CannotHeal"
	packages := infrav1.Artifacts{Packages: &infrav1.Packages{}}
	preinstalled := infrav1.Artifacts{Preinstalled: &infrav1.Preinstalled{}}
	bundle := infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: "/srv/{{version}}"}}
	needed := quoinv1.UpgradeWorkersAsNeeded
	for name, c := range map[string]struct {
		from    infrav1.Artifacts
		version string
		workers quoinv1.UpgradeWorkers
		foreign bool
		kind    string
		want    []string
	}{
		"from packages":                     {from: packages, version: "v1.35.4", workers: needed, want: []string{cannot}},
		"preinstalled":                      {from: preinstalled, version: "v1.35.4", workers: needed, want: []string{cannot}},
		"from bundles":                      {from: bundle, version: "v1.35.4", workers: needed},
		"of another patch":                  {from: packages, version: "v1.36.1", workers: needed},
		"that is raised":                    {from: packages, version: "v1.35.4"},
		"below another provider":            {from: packages, version: "v1.35.4", workers: needed, foreign: true},
		"of another provider's Machines":    {from: packages, version: "v1.35.4", workers: needed, kind: "TheirTemplate"},
		"that is raised since it has to be": {from: packages, version: "v1.32.4", workers: needed, want: []string{cannot}},
	} {
		t.Run(name, func(t *testing.T) {
			template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "worker"}}
			template.Spec.Template.Spec.Artifacts = c.from
			pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
			pool.Spec.Template.Spec.Version = c.version
			pool.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "worker"}
			if c.kind != "" {
				pool.Spec.Template.Spec.InfrastructureRef.Kind = c.kind
			}
			member, worker := machine("cp", "v1.35.4", true), machine("w", c.version, false)
			s := subject(t, []client.Object{template, pool, member, worker}, nil)
			s.Workers = c.workers
			if !c.foreign {
				s.ControlPlane = plane(func(*controlplanev1.QuoinControlPlane) {})
			}
			_, findings, err := lookAtSupply(t.Context(), s)
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			var healing []quoinv1.Finding
			for _, finding := range findings {
				if finding.Reason == "CannotHeal" {
					healing = append(healing, finding)
				}
			}
			g.Expect(says(healing)).To(ConsistOf(c.want))
			for _, finding := range healing {
				g.Expect(finding.Message).To(And(ContainSubstring("(R15)"), ContainSubstring("neither heals nor grows")))
				g.Expect(finding.Fix).To(And(ContainSubstring("v1.36.3"), ContainSubstring("artifacts.bundle")))
			}
		})
	}
}
