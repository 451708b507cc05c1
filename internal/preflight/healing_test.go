// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
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

// Proves: C17
//
// Cluster API makes no Machine for a pool behind its control plane until it is told to leave out the checks that do not
// know by which kubeadm a host joins: an annotation of the pool's own counts alone.
func TestSupplyWarnsOfPoolsThatClusterAPIDoesNotHeal(t *testing.T) {
	const kubeadm, version = "KubeadmVersionSkew", "ControlPlaneVersionSkew"
	for name, c := range map[string]struct {
		pool, template, at string
		topology, packages bool
		workers            quoinv1.UpgradeWorkers
		kind               string
		stops, fix         string
	}{
		"says nothing":                      {stops: kubeadm, fix: kubeadm},
		"skips by its template":             {template: kubeadm},
		"skips by itself":                   {pool: kubeadm},
		"skips all":                         {pool: "All"},
		"skips among others":                {pool: "ControlPlaneIsStable, " + kubeadm},
		"skips nothing that is readable":    {pool: kubeadm + " Foo", stops: kubeadm, fix: kubeadm + " Foo," + kubeadm},
		"skips another by itself":           {pool: "Foo", template: kubeadm, stops: kubeadm, fix: "Foo," + kubeadm},
		"skips one of two":                  {template: kubeadm, topology: true, stops: version, fix: kubeadm + "," + version},
		"skips none of two":                 {topology: true, stops: kubeadm + " and " + version, fix: kubeadm + "," + version},
		"skips both":                        {template: kubeadm + "," + version, topology: true},
		"of another patch":                  {at: "v1.36.1"},
		"of another patch, in a topology":   {at: "v1.36.1", topology: true, stops: version, fix: version},
		"of another patch, from packages":   {at: "v1.36.1", topology: true, packages: true, stops: version, fix: version},
		"that is raised":                    {topology: true, workers: quoinv1.UpgradeWorkersAll},
		"that bootstraps by something else": {kind: "TheirConfigTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			skip := func(checks string) map[string]string {
				return map[string]string{clusterv1.MachineSetSkipPreflightChecksAnnotation: checks}
			}
			template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "worker"}}
			template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: "/srv/{{version}}"}
			if c.packages {
				template.Spec.Template.Spec.Artifacts = infrav1.Artifacts{Packages: &infrav1.Packages{}}
			}
			config := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "joins",
				Annotations: skip(c.template)}}
			pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}, Annotations: skip(c.pool)}}
			pool.Spec.Template.Spec.Version = cmp.Or(c.at, "v1.35.4")
			pool.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: "worker"}
			pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: cmp.Or(c.kind, "KubeadmConfigTemplate"), Name: "joins"}
			s := subject(t, []client.Object{template, config, pool}, nil)
			if c.topology {
				s.Cluster.Spec.Topology.ClassRef.Name = "quoin"
			}
			s.ControlPlane = plane(func(*controlplanev1.QuoinControlPlane) {})
			goals := goals{"blue": pool.Spec.Template.Spec.Version}
			if c.workers != "" {
				goals = nil
			}
			findings, err := s.judgeHealing(t.Context(), []clusterv1.MachineDeployment{*pool}, goals)
			g.Expect(err).NotTo(HaveOccurred())
			if c.stops == "" {
				g.Expect(findings).To(BeEmpty())
				return
			}
			g.Expect(says(findings)).To(ConsistOf("Warn MachineDeployment blue CannotHeal"))
			g.Expect(findings[0].Message).To(ContainSubstring("its check " + c.stops + " (C17)"))
			g.Expect(findings[0].Fix).To(ContainSubstring(
				clusterv1.MachineSetSkipPreflightChecksAnnotation + ": " + c.fix + " of it"))
		})
	}
}
