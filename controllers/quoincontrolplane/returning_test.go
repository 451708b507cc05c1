// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// leaver is a scope with one Machine that has left for good, on a host that still serves it. change may make it
// otherwise.
func leaver(t *testing.T, change func(*clusterv1.Machine, *infrav1.QuoinMachine, *infrav1.QuoinHost)) *scope {
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
	plane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	s := &scope{clock: clock.RealClock{}, plane: plane, template: &unstructured.Unstructured{Object: map[string]any{}},
		machines: collections.FromMachines(machine),
		infra:    map[string]*infrav1.QuoinMachine{"m": infra}, hosts: map[string]*infrav1.QuoinHost{"m": host}}
	NewWithT(t).Expect(s.countSpares([]infrav1.QuoinHost{*host})).To(Succeed())
	return s
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
			s := leaver(t, tc.change)
			s.countReturning()
			if !tc.counted {
				g.Expect(s.snapshot.Spare.Returning).To(BeZero())
				g.Expect(s.comingDomains).To(BeEmpty())
				return
			}
			g.Expect(s.snapshot.Spare.Returning).To(Equal(1))
			g.Expect(s.comingDomains).To(HaveKey("a"), "a Machine may be bound to its failure domain")
		})
	}
}

// What is not known of a Machine is no host that returns.
func TestMachinesWithoutPartsReturnNoHost(t *testing.T) {
	unchanged := func(*clusterv1.Machine, *infrav1.QuoinMachine, *infrav1.QuoinHost) {}
	for name, lose := range map[string]func(*scope){
		"no template":     func(s *scope) { s.request = nil },
		"no QuoinMachine": func(s *scope) { s.infra = nil },
		"no host":         func(s *scope) { s.hosts = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := leaver(t, unchanged)
			lose(s)
			s.countReturning()
			NewWithT(t).Expect(s.snapshot.Spare.Returning).To(BeZero())
		})
	}
}
