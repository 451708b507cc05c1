// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// silent is a host of the namespace that answers no more.
func silent(name, domain string, since time.Duration) *infrav1.QuoinHost {
	h := host("team", name, domain, false)
	h.Status.State = infrav1.HostStateProvisioned
	h.Status.UnreachableSince = &metav1.Time{Time: begun.Add(since)}
	return h
}

func TestHostsAreCountedByFailureDomain(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	w := newWorld(t, cluster, quoinCluster, accepting("own"), accepting("pool", "hosts"),
		host("team", "h1", "rack-b", true), host("team", "h2", "rack-b", true), silent("h3", "rack-b", 0),
		host("team", "h4", "rack-a", false), host("team", "h5", "", true),
		host("hosts", "h6", "rack-a", true, "team"), host("hosts", "h7", "rack-a", true), host("hosts", "h8", "rack-c", true))
	w.reconcile("c1")
	counts := w.get("c1").Status.Hosts
	w.g.Expect(*counts.Total).To(BeEquivalentTo(6))
	w.g.Expect(*counts.Available).To(BeEquivalentTo(4))
	w.g.Expect(counts.Domains).To(Equal([]infrav1.DomainHostCounts{
		{Name: "rack-a", Total: ptr.To[int32](2), Available: ptr.To[int32](1), Unreachable: ptr.To[int32](0)},
		{Name: "rack-b", Total: ptr.To[int32](3), Available: ptr.To[int32](2), Unreachable: ptr.To[int32](1)},
	}), "and nothing of hosts that the namespace may not claim")
	w.expect("c1", infrav1.ClusterDomainsReachableCondition, metav1.ConditionTrue, infrav1.HostReachableReason)
}

// Whoever offers hosts to every namespace adds nothing to the clusters there. A host that a Machine has stays.
func TestHostsThatNobodyAcceptsAddNoFailureDomains(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	had := host("hosts", "h1", "rack-a", false, "team")
	had.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	imposed := had.DeepCopy()
	imposed.Namespace, imposed.Spec.FailureDomain = "hostile", "evil"
	machine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	machine.Spec.ProviderID = "quoin://hosts/h1/0123abcd"
	w := newWorld(t, cluster, quoinCluster, accepting("own"), machine, had, imposed,
		host("hostile", "h2", "evil", true, "*"))
	w.reconcile("c1")
	c := w.get("c1")
	w.g.Expect(c.Status.FailureDomains).To(Equal([]clusterv1.FailureDomain{
		{Name: "rack-a", ControlPlane: ptr.To(true)}}))
	w.expect("c1", infrav1.ClusterHostsAvailableCondition, metav1.ConditionTrue, infrav1.HostAvailableReason,
		"0 of 1 hosts are free", "2 hosts are offered", "hostNamespaces of no machine template names")
}

func TestANamespaceThatAcceptsNoneOfTheOfferedHostsIsToldWhatToSet(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	w := newWorld(t, cluster, quoinCluster, host("hosts", "h1", "rack-a", true, "*"))
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterHostsAvailableCondition, metav1.ConditionFalse, infrav1.ClusterNoHostsReason,
		"spec.consumerNamespaces of others, and their namespace in hostNamespaces of the machine templates",
		"1 hosts are offered to it")
}

func TestAFailureDomainWithoutAFreeHostIsNamed(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	w := newWorld(t, cluster, quoinCluster, host("team", "h1", "rack-a", true), host("team", "h2", "rack-b", false),
		host("team", "h3", "rack-c", false))
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterHostsAvailableCondition, metav1.ConditionTrue, infrav1.HostAvailableReason,
		"1 of 3 hosts are free; none in failure domain rack-b, rack-c")
}

func TestAHostThatNoMachineWouldGetIsNotFree(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	maintained, away, stopped := host("team", "h1", "", true), host("team", "h2", "", true), host("team", "h3", "", true)
	maintained.Spec.Maintenance = &infrav1.Maintenance{Reason: "new disks"}
	away.Annotations = map[string]string{infrav1.DetachedAnnotation: ""}
	stopped.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	w := newWorld(t, cluster, quoinCluster, maintained, away, stopped, host("team", "h4", "", true))
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterHostsAvailableCondition, metav1.ConditionTrue, infrav1.HostAvailableReason,
		"1 of 4 hosts are free")
}

func TestALostFailureDomainIsSaid(t *testing.T) {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	w := newWorld(t, cluster, quoinCluster,
		silent("h1", "rack-a", 0), silent("h2", "rack-a", time.Minute), host("team", "h3", "rack-a", true),
		host("team", "h4", "rack-b", true))
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterDomainsReachableCondition, metav1.ConditionFalse, infrav1.HostDomainLostReason,
		"failure domain rack-a (2 of 3 hosts fell silent together from 2026-01-01T00:00:00Z on)", "network and the power")
	w.expect("c1", infrav1.ClusterReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
}

// What is said here is what the hosts' own verdict follows, and that asks the hosts of one namespace: others are
// somebody else's to silence.
func TestHostsOfOtherNamespacesTellNothingOfADomain(t *testing.T) {
	foreign := func(name string, since time.Duration) *infrav1.QuoinHost {
		h := silent(name, "rack-a", since)
		h.Namespace = "hosts"
		return h
	}
	answering := func(name string) *infrav1.QuoinHost {
		h := foreign(name, 0)
		h.Status.UnreachableSince = nil
		return h
	}
	for name, c := range map[string]struct {
		hosts  []client.Object
		status metav1.ConditionStatus
		reason string
	}{
		"they answer": {[]client.Object{silent("h1", "rack-a", 0), silent("h2", "rack-a", 0), answering("h3"),
			answering("h4"), answering("h5")}, metav1.ConditionFalse, infrav1.HostDomainLostReason},
		"they are silent": {[]client.Object{silent("h1", "rack-a", 0), foreign("h2", time.Minute)}, metav1.ConditionTrue,
			infrav1.HostReachableReason},
		"none is ours": {[]client.Object{foreign("h1", 0), foreign("h2", 0)}, metav1.ConditionTrue,
			infrav1.HostReachableReason},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
			w := newWorld(t, append(c.hosts, cluster, quoinCluster)...)
			w.reconcile("c1")
			w.expect("c1", infrav1.ClusterDomainsReachableCondition, c.status, c.reason)
		})
	}
}

func TestHostsThatNobodyTriesToReachLoseNoFailureDomain(t *testing.T) {
	for name, change := range map[string]func(*infrav1.QuoinHost){
		"detached":      func(h *infrav1.QuoinHost) { h.Annotations = map[string]string{infrav1.DetachedAnnotation: ""} },
		"registering":   func(h *infrav1.QuoinHost) { h.Status.State = infrav1.HostStateRegistering },
		"in quarantine": func(h *infrav1.QuoinHost) { h.Status.State = infrav1.HostStateQuarantined },
		"without a domain": func(h *infrav1.QuoinHost) {
			h.Spec.FailureDomain = ""
		},
		"one by one": func(h *infrav1.QuoinHost) { h.Status.UnreachableSince.Time = begun.Add(5 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
			changed := silent("h2", "rack-a", time.Minute)
			change(changed)
			w := newWorld(t, cluster, quoinCluster, silent("h1", "rack-a", 0), changed, host("team", "h3", "rack-a", true))
			w.reconcile("c1")
			w.expect("c1", infrav1.ClusterDomainsReachableCondition, metav1.ConditionTrue, infrav1.HostReachableReason)
		})
	}
}

func TestOnlyChangesThatAClusterShowsWakeIt(t *testing.T) {
	g := NewWithT(t)
	before := silent("h1", "rack-a", 0)
	for name, c := range map[string]struct {
		change func(*infrav1.QuoinHost)
		wakes  bool
	}{
		"a step": {func(h *infrav1.QuoinHost) {
			h.Status.Operation = &infrav1.HostOperation{ID: "x", Step: "2"}
		}, false},
		"an answer":      {func(h *infrav1.QuoinHost) { h.Status.UnreachableSince = nil }, true},
		"another domain": {func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "rack-b" }, true},
		"another offer":  {func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"x"} }, true},
		"being detached": {func(h *infrav1.QuoinHost) {
			h.Annotations = map[string]string{infrav1.DetachedAnnotation: ""}
		}, true},
		"its registration": {func(h *infrav1.QuoinHost) { h.Status.State = infrav1.HostStateRegistering }, true},
	} {
		now := before.DeepCopy()
		c.change(now)
		g.Expect(hostMatters().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now})).To(Equal(c.wakes), name)
	}
}
