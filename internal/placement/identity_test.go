// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestIdentitiesAreWhatIsAHostsOwn(t *testing.T) {
	g := NewWithT(t)
	host := func(bmc *infrav1.BMC, facts *infrav1.HostFacts) *infrav1.QuoinHost {
		return &infrav1.QuoinHost{Spec: infrav1.QuoinHostSpec{BMC: bmc}, Status: infrav1.QuoinHostStatus{Facts: facts}}
	}
	bmc := &infrav1.BMC{Address: "https://192.0.2.111"}
	g.Expect(IdentitiesOf(host(bmc, nil))).To(BeEmpty())
	for _, uuid := range []string{"00112233-4455-6677-8899-AABBCCDDEEFF", "33221100-5544-7766-8899-aabbccddeeff"} {
		facts := &infrav1.HostFacts{Hostname: "Node-1", MachineID: "abcd", ProductUUID: uuid}
		g.Expect(IdentitiesOf(host(bmc, facts))).To(Equal([]Identity{"hostname node-1", "machine-id abcd",
			"product UUID 00112233-4455-6677-8899-aabbccddeeff"}), "in either byte order")
		g.Expect(IdentitiesOf(host(nil, facts))).To(Equal([]Identity{"hostname node-1", "machine-id abcd"}),
			"containers share one")
	}
	g.Expect(IdentitiesOf(host(bmc, &infrav1.HostFacts{Hostname: "localhost.localdomain", MachineID: "uninitialized",
		ProductUUID: "03000200-0400-0500-0006-000700080009"}))).To(BeEmpty(), "what half of the world has refuses nobody")
	g.Expect(Common([]Identity{"hostname a", "machine-id b"}, []Identity{"machine-id b", "hostname c"})).
		To(Equal(Identity("machine-id b")))
	g.Expect(Common([]Identity{"hostname a"}, []Identity{"machine-id a"})).To(BeEmpty())
	g.Expect(Identity("machine-id b").Remedy()).To(ContainSubstring("systemd-machine-id-setup"))
	g.Expect(Identity("hostname b").Remedy()).To(ContainSubstring("hostnamectl"))
	g.Expect(Identity("product UUID b").Remedy()).To(ContainSubstring("firmware"))
}

func TestHostsMeetWhereOneNamespaceMayClaimBoth(t *testing.T) {
	at := func(namespace string, offers ...string) Host {
		return Host{Namespace: namespace, ConsumerNamespaces: offers}
	}
	for _, c := range []struct {
		a, b Host
		want bool
	}{
		{at("a"), at("a"), true},
		{at("a"), at("b"), false},
		{at("a", "x", "y"), at("b", "y"), true},
		{at("a", "x"), at("x"), true},
		{at("a", "*"), at("b"), true},
		{at("a", "x"), at("b", "y"), false},
		{at("a", "b"), at("a"), false},
	} {
		g := NewWithT(t)
		g.Expect(Meet(c.a, c.b)).To(Equal(c.want), "%v %v", c.a, c.b)
		g.Expect(Meet(c.b, c.a)).To(Equal(c.want), "%v %v", c.b, c.a)
	}
}

func TestAHostThatIsLikeOneOfTheClusterIsNotChosen(t *testing.T) {
	g := NewWithT(t)
	twin := Host{Namespace: "default", Name: "a", State: StateAvailable, Ready: true, Identities: []Identity{"hostname a",
		"machine-id 1"}}
	other := Host{Namespace: "default", Name: "b", State: StateAvailable, Ready: true, Identities: []Identity{"hostname b",
		"machine-id 2"}}
	request := Request{Namespace: "default", Taken: []Identity{"hostname x", "machine-id 1"}}
	g.Expect(Select(request, []Host{twin, other}).Chosen.Name).To(Equal("b"))
	alone := Select(request, []Host{twin})
	g.Expect(alone.Chosen).To(BeNil())
	g.Expect(alone.Message()).To(ContainSubstring("1 with the hostname, machine-id or product UUID of another host of " +
		"the Cluster"))
	busy := Host{Namespace: "default", Name: "c", State: "Provisioned", Serving: true, InUse: true,
		Identities: []Identity{"machine-id 1"}}
	g.Expect(Returning(request, busy)).To(BeTrue(), "what is taken is its own")
	twin.InUse = true
	g.Expect(Select(request, []Host{twin}).Message()).To(ContainSubstring("1 in use"))
}

// What the hosts have that QuoinMachines of the Cluster claimed is taken, and nothing of any other host: of one that is
// free, that somebody else's Machine has, or whose claim is of a Machine of that name in another namespace.
func TestWhatClaimedHostsHaveIsTaken(t *testing.T) {
	g := NewWithT(t)
	machine := func(name string) infrav1.QuoinMachine {
		m := infrav1.QuoinMachine{}
		m.Namespace, m.Name = "team", name
		return m
	}
	host := func(id string, claim *infrav1.ConsumerReference) infrav1.QuoinHost {
		return infrav1.QuoinHost{Spec: infrav1.QuoinHostSpec{ConsumerRef: claim},
			Status: infrav1.QuoinHostStatus{Facts: &infrav1.HostFacts{Hostname: id, MachineID: id}}}
	}
	by := func(namespace, name string) *infrav1.ConsumerReference {
		return &infrav1.ConsumerReference{Namespace: namespace, Name: name}
	}
	hosts := []infrav1.QuoinHost{host("free", nil), host("a", by("team", "cp-0")), host("theirs", by("team", "w-0")),
		host("copy", by("elsewhere", "cp-1")), host("b", by("team", "cp-1"))}
	machines := []infrav1.QuoinMachine{machine("cp-0"), machine("cp-1")}
	g.Expect(Taken(hosts, machines)).To(Equal([]Identity{"hostname a", "machine-id a", "hostname b", "machine-id b"}))
	g.Expect(Taken(hosts, nil)).To(BeEmpty())
}
