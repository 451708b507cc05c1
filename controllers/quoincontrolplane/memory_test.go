// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// Machines that are replaced one after the other leave nothing behind, however long their control plane lives.
func TestNothingIsRememberedOfMachinesThatAreGone(t *testing.T) {
	w := newWorld(t, 1)
	name := initialized(t, w)
	label := func(value string) {
		w.edit(func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"life": value}
		})
		w.reconcile()
	}
	label("first")
	once := memorytest.Text(memorytest.Entries(&w.r.history))
	w.g.Expect(once).To(ContainSubstring("Applied.digests: 3"), "a Machine, its QuoinMachine and its KubeadmConfig")
	for range 4 {
		w.g.Expect(w.mgmt.Delete(t.Context(), w.machine(name))).To(Succeed())
		w.drained(name)
		w.reconcile()
		w.g.Expect(w.machines()).To(HaveLen(2))
		second := other(w, name)
		w.provision(second)
		w.hold(second)
		w.reconcile()
		w.g.Expect(w.hasHook(name)).To(BeFalse())
		w.gone(name)
		w.reconcile()
		name = second
		label(name)
		w.g.Expect(memorytest.Text(memorytest.Entries(&w.r.history))).To(Equal(once))
	}
}

// It is deleted, or moved to another management cluster.
func TestNothingIsRememberedOfControlPlanesThatAreGone(t *testing.T) {
	for name, ends := range map[string]func(w *world, machine string){
		"deleted": func(w *world, machine string) {
			w.g.Expect(w.mgmt.Delete(t.Context(), w.plane())).To(Succeed())
			w.reconcile()
			w.gone(machine)
		},
		"moved": func(w *world, _ string) {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, clusterctlv1.DeleteForMoveAnnotation, "")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			machine := initialized(t, w)
			w.g.Expect(memorytest.Entries(&w.r.history)).To(And(HaveKey(".Applied.digests"), HaveKey(".Events.last")))
			ends(w, machine)
			w.reconcile()
			w.g.Expect(memorytest.Text(memorytest.Entries(&w.r.history))).To(BeEmpty())
		})
	}
}
