// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
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
	inv.ClusterQuoinMachines = nil
	g.Expect(inv.taken(inv.fleet)).To(BeEmpty())
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
	inv.Template, inv.freeDomains = nil, map[string]bool{"before": true}
	g.Expect(inv.countSpares()).To(Succeed())
	g.Expect(inv.Spare).To(Equal(controlplane.Spare{Free: 1}), "that it is missing is said elsewhere")
	g.Expect(inv.freeDomains).To(BeEmpty())
}

// The next Machine goes where fewest are that stay, among the failure domains of control planes that have a host.
func TestTheNextFailureDomain(t *testing.T) {
	both := map[string]bool{"a": true, "b": true}
	for name, test := range map[string]struct {
		free, pending map[string]bool
		// specs and hosts are the failure domains of the Machines m0, m1 and so on; outdated counts the last of them.
		specs, hosts []string
		outdated     int
		change       func(*Observation)
		want         string
	}{
		"where none is": {free: both, specs: []string{"a"}, want: "b"},
		"where the only free host is": {free: map[string]bool{"a": true}, pending: both, specs: []string{"a"},
			want: "a"},
		"where a host will be":              {pending: map[string]bool{"a": true}, specs: []string{"a"}, want: "a"},
		"no host is known":                  {want: ""},
		"of workers":                        {free: map[string]bool{"w": true, "u": true}, pending: both, want: ""},
		"by where the host is":              {free: both, specs: []string{"a"}, hosts: []string{"b"}, want: "a"},
		"by where the host is, not asked":   {free: both, specs: []string{""}, hosts: []string{"b"}, want: "a"},
		"before where one that stays is":    {free: both, specs: []string{"a", "b", "b"}, outdated: 2, want: "b"},
		"before where more are, of no more": {free: both, specs: []string{"a", "b", "b"}, outdated: 3, want: "a"},
		"not counting those that leave": {free: both, specs: []string{"a", "a", "b"}, change: func(o *Observation) {
			for _, name := range []string{"m0", "m1"} {
				o.Machines[name].DeletionTimestamp = ptr.To(metav1.Now())
			}
		}, want: "a"},
		"not counting those made ahead": {free: both, specs: []string{"a", "b"}, change: func(o *Observation) {
			note(o.Machines["m0"], infrav1.HoldClaimAnnotation)
			o.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		}, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			o := atNoon()
			for name, controlPlane := range map[string]*bool{"w": ptr.To(false), "u": nil, "a": ptr.To(true),
				"b": ptr.To(true)} {
				o.Cluster.Status.FailureDomains = append(o.Cluster.Status.FailureDomains,
					clusterv1.FailureDomain{Name: name, ControlPlane: controlPlane})
			}
			o.freeDomains, o.pendingDomains = test.free, test.pending
			o.Machines, o.Outdated = collections.New(), map[string][]string{}
			for i, domain := range test.specs {
				name := fmt.Sprintf("m%d", i)
				machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
				machine.Spec.FailureDomain = domain
				o.Machines.Insert(machine)
				o.QuoinMachines[name] = &infrav1.QuoinMachine{}
				if i < len(test.hosts) {
					o.QuoinMachines[name].Status.FailureDomain = test.hosts[i]
				}
				if i >= len(test.specs)-test.outdated {
					o.Outdated[name] = []string{"Version"}
				}
			}
			if test.change != nil {
				test.change(o)
			}
			for range 5 {
				NewWithT(t).Expect(o.NextFailureDomain(t.Context())).To(Equal(test.want))
			}
			for i, domain := range test.specs {
				NewWithT(t).Expect(o.Machines[fmt.Sprintf("m%d", i)].Spec.FailureDomain).To(Equal(domain))
			}
		})
	}
}
