// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A member is known not to run when its host was reset since, is known to be off, or a person says so; that an object
// is not there says nothing.
func TestAHostIsGoneForARecoveryOnlyWhenThatIsKnown(t *testing.T) {
	gone := controlplane.RecoveryHost{Gone: true}
	const id = "quoin://metal/h/1"
	unbound := func(name, id string) controlplane.RecoveryHost {
		return controlplane.RecoveryHost{Unbound: true, Name: name, ProviderID: id}
	}
	for name, c := range map[string]struct {
		change func(inv *Inventory, infra *infrav1.QuoinMachine, host *infrav1.QuoinHost)
		want   controlplane.RecoveryHost
	}{
		"it is there": {func(*Inventory, *infrav1.QuoinMachine, *infrav1.QuoinHost) {},
			controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id}},
		"it is silent": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionFalse,
				Reason: "Timeout"})
		}, controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id, Silent: true}},
		"it is off": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			conditions.Set(host, metav1.Condition{Type: infrav1.HostFencedCondition, Status: metav1.ConditionTrue,
				Reason: infrav1.HostFencedReason})
		}, gone},
		"it serves another claim": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef.Claim = "2"
		}, gone},
		"it is free": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef, host.Status.State = nil, infrav1.HostStateAvailable
		}, gone},
		"it was registered anew": {func(_ *Inventory, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef, host.Status.State = nil, infrav1.HostStateRegistering
		}, unbound("-n metal quoinhost h", "")},
		"its QuoinMachine was torn away": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			delete(inv.QuoinMachines, "m")
		}, unbound("-n metal quoinhost h", id)},
		"it has no object": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			delete(inv.Hosts, "m")
		}, unbound("-n ns quoinmachine m", id)},
		"a person says so of the QuoinMachine": {func(inv *Inventory, infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Annotations = map[string]string{infrav1.AbandonAnnotation: id}
			delete(inv.Hosts, "m")
		}, gone},
		"a person says so of the host before": {func(inv *Inventory, infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Annotations = map[string]string{infrav1.AbandonAnnotation: "quoin://metal/g/1"}
			delete(inv.Hosts, "m")
		}, unbound("-n ns quoinmachine m", id)},
		"neither has one": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			delete(inv.Hosts, "m")
			delete(inv.QuoinMachines, "m")
		}, unbound("-n ns machine m", id)},
		"a person says so of the Machine": {func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			inv.Machines["m"].Annotations = map[string]string{infrav1.AbandonAnnotation: id}
			delete(inv.Hosts, "m")
			delete(inv.QuoinMachines, "m")
		}, gone},
		"a person's word about the Machine while its host is there": {
			func(inv *Inventory, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
				inv.Machines["m"].Annotations = map[string]string{infrav1.AbandonAnnotation: id}
			}, controlplane.RecoveryHost{Name: "-n metal quoinhost h", ProviderID: id}},
		"there never was one": {func(inv *Inventory, infra *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			infra.Spec.ProviderID, inv.Machines["m"].Spec.ProviderID = "", ""
			delete(inv.Hosts, "m")
		}, gone},
	} {
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "h"}}
		host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "ns", Name: "m", Machine: "m", Claim: "1"}
		host.Status.State = infrav1.HostStateProvisioned
		infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
		infra.Spec.ProviderID = id
		inv := &Inventory{Machines: collections.FromMachines(&clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: clusterv1.MachineSpec{ProviderID: id}}),
			QuoinMachines: map[string]*infrav1.QuoinMachine{"m": infra}, Hosts: map[string]*infrav1.QuoinHost{"m": host}}
		inv.ControlPlane = &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cp"}}
		c.change(inv, infra, host)
		NewWithT(t).Expect(inv.recoveryHost("m", "r1")).To(Equal(c.want), name)
	}
}

// What etcd had when it was last read is at hand where nobody can read it.
func TestARecoveryKnowsTheMembersOfTheLastReading(t *testing.T) {
	g := NewWithT(t)
	inv := &Inventory{}
	inv.ControlPlane = &controlplanev1.QuoinControlPlane{}
	inv.ControlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "m"}
	g.Expect(inv.recovery().Unclaimed).To(BeEmpty())
	inv.ControlPlane.Status.Etcd = &controlplanev1.EtcdStatus{Members: []controlplanev1.EtcdMember{
		{ID: "a1", Machine: "m"}, {ID: "beef"}}}
	g.Expect(inv.recovery().Unclaimed).To(Equal([]string{"beef"}))
}
