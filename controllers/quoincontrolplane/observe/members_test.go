// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// observed is an observation of three Machines a, b and c in zones of the same names, with a member each, 1 to 3.
func threeMembers() *Observation {
	o := &Observation{Inventory: Inventory{Subject: Subject{ControlPlane: &controlplanev1.QuoinControlPlane{}},
		Machines: collections.Machines{}, QuoinMachines: map[string]*infrav1.QuoinMachine{}}}
	o.Etcd.Cluster.Agreed = true
	o.Etcd.ReadAt = time.Now()
	for i, name := range []string{"a", "b", "c"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		machine.Status.NodeRef.Name = "n-" + name
		o.Machines[name] = machine
		o.QuoinMachines[name] = &infrav1.QuoinMachine{Status: infrav1.QuoinMachineStatus{FailureDomain: "zone-" + name}}
		o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: uint64(i + 1), Name: "n-" + name,
			Answers: true, ReportedBy: "n-" + name, Leader: i == 0, Size: 4096, PeerAddresses: []string{"192.0.2." + name}})
	}
	return o
}

func TestMembershipTellsWhereMembersAre(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	o.Etcd.Cluster.Members[1].Alarms = []string{"NOSPACE"}
	o.Etcd.Cluster.Members[2].Answers, o.Etcd.Cluster.Members[2].ReportedBy = false, ""
	membership := o.Membership()
	g.Expect(membership.Known && membership.Agreed).To(BeTrue())
	g.Expect(membership.Members[0]).To(Equal(quorum.Member{ID: 1, Name: "n-a", Machine: "a", FailureDomain: "zone-a",
		Leader: true, Healthy: true, Size: 4096}))
	g.Expect(membership.Members[1].Healthy).To(BeFalse())
	g.Expect(membership.Members[1].Problem).To(ContainSubstring("NOSPACE"))
	g.Expect(membership.Members[2].Problem).NotTo(BeEmpty())
	g.Expect(membership.Count()).To(Equal(quorum.Count{Voters: 3, Healthy: 1}))
}

// Of a member without a Machine it is known from the others that it works; one that nobody hears of, or that is a
// learner, has a reason for that.
func TestAMemberWithoutAMachineIsAsTheOthersHearOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		member  etcd.Member
		problem string
		state   quorum.MemberState
	}{
		"connected":            {etcd.Member{Connected: true}, "", quorum.MemberHealthy},
		"a learner, connected": {etcd.Member{Connected: true, Learner: true}, "", quorum.MemberLearner},
		"silent":               {etcd.Member{}, "it was not reached", quorum.MemberWavering},
		"a silent learner":     {etcd.Member{Learner: true}, "it was not reached", quorum.MemberLearner},
		"unasked":              {etcd.Member{Unasked: true, Problem: "no metrics"}, "no metrics", quorum.MemberUnasked},
		"corrupt": {etcd.Member{Connected: true, Alarms: []string{"CORRUPT"}}, "alarm CORRUPT",
			quorum.MemberWavering},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := threeMembers()
			tc.member.ID, tc.member.Name = 9, "n-other"
			o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, tc.member)
			member := o.Membership().Members[3]
			g.Expect(member.Machine).To(BeEmpty())
			g.Expect(member.Problem).To(Equal(tc.problem))
			g.Expect(member.State(time.Minute)).To(Equal(tc.state))
		})
	}
}

// Certificates are about to end for a day, and end at their very second; of some nobody knows when.
func TestWhenCertificatesEnd(t *testing.T) {
	o := threeMembers()
	o.At = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		left  time.Duration
		soon  bool
		ended string
	}{
		"in two days":   {48 * time.Hour, false, ""},
		"in an hour":    {time.Hour, true, ""},
		"in a second":   {time.Second, true, ""},
		"now":           {0, true, "2026-11-21T12:00:00Z"},
		"an hour since": {-time.Hour, true, "2026-11-21T11:00:00Z"},
	} {
		g := NewWithT(t)
		o.Machines["a"].Status.CertificatesExpiryDate = metav1.NewTime(o.At.Add(test.left))
		machine := o.stateOf(o.Machines["a"])
		g.Expect(machine.CertificatesExpire).To(Equal(test.soon), name)
		g.Expect(machine.CertificatesEnded).To(Equal(test.ended), name)
	}
	NewWithT(t).Expect(o.stateOf(o.Machines["b"]).CertificatesEnded).To(BeEmpty())
}

// That they depart, and are held, is for the plan to say of the members.
func TestMachinesAreHeldUntilTheirDepartureIsAllowed(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	now := metav1.Now()
	o.Machines["a"].DeletionTimestamp = &now
	o.Machines["b"].DeletionTimestamp = &now
	for _, name := range []string{"a", "c"} {
		o.Machines[name].Annotations = map[string]string{controlplanev1.PreDrainHookAnnotation: ""}
	}
	for name, want := range map[string][]bool{"a": {true, true}, "b": {true, false}, "c": {false, true}} {
		machine := o.stateOf(o.Machines[name])
		g.Expect([]bool{machine.Deleting, machine.DrainHook}).To(Equal(want), "%s: deleting, with the hook", name)
	}
}

func TestLeftoversOfAnEarlierMachineAreNobodys(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: 9, Name: "n-c"})
	members := o.Membership().Members
	g.Expect(members[2].Machine).To(Equal("c"))
	g.Expect(members[3].Machine).To(BeEmpty())
}

// Whose member one is its own host says. A name may be any other, as where etcd's arguments set it, or that of another
// Machine's Node, as after a host was installed anew under the name of a former one.
func TestAMemberIsThatOfTheMachineWhoseHostTellsIt(t *testing.T) {
	g := NewWithT(t)
	o := threeMembers()
	members := o.Etcd.Cluster.Members
	members[0].Name, members[0].PeerAddresses = "one", nil
	members[1].Name, members[2].Name = "n-c", "n-b"
	members[0].ReportedBy, members[1].ReportedBy, members[2].ReportedBy = "n-a", "n-b", "n-c"
	for i, machine := range []string{"a", "b", "c"} {
		g.Expect(o.Membership().Members[i].Machine).To(Equal(machine))
	}

	// The host of c tells another member, so the one with its name and address is nobody's.
	o = threeMembers()
	o.Etcd.Cluster.Members[2].Answers, o.Etcd.Cluster.Members[2].ReportedBy = false, ""
	o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: 9, Name: "other", Answers: true,
		ReportedBy: "n-c"})
	g.Expect(o.Membership().Members[2].Machine).To(BeEmpty())
	g.Expect(o.Membership().Members[3].Machine).To(Equal("c"))
}
