// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func (w *world) configs() []bootstrapv1.KubeadmConfig {
	w.t.Helper()
	list := &bootstrapv1.KubeadmConfigList{}
	w.g.Expect(w.mgmt.List(w.t.Context(), list)).To(Succeed())
	return list.Items
}

// The KubeadmConfig is made after its Machine, so that it is the Machine's from the start. Whoever finds it missing
// makes it.
func TestAMachineWithoutKubeadmConfigGetsOneAndNoSecond(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	w.fail = "create KubeadmConfig"
	for range 6 {
		if w.fail != "" {
			_, _ = w.r.Reconcile(t.Context(), request())
		}
	}
	g.Expect(w.fail).To(BeEmpty(), "the manager was killed before it was made")
	g.Expect(w.configs()).To(BeEmpty())
	g.Expect(w.machines()).To(HaveLen(1))
	machine := w.machines()[0]

	w.once()
	configs := w.configs()
	g.Expect(configs).To(HaveLen(1))
	g.Expect(configs[0].Name).To(Equal(machine.Spec.Bootstrap.ConfigRef.Name))
	g.Expect(metav1.IsControlledBy(&configs[0], &machine)).To(BeTrue())
	g.Expect(configs[0].Spec.ClusterConfiguration.IsDefined()).To(BeTrue(), "it is the first Machine")
	g.Expect(configs[0].Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c"))

	w.reconcile()
	g.Expect(w.configs()).To(ConsistOf(HaveField("Name", configs[0].Name)), "no second one")
	g.Expect(w.machines()).To(HaveLen(1))
}

// After a move of the objects, and while nothing of the cluster can be read, its status does not tell that kubeadm init
// ran.
func TestASecondMachineJoinsWhateverTheStatusTells(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Replicas = ptr.To[int32](3) })
	w.fail = "create KubeadmConfig"
	for range 6 {
		if w.fail != "" {
			_, _ = w.r.Reconcile(t.Context(), request())
		}
	}
	g.Expect(w.fail).To(BeEmpty(), "the manager was killed before it was made")
	plane := w.plane()
	plane.Status = controlplanev1.QuoinControlPlaneStatus{}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	w.r.ClusterCache = clustercache.NewFakeEmptyClusterCache()

	for range 2 {
		// The first one says that it is not paused.
		w.once()
	}
	g.Expect(w.machines()).To(HaveLen(2))
	for _, config := range w.configs() {
		if config.Name != first {
			g.Expect(config.Spec.JoinConfiguration.ControlPlane).NotTo(BeNil())
			g.Expect(config.Spec.InitConfiguration.IsDefined()).To(BeFalse())
		}
	}
	g.Expect(w.configs()).To(HaveLen(2))
}

// A cache that does not show the KubeadmConfig yet makes it no failure, and nobody's work is overwritten.
func TestAKubeadmConfigThatTheCacheDoesNotShowIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	w.reconcile()
	configs := w.configs()
	g.Expect(configs).To(HaveLen(1))
	machine := w.machines()[0]
	s := w.look()
	delete(s.KubeadmConfigs, machine.Name)
	g.Expect(s.Incomplete()).To(ConsistOf(HaveField("Name", machine.Name)))
	g.Expect(w.r.complete(t.Context(), &s.Inventory)).To(Succeed())
	g.Expect(w.configs()).To(Equal(configs))
}
