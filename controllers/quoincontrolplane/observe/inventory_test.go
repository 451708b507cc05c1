// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

// Bootstrap data are made for Machines that are on their way in.
func TestWhoNeedsNoBootstrapDataGetsNoKubeadmConfig(t *testing.T) {
	for name, change := range map[string]func(*Inventory, *clusterv1.Machine){
		"it has one": func(inv *Inventory, _ *clusterv1.Machine) {
			inv.KubeadmConfigs["m"] = &bootstrapv1.KubeadmConfig{}
		},
		"it is being deleted": func(_ *Inventory, m *clusterv1.Machine) { m.DeletionTimestamp = ptr.To(metav1.Now()) },
		"its data were made":  func(_ *Inventory, m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("m") },
		"it is a node":        func(_ *Inventory, m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" },
		"its data are of a user": func(_ *Inventory, m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{}
		},
		"its QuoinMachine is gone": func(inv *Inventory, _ *clusterv1.Machine) { delete(inv.QuoinMachines, "m") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
			machine.Spec.Bootstrap.ConfigRef.Kind = desired.ConfigKind
			inv := &Inventory{Machines: collections.FromMachines(machine),
				KubeadmConfigs: map[string]*bootstrapv1.KubeadmConfig{},
				QuoinMachines:  map[string]*infrav1.QuoinMachine{"m": {}}}
			g.Expect(inv.Incomplete()).To(ConsistOf(machine))
			change(inv, machine)
			g.Expect(inv.Incomplete()).To(BeEmpty())
		})
	}
}

// While its bootstrap data run nobody knows yet whether they will succeed.
func TestTheNodeOfAMachineThatJoinsIsNotAwaited(t *testing.T) {
	g := NewWithT(t)
	infra := &infrav1.QuoinMachine{}
	infra.Spec.ProviderID = "quoin://hosts/h-m/1"
	inv := &Inventory{Machines: collections.FromMachines(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}),
		QuoinMachines: map[string]*infrav1.QuoinMachine{"m": infra},
		Hosts:         map[string]*infrav1.QuoinHost{"m": {}}}
	g.Expect(inv.awaitsNodes()).To(BeFalse())
	infra.Status.Initialization.Provisioned = ptr.To(true)
	g.Expect(inv.awaitsNodes()).To(BeTrue())
}
