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
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
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
	g.Expect(placement.Taken(inv.fleet, inv.ClusterQuoinMachines)).NotTo(BeEmpty())
	infra.OwnerReferences[0].UID = "0123abcd-0000"
	g.Expect(inv.claimedFor(infra)).To(BeFalse())
	g.Expect(placement.Taken(inv.fleet, inv.ClusterQuoinMachines)).To(BeEmpty())
	infra.Spec.ProviderID = host.ProviderID()
	g.Expect(placement.Taken(inv.fleet, inv.ClusterQuoinMachines)).NotTo(BeEmpty())
	infra.Spec.ProviderID = "quoin://default/another/89abcdef"
	g.Expect(placement.Taken(inv.fleet, inv.ClusterQuoinMachines)).To(BeEmpty())
	inv.ClusterQuoinMachines = nil
	g.Expect(placement.Taken(inv.fleet, inv.ClusterQuoinMachines)).To(BeEmpty())
}

// free is a host that a Machine could claim.
func free(name string) infrav1.QuoinHost {
	host := infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"rack": name}}}
	host.Status.State = infrav1.HostStateAvailable
	conditions.Set(&host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
		Reason: infrav1.HostAvailableReason})
	return host
}

// Hosts are counted by what the template asks of them, and where none is free why not.
func TestSparesAreThoseThatTheTemplateAsksFor(t *testing.T) {
	const ofNamespace = "hosts of namespace default"
	for name, test := range map[string]struct {
		spec map[string]any
		want controlplane.Spare
		err  string
	}{
		"any": {map[string]any{}, controlplane.Spare{Free: 2, Kind: ofNamespace}, ""},
		"all": {map[string]any{"hostSelector": map[string]any{}}, controlplane.Spare{Free: 2, Kind: ofNamespace}, ""},
		"of a rack": {map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"rack": "a"}}},
			controlplane.Spare{Free: 1, Kind: "hosts that rack=a selects"}, ""},
		"of a rack that is not there": {
			map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"rack": "z"}}},
			controlplane.Spare{Kind: "hosts that rack=z selects", Why: "1 in use, 2 not selected by rack=z"}, ""},
		"of no namespaces": {map[string]any{"hostNamespaces": "x"}, controlplane.Spare{},
			"reading hostNamespaces of QuoinMachineTemplate t: "},
		"of what is no selector": {map[string]any{"hostSelector": "x"}, controlplane.Spare{},
			".spec.template.spec.hostSelector accessor error"},
		"of what are no labels": {map[string]any{"hostSelector": map[string]any{"matchLabels": "x"}},
			controlplane.Spare{}, "reading hostSelector of QuoinMachineTemplate t: "},
		"of no operator": {map[string]any{"hostSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": "rack", "operator": "Near"}}}}, controlplane.Spare{}, "is not a valid label selector"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			used := free("z")
			used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "another"}
			inv := withTemplate(free("a"), free("b"), used)
			inv.Template.SetKind("QuoinMachineTemplate")
			inv.Template.SetName("t")
			g.Expect(unstructured.SetNestedMap(inv.Template.Object, test.spec, "spec", "template", "spec")).To(Succeed())
			err := inv.countSpares()
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(inv.Spare).To(Equal(test.want))
		})
	}

	g := NewWithT(t)
	inv := withTemplate(free("a"))
	inv.Template, inv.freeDomains = nil, map[string]int{"before": 1}
	g.Expect(inv.countSpares()).To(Succeed())
	g.Expect(inv.Spare).To(Equal(controlplane.Spare{Free: 1}), "that it is missing is said elsewhere")
	g.Expect(inv.freeDomains).To(BeEmpty())
}

// A Machine of the control plane is bound to no failure domain but its own, however many hosts the others have.
func TestTheFailureDomainsOfControlPlanes(t *testing.T) {
	o := atNoon()
	for name, controlPlane := range map[string]*bool{"w": ptr.To(false), "u": nil, "a": ptr.To(true), "b": ptr.To(true)} {
		o.Cluster.Status.FailureDomains = append(o.Cluster.Status.FailureDomains,
			clusterv1.FailureDomain{Name: name, ControlPlane: controlPlane})
	}
	o.freeDomains, o.pendingDomains = map[string]int{"w": 3, "a": 1}, map[string]int{"u": 1, "a": 2}
	o.fillState()
	NewWithT(t).Expect(o.State.Domains).To(ConsistOf(controlplane.FailureDomain{Name: "a", Free: 1, Pending: 2},
		controlplane.FailureDomain{Name: "b"}))
}
