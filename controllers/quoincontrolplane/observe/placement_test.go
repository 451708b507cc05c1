// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const namespace = "default"

// withTemplate is an inventory of a control plane that has a template, and of the hosts.
func withTemplate(hosts ...infrav1.QuoinHost) *Inventory {
	return &Inventory{fleet: hosts, Subject: Subject{Template: &unstructured.Unstructured{Object: map[string]any{}},
		ControlPlane: &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}}}
}

// A paused host is claimed by nobody, so no Machine is bound to its failure domain.
func TestPausedHostIsNotFree(t *testing.T) {
	g := NewWithT(t)
	var hosts []infrav1.QuoinHost
	for name, annotations := range map[string]map[string]string{"r1": nil, "r2": {clusterv1.PausedAnnotation: ""}} {
		host := infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
		host.Spec.FailureDomain = name
		host.Status.State = infrav1.HostStateAvailable
		conditions.Set(&host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.HostAvailableReason})
		hosts = append(hosts, host)
	}
	inv := withTemplate(hosts...)
	g.Expect(inv.countSpares()).To(Succeed())
	g.Expect(inv.freeDomains).To(HaveLen(1))
	g.Expect(inv.freeDomains).To(HaveKey("r1"))
	g.Expect(inv.Spare.Free).To(Equal(1))
}

// A host that is being reset or inspected is waited for while it answers and nothing is wrong with it, whoever had it.
func TestHostsThatWillBeFreeAreCounted(t *testing.T) {
	g := NewWithT(t)
	host := func(name string, state infrav1.HostState, change func(*infrav1.QuoinHost)) infrav1.QuoinHost {
		h := infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		h.Status.State, h.Spec.FailureDomain = state, name
		if change != nil {
			change(&h)
		}
		return h
	}
	set := func(kind, reason string) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			conditions.Set(h, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason})
		}
	}
	hosts := []infrav1.QuoinHost{
		host("reset", infrav1.HostStateCleaning, func(h *infrav1.QuoinHost) {
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "gone"}
		}),
		host("inspected", infrav1.HostStateInspecting, nil),
		host("unsuitable", infrav1.HostStateInspecting, set(infrav1.HostInspectedCondition, infrav1.HostUnsuitableReason)),
		host("silent", infrav1.HostStateCleaning, set(infrav1.HostReachableCondition, infrav1.HostUnreachableReason)),
		host("quarantined", infrav1.HostStateQuarantined, nil),
		host("used", infrav1.HostStateProvisioned, func(h *infrav1.QuoinHost) {
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "cp-0"}
		}),
		host("maintained", infrav1.HostStateCleaning, func(h *infrav1.QuoinHost) {
			h.Spec.Maintenance = &infrav1.Maintenance{}
		}),
		host("elsewhere", infrav1.HostStateCleaning, func(h *infrav1.QuoinHost) { h.Namespace = "elsewhere" }),
	}
	inv := withTemplate(hosts...)
	g.Expect(inv.countSpares()).To(Succeed())
	g.Expect(inv.Spare.Free).To(Equal(0))
	g.Expect(inv.Spare.Pending).To(Equal(2))
	g.Expect(inv.pendingDomains).To(And(HaveKey("reset"), HaveKey("inspected")))

	bound := func(domain string) *clusterv1.Machine {
		return &clusterv1.Machine{Spec: clusterv1.MachineSpec{FailureDomain: domain}}
	}
	g.Expect(inv.hostless(bound("quarantined"))).To(BeTrue())
	g.Expect(inv.hostless(bound("reset"))).To(BeFalse())
	g.Expect(inv.hostless(bound(""))).To(BeFalse(), "any host will do")

	// The host says so before its QuoinMachine does.
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cp-0"}}
	g.Expect(inv.claimedFor(infra)).To(BeTrue())
	infra.Name = "cp-1"
	g.Expect(inv.claimedFor(infra)).To(BeFalse())
}

// Whoever may write a QuoinHost can write the name of any QuoinMachine into it.
func TestAHostThatOnlyNamesAQuoinMachineIsNotItsOwn(t *testing.T) {
	g := NewWithT(t)
	host := infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h"}}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "cp-0", Machine: "cp-0",
		Claim: "89abcdef"}
	host.Status.Facts = &infrav1.HostFacts{MachineID: "of-another"}
	inv := withTemplate(host)
	inv.ClusterQuoinMachines = []infrav1.QuoinMachine{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cp-0",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "cp-0", UID: "89abcdef-0000"}}}}}
	infra := &inv.ClusterQuoinMachines[0]
	g.Expect(inv.claimedFor(infra)).To(BeTrue())
	g.Expect(inv.taken(inv.fleet)).NotTo(BeEmpty())
	infra.OwnerReferences[0].UID = "0123abcd-0000"
	g.Expect(inv.claimedFor(infra)).To(BeFalse())
	g.Expect(inv.taken(inv.fleet)).To(BeEmpty())
	infra.Spec.ProviderID = host.ProviderID()
	g.Expect(inv.taken(inv.fleet)).NotTo(BeEmpty())
	infra.Spec.ProviderID = "quoin://default/another/89abcdef"
	g.Expect(inv.taken(inv.fleet)).To(BeEmpty())
}
