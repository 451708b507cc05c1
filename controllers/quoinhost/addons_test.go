// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// A worker may outlive any number of patch releases of its control plane. One version more than the API takes, and the
// API server refuses the whole status, for ever.
func TestANodeThatOutlivesManyUpgradesForgetsTheEarliestAddons(t *testing.T) {
	w := claimedWorld(t, false)
	host := w.untilState(infrav1.HostStateProvisioned)
	for i := range maxAddonVersions - 1 {
		host.Status.AddonVersions = append(host.Status.AddonVersions, fmt.Sprintf("v1.36.%d", i))
	}
	w.g.Expect(w.client.Status().Update(context.Background(), host)).To(Succeed())

	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.AddonVersions = []string{"v1.36.0", "v1.36.14", "v1.36.20"}
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
	w.linger(20)
	versions := w.host().Status.AddonVersions
	w.g.Expect(versions).To(HaveLen(maxAddonVersions))
	w.g.Expect(versions).To(ContainElements("v1.35.4", "v1.36.0", "v1.36.14", "v1.36.20"),
		"what the host runs, and what is asked for")
	w.g.Expect(versions).NotTo(ContainElement("v1.36.1"))
}

// A bundle server moves, or its authority is renewed: whoever points the pool at a new template must not wait for hosts
// whose Machines were made from the old one.
func TestAddonImagesComeFromWhereThePoolsPresentTemplateSays(t *testing.T) {
	const moved = "https://bundles.example.com/{{version}}"
	reference := clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
		Kind: "QuoinMachineTemplate", Name: "new"}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "workers"}}
	deployment.Spec.Template.Spec.InfrastructureRef = reference
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "workers"}}
	set.Spec.Template.Spec.InfrastructureRef = reference
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "workers"}}
	controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = reference
	ownedBy := func(kind string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: "workers", UID: "1",
				Controller: ptr.To(true)}}
		}
	}
	labeled := func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineDeploymentNameLabel] = "workers" }
	bundle := infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: moved, CertificateAuthorities: "PEM"}}
	for name, c := range map[string]struct {
		pool      client.Object
		of        func(*clusterv1.Machine)
		artifacts infrav1.Artifacts
		want      string
	}{
		"of a MachineDeployment": {deployment, labeled, bundle, moved},
		"of a MachineSet":        {set, ownedBy("MachineSet"), bundle, moved},
		"of a control plane":     {controlPlane, ownedBy("QuoinControlPlane"), bundle, moved},
		"whose pool is gone": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "x"}}, labeled,
			bundle, "/opt/bundles/{{version}}"},
		"of its own": {deployment, func(*clusterv1.Machine) {}, bundle, "/opt/bundles/{{version}}"},
		"whose pool has other OSs": {deployment, labeled, infrav1.Artifacts{Preinstalled: &infrav1.Preinstalled{}},
			"/opt/bundles/{{version}}"},
	} {
		t.Run("a Machine "+name, func(t *testing.T) {
			w := claimedWorld(t, false)
			template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "new"}}
			template.Spec.Template.Spec.Artifacts = c.artifacts
			pool, ok := c.pool.DeepCopyObject().(client.Object)
			w.g.Expect(ok).To(BeTrue())
			w.create(template, pool)
			machine := &clusterv1.Machine{}
			w.object(machine, "m1")
			c.of(machine)
			w.g.Expect(w.client.Update(t.Context(), machine)).To(Succeed())
			w.untilState(infrav1.HostStateProvisioned)
			w.g.Expect(w.room.provision.Artifacts.Bundle.Location).To(Equal("/opt/bundles/{{version}}"),
				"a Machine is installed as it was made")
			wantAddons(w, "v1.36.0")
			w.until("brought", func(h *infrav1.QuoinHost) bool { return slices.Contains(h.Status.AddonVersions, "v1.36.0") })
			w.g.Expect(w.room.addons.Artifacts.Bundle.Location).To(Equal(c.want))
			w.g.Expect(w.room.addons.Artifacts.Bundle.CertificateAuthorities == "PEM").To(Equal(c.want == moved))
		})
	}
}

// Proves: C17
//
// A pool may stay behind its control plane, and still grows and heals: kubeadm is that of the control plane, and so are
// the images of the add-ons, which are there before the node serves; all else is the pool's.
func TestAWorkerJoinsWithTheKubeadmOfItsControlPlane(t *testing.T) {
	versions := func(all ...string) (running []clusterv1.StatusVersion) {
		for _, version := range all {
			running = append(running, clusterv1.StatusVersion{Version: version})
		}
		return running
	}
	for name, c := range map[string]struct {
		running   []clusterv1.StatusVersion
		artifacts *infrav1.Artifacts
		kind      string
		want      string
		addons    []string
	}{
		"of a newer minor":            {running: versions("v1.36.2"), want: "v1.36.2", addons: []string{"v1.36.2"}},
		"in the middle of an upgrade": {running: versions("v1.36.2", "v1.35.9"), addons: []string{"v1.35.9"}},
		"of its own minor":            {running: versions("v1.35.9"), addons: []string{"v1.35.9"}},
		"of its own version":          {running: versions("v1.35.4")},
		"of another provider":         {running: versions("v1.36.2"), kind: "KubeadmControlPlane"},
		"from packages, which have one": {running: versions("v1.36.2", "v1.35.9"),
			artifacts: &infrav1.Artifacts{Packages: &infrav1.Packages{}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
			controlPlane.Status.Versions = c.running
			w.create(controlPlane)
			cluster := &clusterv1.Cluster{}
			w.object(cluster, "c1")
			cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "cp"}
			if c.kind != "" {
				cluster.Spec.ControlPlaneRef.Kind = c.kind
			}
			w.g.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
			if c.artifacts != nil {
				quoinMachine := &infrav1.QuoinMachine{}
				w.object(quoinMachine, "qm1")
				quoinMachine.Spec.Artifacts = *c.artifacts
				w.g.Expect(w.client.Update(t.Context(), quoinMachine)).To(Succeed())
			}
			w.untilState(infrav1.HostStateProvisioned)
			w.g.Expect(w.room.provision.Artifacts.Kubeadm).To(Equal(c.want))
			w.g.Expect(w.room.provision.Artifacts.AddonVersions).To(Equal(c.addons))
			w.g.Expect(w.room.provision.Artifacts.Version).To(Equal("v1.35.4"))
		})
	}
}

// Proves: R13, R14, R15
//
// A kubeadm is asked about before the host is touched.
func TestAKubeadmThatDoesNotFitIsNotInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		installer skew.Installer
		rule      string
	}{
		"a control plane of its own version":     {skew.Installer{Version: "v1.36.3", Installs: "v1.36.3"}, ""},
		"a control plane of the minor before":    {skew.Installer{Version: "v1.36.3", Installs: "v1.35.4"}, ""},
		"a control plane of two minors before":   {skew.Installer{Version: "v1.36.3", Installs: "v1.34.4"}, "(R13)"},
		"a control plane of the minor after":     {skew.Installer{Version: "v1.35.4", Installs: "v1.36.3"}, "(R13)"},
		"a kubelet of three minors before":       {skew.Installer{Version: "v1.36.3", Kubelet: "v1.33.9"}, ""},
		"a kubelet of four minors before":        {skew.Installer{Version: "v1.36.3", Kubelet: "v1.32.9"}, "(R14)"},
		"a cluster that another one has made":    {skew.Installer{Version: "v1.36.3", Cluster: "v1.36.1"}, ""},
		"a cluster that a later one has made":    {skew.Installer{Version: "v1.35.4", Cluster: "v1.36.1"}, "(R15)"},
		"a cluster that an earlier one has made": {skew.Installer{Version: "v1.36.3", Cluster: "v1.35.4"}, "(R15)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkKubeadm(&clusterv1.Cluster{}, c.installer)
			if c.rule == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(c.rule), ContainSubstring("was not touched"))))
		})
	}
}

// Proves: R15
//
// Packages bring the kubeadm of the pool, which no API server of a later minor has room for.
func TestAWorkerFromPackagesWaitsWhileItsPoolIsBehind(t *testing.T) {
	w := claimedWorld(t, false)
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
	controlPlane.Status.Versions = []clusterv1.StatusVersion{{Version: "v1.36.2"}}
	w.create(controlPlane)
	cluster, quoinMachine := &clusterv1.Cluster{}, &infrav1.QuoinMachine{}
	w.object(cluster, "c1")
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "cp"}
	w.g.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.Artifacts = infrav1.Artifacts{Packages: &infrav1.Packages{}}
	w.g.Expect(w.client.Update(t.Context(), quoinMachine)).To(Succeed())
	w.g.Expect(w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostVersionSkewReason).Message).To(And(
		ContainSubstring("kubeadm v1.35.4 of Machine m1 is 1 minor from a cluster of kubeadm v1.36.2 (R15)"),
		ContainSubstring("raise the pool of the Machine")))
	w.g.Expect(w.room.provision.ID).To(BeEmpty(), "the host was not touched")
}

// Proves: R15
//
// A control-plane Machine that waited for a host while its control plane went on joins it no more. Its own version, and
// an earlier one that it is to upgrade, are no reason to wait.
func TestAControlPlaneMachineOfAFormerMinorIsNotInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		running []string
		kind    string
		refused bool
	}{
		"the first of all":              {},
		"of its minor":                  {running: []string{"v1.35.9", "v1.35.1"}},
		"of the minor before":           {running: []string{"v1.34.9"}},
		"of the minor after":            {running: []string{"v1.35.4", "v1.36.2"}, refused: true},
		"of the minor after, another's": {running: []string{"v1.36.2"}, kind: "KubeadmControlPlane"},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
			for _, version := range c.running {
				controlPlane.Status.Versions = append(controlPlane.Status.Versions, clusterv1.StatusVersion{Version: version})
			}
			w.create(controlPlane)
			cluster := &clusterv1.Cluster{}
			w.object(cluster, "c1")
			cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group, Kind: cmp.Or(c.kind, "QuoinControlPlane"), Name: "cp"}
			w.g.Expect(w.client.Update(t.Context(), cluster)).To(Succeed())
			if !c.refused {
				w.untilState(infrav1.HostStateProvisioned)
				return
			}
			w.g.Expect(w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostVersionSkewReason).Message).To(And(
				ContainSubstring("kubeadm v1.35.4 of Machine m1 is 1 minor from a cluster of kubeadm v1.36.2 (R15)"),
				ContainSubstring("delete it")))
			w.g.Expect(w.room.provision.ID).To(BeEmpty(), "the host was not touched")
		})
	}
}
