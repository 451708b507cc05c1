// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// told collects the warnings of an API server.
type told struct{ warnings []string }

func (w *told) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.warnings = append(w.warnings, text)
}

// fleet is an estate whose control plane runs a version, with pools of workers.
type fleet struct {
	*estate
	told *told
}

func newFleet(t *testing.T, config *rest.Config, name, version string) *fleet {
	t.Helper()
	g := NewWithT(t)
	f := &fleet{told: &told{}}
	hearing := rest.CopyConfig(config)
	hearing.WarningHandlerWithContext = f.told
	c, err := client.New(hearing, client.Options{Scheme: manager.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	f.estate = newEstate(t, c, name)
	f.cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinCluster", Name: name}
	f.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "cp"}
	g.Expect(c.Update(t.Context(), f.cluster)).To(Succeed())
	for _, machine := range f.machines {
		machine.Spec.Version = version
		g.Expect(c.Update(t.Context(), machine)).To(Succeed())
	}
	before := f.plane.DeepCopy()
	f.plane.Spec.Version = version
	g.Expect(c.Patch(t.Context(), f.plane, client.MergeFrom(before))).To(Succeed())
	return f
}

// worker adds a Machine that runs a version.
func (f *fleet) worker(t *testing.T, name, version string) {
	t.Helper()
	machine := f.machine(name)
	machine.Labels, machine.OwnerReferences = map[string]string{clusterv1.ClusterNameLabel: f.cluster.Name}, nil
	machine.Spec.Version = version
	NewWithT(t).Expect(f.c.Create(t.Context(), machine)).To(Succeed())
}

func (f *fleet) template(version, kind string) clusterv1.MachineTemplateSpec {
	return clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
		ClusterName: f.cluster.Name, Version: version, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: kind,
			Name: "w"},
	}}
}

func (f *fleet) pool(name, version string) *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: clusterv1.MachineDeploymentSpec{ClusterName: f.cluster.Name, Replicas: ptr.To[int32](1),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}},
			Template: f.template(version, "QuoinMachineTemplate")},
	}
}

func (f *fleet) edit(
	t *testing.T, pool *clusterv1.MachineDeployment, version string, options ...client.PatchOption,
) error {
	t.Helper()
	f.told.warnings = nil
	before := pool.DeepCopy()
	pool.Spec.Template.Spec.Version = version
	err := f.c.Patch(t.Context(), pool, client.MergeFrom(before), options...)
	if err != nil {
		*pool = *before
	}
	return err
}

func (f *fleet) raise(t *testing.T, version string, options ...client.PatchOption) error {
	t.Helper()
	f.told.warnings = nil
	before := f.plane.DeepCopy()
	f.plane.Spec.Version = version
	err := f.c.Patch(t.Context(), f.plane, client.MergeFrom(before), options...)
	if err != nil || len(options) > 0 {
		f.plane = before
	}
	return err
}

// Proves: S0-19, S0-23, S0-31, S1-4, S1-5, S1-17, S1-21, S1-24, R2, R9, R12
//
// judgesVersions edits versions of pools and control planes in every way there is.
func judgesVersions(t *testing.T, config *rest.Config) {
	const patience = 30 * time.Second
	t.Run("of a pool", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "pools", "v1.35.4")
		pool := f.pool("blue", "v1.35.4")
		g.Expect(f.c.Create(t.Context(), pool)).To(Succeed())
		g.Eventually(func() error { return f.edit(t, pool, "v1.37.0", client.DryRunAll) }, patience).Should(MatchError(And(
			ContainSubstring("MachineDeployment blue is newer than API server v1.35.4 by 2 minors"), ContainSubstring("R2"),
			ContainSubstring("bring the API servers to v1.37 first"))))
		tooOld := MatchError(And(ContainSubstring("bring it to v1.32 or later"), ContainSubstring("(R2)")))
		g.Expect(f.edit(t, pool, "v1.31.0")).To(tooOld)
		g.Expect(f.edit(t, pool, "v1.35.5")).To(Succeed())
		g.Expect(f.edit(t, pool, "v1.34.1")).To(Succeed(), "new Machines, of which none goes back")
		g.Expect(f.told.warnings).To(BeEmpty())
		g.Expect(f.c.Create(t.Context(), f.pool("old", "v1.31.0"))).To(tooOld)
		early := f.pool("early", "v1.36.3")
		g.Expect(f.c.Create(t.Context(), early)).To(Succeed())
		g.Expect(f.told.warnings).To(HaveLen(1))
		g.Expect(f.edit(t, early, "v1.35.4")).To(Succeed(), "it is taken back before anything runs it")
	})
	t.Run("of a MachineSet", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "sets", "v1.35.4")
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "alone"},
			Spec: clusterv1.MachineSetSpec{ClusterName: f.cluster.Name,
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
				Template: f.template("v1.38.0", "QuoinMachineTemplate")}}
		g.Expect(f.c.Create(t.Context(), set.DeepCopy())).To(MatchError(And(
			ContainSubstring("MachineSet alone is newer"), ContainSubstring("R2"))))
		set.Spec.Template.Spec.Version = "v1.35.4"
		legal := set.DeepCopy()
		g.Expect(f.c.Create(t.Context(), legal)).To(Succeed())
		for version, rule := range map[string]string{"v1.38.0": "R2", "v1.31.0": "R2"} {
			edited := legal.DeepCopy()
			edited.Spec.Template.Spec.Version = version
			g.Expect(f.c.Patch(t.Context(), edited, client.MergeFrom(legal))).To(MatchError(ContainSubstring(rule)), version)
		}
		foreign := legal.DeepCopy()
		foreign.ObjectMeta = metav1.ObjectMeta{Namespace: f.namespace, Name: "foreign"}
		foreign.Spec.Template = f.template("v1.38.0", "DockerMachineTemplate")
		g.Expect(f.c.Create(t.Context(), foreign)).To(Succeed(), "another provider's")
		set.Spec.Template.Spec.Version = "v1.38.0"
		owned := set.DeepCopy()
		owned.Name = "owned"
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(),
			Kind: "MachineDeployment", Name: "blue", UID: "1", Controller: ptr.To(true)}}
		namesake := owned.DeepCopy()
		namesake.Name, namesake.OwnerReferences[0].APIVersion = "namesake", "fleets.example.com/v1"
		g.Expect(f.c.Create(t.Context(), owned)).To(Succeed(), "its MachineDeployment was asked")
		g.Expect(f.c.Create(t.Context(), namesake)).To(MatchError(ContainSubstring("R2")), "nobody asked its owner")
	})
	t.Run("through objects that lack everything", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "bare", "v1.35.4")
		bare := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
			object := &unstructured.Unstructured{Object: map[string]any{}}
			object.SetAPIVersion("cluster.x-k8s.io/v1beta1")
			object.SetKind(kind)
			object.SetNamespace(f.namespace)
			object.SetName(name)
			if spec != nil {
				object.Object["spec"] = spec
			}
			return object
		}
		cluster := bare("Cluster", "specless", nil)
		g.Expect(f.c.Create(t.Context(), cluster)).To(Succeed())
		cluster.SetLabels(map[string]string{"a": "b"})
		g.Expect(f.c.Update(t.Context(), cluster)).To(Succeed())
		template := map[string]any{"clusterName": "specless", "bootstrap": map[string]any{},
			"infrastructureRef": map[string]any{}}
		g.Expect(f.c.Create(t.Context(), bare("MachineDeployment", "nothing", map[string]any{"clusterName": "specless",
			"selector": map[string]any{},
			"template": map[string]any{"spec": template}}))).To(Succeed())
		g.Expect(f.c.Create(t.Context(), bare("MachineDeployment", "less", map[string]any{"clusterName": "specless",
			"selector": map[string]any{},
			"template": map[string]any{}}))).To(Succeed())
	})
	t.Run("of a control plane alone", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "planes", "v1.35.4")
		before := f.plane.DeepCopy()
		f.plane.Status.Versions = []clusterv1.StatusVersion{{Version: "v1.35.4", Replicas: 3}}
		g.Expect(f.c.Status().Patch(t.Context(), f.plane, client.MergeFrom(before))).To(Succeed())
		for version, rule := range map[string]string{
			"v1.37.0": "go to v1.36 first (R8)", "v1.34.9": "set v1.35.4 or later (R21)", "v1.35.3": "(R21)", "v2.0.0": "(R8)",
		} {
			g.Expect(f.raise(t, version, client.DryRunAll)).To(MatchError(ContainSubstring(rule)), version)
		}
		for _, version := range []string{"v1.35.4", "v1.35.9", "v1.36.3"} {
			g.Expect(f.raise(t, version, client.DryRunAll)).To(Succeed(), version)
		}
	})
	t.Run("of a control plane whose workers are old", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "behind", "v1.36.3")
		f.worker(t, "w1", "v1.33.2")
		g.Eventually(func() error { return f.raise(t, "v1.37.0", client.DryRunAll) }, patience).Should(MatchError(And(
			ContainSubstring("kubelet v1.33.2 of Machine w1"), ContainSubstring("R9"),
			ContainSubstring("bring it to v1.34 or later first"))))
		g.Expect(f.raise(t, "v1.36.4")).To(Succeed(), "a patch changes no skew")
		g.Expect(f.told.warnings).To(BeEmpty())
	})
	t.Run("of a control plane whose workers will be old", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "nearly", "v1.36.3")
		f.worker(t, "w1", "v1.34.2")
		g.Eventually(func() []string {
			g.Expect(f.raise(t, "v1.37.0", client.DryRunAll)).To(Succeed())
			return f.told.warnings
		}, patience).Should(ConsistOf(And(ContainSubstring("the minor after v1.37.0 will need newer workers"),
			ContainSubstring("bring it to v1.35 or later"))))
		f.cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Kubernetes-1.24"}
		g.Expect(f.c.Update(t.Context(), f.cluster)).To(Succeed())
		g.Eventually(func() error {
			return f.raise(t, "v1.37.0", client.DryRunAll)
		}, patience).Should(MatchError(ContainSubstring("S1-17")))
	})
	t.Run("of both in one commit, which lands in order", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "together", "v1.35.4")
		f.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		g.Expect(f.c.Status().Update(t.Context(), f.cluster)).To(Succeed())
		pool := f.pool("blue", "v1.35.4")
		g.Expect(f.c.Create(t.Context(), pool)).To(Succeed())
		waits := ConsistOf(And(ContainSubstring("no host is claimed for new Machines of MachineDeployment blue yet"),
			ContainSubstring("v1.36")))
		g.Eventually(func() []string {
			g.Expect(f.edit(t, pool.DeepCopy(), "v1.36.3", client.DryRunAll)).To(Succeed(), "a dry run asks about each alone")
			return f.told.warnings
		}, patience).Should(waits)
		g.Expect(f.raise(t, "v1.36.3", client.DryRunAll)).To(Succeed())
		// The worse of the two orders: the pool is there before the control plane is to have the version.
		g.Expect(f.edit(t, pool, "v1.36.3")).To(Succeed())
		g.Expect(f.told.warnings).To(waits)
		g.Expect(f.raise(t, "v1.36.3")).To(Succeed())

		f.worker(t, "blue-1", pool.Spec.Template.Spec.Version)
		machine := &clusterv1.Machine{}
		g.Expect(f.c.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "blue-1"}, machine)).To(Succeed())
		quoinMachine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "blue-1",
			Labels: map[string]string{clusterv1.ClusterNameLabel: f.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine",
				Name: "blue-1", UID: machine.UID}}}}
		g.Expect(f.c.Create(t.Context(), quoinMachine)).To(Succeed())
		reason := func() string {
			if err := f.c.Get(t.Context(), client.ObjectKeyFromObject(quoinMachine), quoinMachine); err != nil {
				return err.Error()
			}
			return conditions.GetReason(quoinMachine, infrav1.MachineHostClaimedCondition)
		}
		g.Eventually(reason, patience).Should(Equal(infrav1.MachineWaitingForControlPlaneReason))
		for i, machine := range f.machines {
			machine.Spec.Version = "v1.36.3"
			g.Expect(f.c.Update(t.Context(), machine)).To(Succeed())
			if i < len(f.machines)-1 {
				g.Consistently(reason, time.Second).Should(Equal(infrav1.MachineWaitingForControlPlaneReason),
					"%d API servers are new enough", i+1)
			}
		}
		g.Eventually(reason, patience).Should(Equal(infrav1.MachineNoMatchingHostReason), "the API servers are new enough")
		annotate := func(policy string) {
			g.Expect(f.c.Get(t.Context(), client.ObjectKeyFromObject(f.cluster), f.cluster)).To(Succeed())
			f.cluster.Annotations = map[string]string{skew.PolicyAnnotation: policy}
			g.Expect(f.c.Update(t.Context(), f.cluster)).To(Succeed())
		}
		annotate("none-such")
		g.Eventually(reason, patience).Should(Equal(infrav1.MachineWaitingForControlPlaneReason))
		annotate("Kubernetes-1.24")
		g.Eventually(reason, patience).Should(Equal(infrav1.MachineNoMatchingHostReason), "another policy holds")
	})
	t.Run("of a topology", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "topology", "v1.36.3")
		f.worker(t, "w1", "v1.33.2")
		topology := func(version string) error {
			before := f.cluster.DeepCopy()
			f.cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: version}
			err := f.c.Patch(t.Context(), f.cluster, client.MergeFrom(before))
			if err != nil {
				f.cluster = before
			}
			return err
		}
		g.Expect(topology("v1.36.3")).To(Succeed())
		g.Eventually(func() error { return topology("v1.37.0") }, patience).Should(MatchError(And(
			ContainSubstring("spec.topology.version"), ContainSubstring("kubelet v1.33.2 of Machine w1"),
			ContainSubstring("(R9)"))))
		g.Expect(topology("v1.35.4")).To(MatchError(ContainSubstring("(R21)")))
	})
	t.Run("of a topology that Cluster API brings there by itself", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "chain", "v1.33.4")
		f.worker(t, "w1", "v1.33.4")
		worker := &clusterv1.Machine{}
		g.Expect(f.c.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "w1"}, worker)).To(Succeed())
		worker.Labels[clusterv1.MachineDeploymentNameLabel] = "blue"
		g.Expect(f.c.Update(t.Context(), worker)).To(Succeed())
		topology := func(version, policy string, options ...client.PatchOption) error {
			after := f.cluster.DeepCopy()
			after.Annotations = map[string]string{skew.PolicyAnnotation: policy}
			after.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: version}
			return f.c.Patch(t.Context(), after, client.MergeFrom(f.cluster), options...)
		}
		unlisted := MatchError(And(ContainSubstring("spec.kubernetesVersions of the ClusterClass"), ContainSubstring("R8"),
			ContainSubstring("go to v1.34 first, then v1.35, then v1.36.3")))
		g.Eventually(func() error { return topology("v1.36.3", "", client.DryRunAll) }, patience).Should(unlisted)
		template := clusterv1.ClusterClassTemplateReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1alpha1", Kind: "X",
			Name: "x"}
		class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "quoin"}}
		class.Spec.Infrastructure.TemplateRef, class.Spec.ControlPlane.TemplateRef = template, template
		class.Spec.KubernetesVersions = []string{"v1.33.4", "v1.34.2", "v1.35.4", "v1.36.3"}
		g.Expect(f.c.Create(t.Context(), class)).To(Succeed())
		g.Expect(topology("v1.36.3", "", client.DryRunAll)).To(Succeed())
		g.Expect(topology("v1.35.4", "Kubernetes-1.24", client.DryRunAll)).To(Succeed())
		g.Expect(topology("v1.36.3", "Kubernetes-1.24", client.DryRunAll)).To(MatchError(And(
			ContainSubstring("kubelet v1.33.4 of MachineDeployment blue"), ContainSubstring("S1-17"),
			ContainSubstring("go to v1.34.2 first, then v1.35.4, then v1.36.3"))))
		g.Expect(topology("v1.37.0", "", client.DryRunAll)).
			To(Succeed(), "what a ClusterClass does not list is Cluster API's to refuse")
		class.Spec.Upgrade.External.GenerateUpgradePlanExtension = "plans.example"
		class.Spec.KubernetesVersions = nil
		g.Expect(f.c.Update(t.Context(), class)).To(Succeed())
		g.Expect(topology("v1.36.3", "Kubernetes-1.24", client.DryRunAll)).To(Succeed(), "its way is not known")
	})
	t.Run("of what is moved, and of nobody's Cluster", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "paused", "v1.35.4")
		g.Eventually(func() error {
			return f.c.Create(t.Context(), f.pool("blue", "v1.40.0"), client.DryRunAll)
		}, patience).Should(HaveOccurred())
		f.cluster.Spec.Paused = ptr.To(true)
		g.Expect(f.c.Update(t.Context(), f.cluster)).To(Succeed())
		g.Expect(f.c.Create(t.Context(), f.pool("blue", "v1.40.0"))).To(Succeed())
		nobodys := f.pool("nobodys", "v1.40.0")
		nobodys.Spec.ClusterName, nobodys.Spec.Template.Spec.ClusterName = "none", "none"
		g.Expect(f.c.Create(t.Context(), nobodys)).To(Succeed())
	})
	t.Run("while nobody answers", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "unanswered", "v1.35.4")
		patch := func(object client.Object, change func(), options ...client.PatchOption) error {
			before := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is what it is a copy of
			change()
			return f.c.Patch(t.Context(), object, client.MergeFrom(before), options...)
		}
		set := func(name, kind string) *clusterv1.MachineSet {
			return &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
				Spec: clusterv1.MachineSetSpec{ClusterName: f.cluster.Name, Replicas: ptr.To[int32](1),
					Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}},
					Template: f.template("v1.35.4", kind)}}
		}
		pool, foreign := f.pool("blue", "v1.35.4"), f.pool("foreign", "v1.35.4")
		foreign.Spec.Template = f.template("v1.35.4", "DockerMachineTemplate")
		alone, foreignSet := set("alone", "QuoinMachineTemplate"), set("foreign", "DockerMachineTemplate")
		docker := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "docker"}}
		docker.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DockerCluster", Name: "docker"}
		docker.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "docker"}, Version: "v1.35.4"}
		for _, object := range []client.Object{pool, foreign, alone, foreignSet, docker} {
			g.Expect(f.c.Create(t.Context(), object)).To(Succeed(), object.GetName())
		}
		illegal := f.pool("illegal", "v1.40.0")
		g.Expect(patch(f.cluster, func() { f.cluster.Spec.Paused = ptr.To(true) })).To(Succeed())
		g.Expect(f.c.Create(t.Context(), illegal)).To(Succeed(), "it came with a move")
		g.Expect(patch(f.cluster, func() {
			f.cluster.Spec.Paused = nil
			f.cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.35.4"}
		})).To(Succeed())
		silenceVersions(t, f.c)

		silent := MatchError(ContainSubstring("failed calling webhook"))
		g.Eventually(func() error { return f.edit(t, pool.DeepCopy(), "v1.35.5", client.DryRunAll) }, patience).Should(silent)
		edited, cluster := alone.DeepCopy(), f.cluster.DeepCopy()
		g.Expect(patch(edited, func() { edited.Spec.Template.Spec.Version = "v1.35.5" }, client.DryRunAll)).To(silent)
		g.Expect(patch(cluster, func() { cluster.Spec.Topology.Version = "v1.35.5" }, client.DryRunAll)).To(silent)

		g.Expect(f.edit(t, foreign, "v1.39.0")).To(Succeed(), "another provider's pool")
		g.Expect(patch(foreignSet, func() { foreignSet.Spec.Template.Spec.Version = "v1.39.0" })).To(Succeed(),
			"another provider's MachineSet")
		g.Expect(patch(docker, func() { docker.Spec.Topology.Version = "v1.39.0" })).To(Succeed(),
			"another provider's topology")
		g.Expect(patch(pool, func() { pool.Spec.Replicas = ptr.To[int32](7) })).To(Succeed(), "scaling")
		g.Expect(patch(alone, func() { alone.Spec.Replicas = ptr.To[int32](7) })).To(Succeed(), "scaling a MachineSet")
		g.Expect(patch(illegal, func() { illegal.Spec.Replicas = ptr.To[int32](7) })).To(Succeed(),
			"scaling a pool whose version is illegal already")
		for _, object := range []client.Object{pool, alone, f.cluster} {
			g.Expect(patch(object, func() { object.SetLabels(map[string]string{"team": "a"}) })).To(Succeed())
			g.Expect(patch(object, func() { object.SetFinalizers([]string{"example.com/one"}) })).To(Succeed())
			g.Expect(object.GetFinalizers()).To(ConsistOf("example.com/one"))
			g.Expect(patch(object, func() { object.SetFinalizers(nil) })).To(Succeed())
			g.Expect(object.GetFinalizers()).To(BeEmpty())
		}
	})
	t.Run("while nobody answers about control planes", func(t *testing.T) {
		g := NewWithT(t)
		f := newFleet(t, config, "silent-planes", "v1.35.4")
		silenceControlPlanes(t, f.c)
		edit := func(change func(*controlplanev1.QuoinControlPlane)) error {
			g.Expect(f.c.Get(t.Context(), client.ObjectKeyFromObject(f.plane), f.plane)).To(Succeed())
			before := f.plane.DeepCopy()
			change(f.plane)
			return f.c.Patch(t.Context(), f.plane, client.MergeFrom(before), client.DryRunAll)
		}
		silent := MatchError(ContainSubstring("failed calling webhook"))
		g.Eventually(func() error {
			return edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Version = "v1.35.5" })
		}, patience).Should(silent)
		g.Expect(edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Replicas = ptr.To[int32](5) })).To(silent,
			"how many etcd members there are is judged")
		g.Expect(edit(func(p *controlplanev1.QuoinControlPlane) {
			p.Annotations = map[string]string{controlplanev1.RemoveEtcdMemberAnnotation: "nonsense"}
		})).To(silent)
		g.Expect(edit(func(p *controlplanev1.QuoinControlPlane) {
			p.Labels, p.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "b"}
			p.Finalizers = append(p.Finalizers, "example.com/one")
		})).To(Succeed())
	})
}

// silenceControlPlanes points the webhooks of edited control planes to where nobody listens, until the test ends.
func silenceControlPlanes(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	nobody := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/nobody")}
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfigurationList{},
		&admissionregistrationv1.MutatingWebhookConfigurationList{}
	g.Expect(c.List(t.Context(), validating)).To(Succeed())
	g.Expect(c.List(t.Context(), mutating)).To(Succeed())
	silenced := 0
	patch := func(before, after client.Object) {
		g.Expect(c.Patch(t.Context(), after, client.MergeFrom(before))).To(Succeed())
		t.Cleanup(func() {
			back := before.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is what it is a copy of
			back.SetResourceVersion(after.GetResourceVersion())
			_ = c.Update(context.Background(), back)
		})
	}
	for i := range validating.Items {
		before, after := &validating.Items[i], validating.Items[i].DeepCopy()
		for j := range after.Webhooks {
			if after.Webhooks[j].Name == "validation.quoincontrolplane.controlplane.cluster.x-k8s.io" {
				after.Webhooks[j].ClientConfig = nobody
				silenced++
			}
		}
		patch(before, after)
	}
	for i := range mutating.Items {
		before, after := &mutating.Items[i], mutating.Items[i].DeepCopy()
		for j := range after.Webhooks {
			if after.Webhooks[j].Name == "default.quoincontrolplane.controlplane.cluster.x-k8s.io" {
				after.Webhooks[j].ClientConfig = nobody
				silenced++
			}
		}
		patch(before, after)
	}
	g.Expect(silenced).To(Equal(2))
}

// silenceVersions points the webhooks of versions to where nobody listens.
func silenceVersions(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	configurations := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	g.Expect(c.List(t.Context(), configurations)).To(Succeed())
	silenced := 0
	for i := range configurations.Items {
		before, after := &configurations.Items[i], configurations.Items[i].DeepCopy()
		for j := range after.Webhooks {
			if strings.HasPrefix(after.Webhooks[j].Name, "version.") {
				after.Webhooks[j].ClientConfig = admissionregistrationv1.WebhookClientConfig{
					URL: ptr.To("https://127.0.0.1:1/nobody")}
				silenced++
			}
		}
		g.Expect(c.Patch(t.Context(), after, client.MergeFrom(before))).To(Succeed())
	}
	g.Expect(silenced).To(Equal(3), fmt.Sprint(len(configurations.Items)))
}
