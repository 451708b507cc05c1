// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// leaver is an inventory with one Machine that has left for good, on a host that still serves it. change may make it
// otherwise.
func leaver(t *testing.T, change func(*clusterv1.Machine, *infrav1.QuoinMachine, *infrav1.QuoinHost)) *Inventory {
	t.Helper()
	deleted := metav1.Now()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m",
		DeletionTimestamp: &deleted, Annotations: map[string]string{}}}
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h"}}
	host.Spec.FailureDomain = "a"
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "m"}
	host.Status.State = infrav1.HostStateProvisioned
	change(machine, infra, host)
	inv := withTemplate(*host)
	inv.Machines = collections.FromMachines(machine)
	inv.QuoinMachines = map[string]*infrav1.QuoinMachine{"m": infra}
	inv.Hosts = map[string]*infrav1.QuoinHost{"m": host}
	return inv
}

// The host of a Machine that has left for good is reset next, so another Machine may be made for it already.
func TestHostsThatMachinesHaveLeftForGoodAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*clusterv1.Machine, *infrav1.QuoinMachine, *infrav1.QuoinHost)
		counted bool
	}{
		"left": {func(*clusterv1.Machine, *infrav1.QuoinMachine, *infrav1.QuoinHost) {}, true},
		"its reset runs": {func(_ *clusterv1.Machine, _ *infrav1.QuoinMachine, h *infrav1.QuoinHost) {
			h.Status.State = infrav1.HostStateCleaning
		}, true},
		"somebody else's hook on its host": {func(_ *clusterv1.Machine, i *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			i.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: "backup", Owner: "somebody"}}
		}, true},
		"stays": {func(m *clusterv1.Machine, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			m.DeletionTimestamp = nil
		}, false},
		"may not be drained yet": {func(m *clusterv1.Machine, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			m.Annotations[controlplanev1.PreDrainHookAnnotation] = ""
		}, false},
		"has its member yet": {func(m *clusterv1.Machine, _ *infrav1.QuoinMachine, _ *infrav1.QuoinHost) {
			m.Annotations[controlplanev1.PreTerminateHookAnnotation] = ""
		}, false},
		"hooks were stripped, and its host is held": {func(_ *clusterv1.Machine, i *infrav1.QuoinMachine,
			_ *infrav1.QuoinHost) {
			i.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: controlplanev1.HookName}}
		}, false},
		"its host is silent": {func(_ *clusterv1.Machine, _ *infrav1.QuoinMachine, h *infrav1.QuoinHost) {
			now := metav1.Now()
			h.Status.UnreachableSince = &now
		}, false},
		"its host is in maintenance": {func(_ *clusterv1.Machine, _ *infrav1.QuoinMachine, h *infrav1.QuoinHost) {
			h.Spec.Maintenance = &infrav1.Maintenance{}
		}, false},
		"its host is no longer offered": {func(_ *clusterv1.Machine, _ *infrav1.QuoinMachine, h *infrav1.QuoinHost) {
			h.Spec.ConsumerNamespaces = []string{"elsewhere"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			inv := leaver(t, tc.change)
			g.Expect(inv.countSpares()).To(Succeed())
			if !tc.counted {
				g.Expect(inv.Spare.Returning).To(BeZero())
				g.Expect(inv.pendingDomains).To(BeEmpty())
				return
			}
			g.Expect(inv.Spare.Returning).To(Equal(1))
			g.Expect(inv.pendingDomains).To(HaveKey("a"), "a Machine may be bound to its failure domain")
		})
	}
}

// A host of another namespace is no spare, whoever registered it and whatever it offers, unless the template accepts it.
func TestOnlyHostsThatTheTemplateAcceptsAreSpare(t *testing.T) {
	g := NewWithT(t)
	theirs := func(_ *clusterv1.Machine, _ *infrav1.QuoinMachine, h *infrav1.QuoinHost) {
		h.Namespace, h.Spec.ConsumerNamespaces, h.Spec.ConsumerRef = "hosts", []string{"*"}, nil
		h.Status.State = infrav1.HostStateAvailable
		h.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue}}
	}
	inv := leaver(t, theirs)
	g.Expect(inv.countSpares()).To(Succeed())
	g.Expect(inv.Spare.Free).To(BeZero())
	g.Expect(inv.Spare.Why).To(Equal("1 in a namespace that spec.hostNamespaces does not name"))
	g.Expect(inv.freeDomains).To(BeEmpty())
	g.Expect(unstructured.SetNestedStringSlice(inv.Template.Object, []string{"hosts"}, "spec", "template", "spec",
		"hostNamespaces")).To(Succeed())
	g.Expect(inv.countSpares()).To(Succeed())
	g.Expect(inv.Spare.Free).To(Equal(1))
}

// What is not known of a Machine is no host that returns.
func TestMachinesWithoutPartsReturnNoHost(t *testing.T) {
	unchanged := func(*clusterv1.Machine, *infrav1.QuoinMachine, *infrav1.QuoinHost) {}
	for name, lose := range map[string]func(*Inventory){
		"no template":     func(inv *Inventory) { inv.Template = nil },
		"no QuoinMachine": func(inv *Inventory) { inv.QuoinMachines = nil },
		"no host":         func(inv *Inventory) { inv.Hosts = nil },
	} {
		t.Run(name, func(t *testing.T) {
			inv := leaver(t, unchanged)
			lose(inv)
			NewWithT(t).Expect(inv.countSpares()).To(Succeed())
			NewWithT(t).Expect(inv.Spare.Returning).To(BeZero())
		})
	}
}

// Proves: R20
func TestAHostThatTheNextKubeletFailsOnDoesNotReturn(t *testing.T) {
	for _, fails := range []bool{false, true} {
		g := NewWithT(t)
		inv := leaver(t, func(_ *clusterv1.Machine, _ *infrav1.QuoinMachine, host *infrav1.QuoinHost) {
			host.Status.Facts = &infrav1.HostFacts{CgroupVersion: 1, KubeletOnCgroupV1: ptr.To(false)}
		})
		inv.ControlPlane.Spec.Version, inv.failCgroupV1 = "v1.35.4", fails
		g.Expect(inv.countSpares()).To(Succeed())
		o := &Observation{Inventory: *inv}
		machine := o.stateOf(inv.Machines["m"])
		g.Expect(machine.Returns).NotTo(Equal(fails))
		if fails {
			g.Expect(machine.NoReturn).To(ContainSubstring("R20"))
		}
	}
}
