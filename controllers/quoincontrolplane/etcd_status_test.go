// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// withMembers is a summary of three Machines a, b and c in zones of the same names, with a member each, 1 to 3, and
// what is changed of etcd.
func withMembers(change func(*observe.Membership)) *summary {
	o := &observe.Observation{Inventory: observe.Inventory{Machines: collections.Machines{},
		Subject:       observe.Subject{ControlPlane: &controlplanev1.QuoinControlPlane{}},
		QuoinMachines: map[string]*infrav1.QuoinMachine{}}}
	o.Etcd.Cluster.Agreed = true
	o.Etcd.ReadAt = time.Now()
	for i, name := range []string{"a", "b", "c"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		machine.Status.NodeRef.Name = "n-" + name
		o.Machines[name] = machine
		o.QuoinMachines[name] = &infrav1.QuoinMachine{Status: infrav1.QuoinMachineStatus{FailureDomain: "zone-" + name}}
		o.Etcd.Cluster.Members = append(o.Etcd.Cluster.Members, etcd.Member{ID: uint64(i + 1), Name: "n-" + name,
			Answers: true, Leader: i == 0, Size: 4096, PeerAddresses: []string{"192.0.2." + name}})
	}
	change(&o.Etcd)
	o.State.Etcd = o.Membership()
	return &summary{Observation: o, controlPlane: o.ControlPlane}
}

func TestMembersInStatusAreNamedApart(t *testing.T) {
	g := NewWithT(t)
	s := withMembers(func(m *observe.Membership) {
		m.Cluster.Members = append(m.Cluster.Members, etcd.Member{ID: 9, Name: "n-c"})
	})
	var names []string
	for _, member := range s.etcdStatus(nil).Members {
		names = append(names, member.Name)
	}
	g.Expect(names).To(ConsistOf("n-a", "n-b", "n-c", "9"), "names are the keys of the list")
}

func TestEtcdStatusTellsMembersAndTolerance(t *testing.T) {
	g := NewWithT(t)
	s := withMembers(func(m *observe.Membership) {
		m.Cluster.Members[1].Lag = 7
		m.Cluster.Members = append(m.Cluster.Members, etcd.Member{ID: 0xab, Learner: true, Problem: "it was not reached"})
	})
	status := s.etcdStatus(nil)
	g.Expect(status.Voters).To(HaveValue(BeEquivalentTo(3)))
	g.Expect(status.Tolerates).To(HaveValue(BeEquivalentTo(1)))
	g.Expect(status.Leader).To(Equal("n-a"))
	g.Expect(status.Agreed).To(HaveValue(BeTrue()))
	g.Expect(status.ObservedTime.IsZero()).To(BeFalse())
	g.Expect(status.Members).To(ConsistOf(
		controlplanev1.EtcdMember{Name: "ab", ID: "ab", Role: "Learner", State: "Learner", Healthy: ptr.To(false),
			SilentSince: metav1.NewTime(s.Etcd.ReadAt.Truncate(time.Second)), Problem: "it was not reached"},
		controlplanev1.EtcdMember{Name: "n-a", ID: "1", Machine: "a", FailureDomain: "zone-a", Role: "Leader",
			State: "Healthy", Healthy: ptr.To(true), Lag: ptr.To[int64](0), SizeBytes: ptr.To[int64](4096)},
		controlplanev1.EtcdMember{Name: "n-b", ID: "2", Machine: "b", FailureDomain: "zone-b", Role: "Voter",
			State: "Healthy", Healthy: ptr.To(true), Lag: ptr.To[int64](7), SizeBytes: ptr.To[int64](4096)},
		controlplanev1.EtcdMember{Name: "n-c", ID: "3", Machine: "c", FailureDomain: "zone-c", Role: "Voter",
			State: "Healthy", Healthy: ptr.To(true), Lag: ptr.To[int64](0), SizeBytes: ptr.To[int64](4096)},
	))
}

// Voters whose disks hang look healthy and agree on nothing: once the quorum is said to be lost, none may fail.
func TestEtcdStatusToleratesNothingWithoutAQuorum(t *testing.T) {
	for healthy, want := range map[int]int32{3: -1, 2: -1, 1: -1, 0: -2} {
		g := NewWithT(t)
		s := withMembers(func(m *observe.Membership) {
			m.Cluster.Agreed = false
			for i := range m.Cluster.Members {
				m.Cluster.Members[i].Answers = i < healthy
			}
		})
		g.Expect(s.etcdStatus(nil).Tolerates).To(HaveValue(BeEquivalentTo(healthy-2)), "an election is no loss")
		s.assessment.QuorumLoss = &controlplane.QuorumLoss{Message: "etcd has no quorum"}
		g.Expect(s.etcdStatus(nil).Tolerates).To(HaveValue(Equal(want)), "%d look healthy", healthy)
		s.State.ElectionGrace = time.Minute
		g.Expect(s.etcdStatus(nil).Tolerates).To(HaveValue(BeEquivalentTo(healthy-2)), "an election is no loss")
	}
}

// A write of status wakes the controller, which reads etcd and writes status.
func TestEtcdStatusDoesNotWakeItsOwnController(t *testing.T) {
	g := NewWithT(t)
	s := withMembers(func(*observe.Membership) {})
	first := s.etcdStatus(nil)

	later := withMembers(func(m *observe.Membership) {
		m.ReadAt = s.Etcd.ReadAt.Add(10 * time.Second)
		m.Cluster.Members[0].Size, m.Cluster.Members[1].Lag = 8192, 3
	})
	g.Expect(later.etcdStatus(first)).To(Equal(first), "a size and a lag change all the time")

	later.State.Etcd.Members[2].Healthy = false
	changed := later.etcdStatus(first)
	g.Expect(changed.Tolerates).To(HaveValue(BeZero()))
	g.Expect(changed.Members[0].SizeBytes).To(HaveValue(BeEquivalentTo(8192)))
	g.Expect(changed.ObservedTime.After(first.ObservedTime.Time)).To(BeTrue())

	old := withMembers(func(m *observe.Membership) { m.ReadAt = s.Etcd.ReadAt.Add(observedInterval + time.Second) })
	g.Expect(old.etcdStatus(first).ObservedTime.After(first.ObservedTime.Time)).
		To(BeTrue(), "what is admitted by it must not be old")

	set := withMembers(func(m *observe.Membership) { m.ReadAt = s.Etcd.ReadAt.Add(-time.Hour) })
	g.Expect(set.etcdStatus(first).ObservedTime.Before(&first.ObservedTime)).
		To(BeTrue(), "nothing is admitted by a time that a clock that was set back has yet to reach")
}

// A person reads the word by which it is decided. How long a member has been silent differs with each look, and is no
// reason to write; that nobody counts on it any more is one, once.
func TestEtcdStatusTellsTheStateThatDecides(t *testing.T) {
	g := NewWithT(t)
	const deadAfter = 10 * time.Second
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	read := func(silent time.Duration, member quorum.Member) *summary {
		s := withMembers(func(m *observe.Membership) { m.ReadAt = at.Add(silent) })
		s.State.DeadMemberTimeout = deadAfter
		last := &s.State.Etcd.Members[2]
		last.Healthy, last.Full, last.Unasked, last.Progress, last.Silent =
			false, member.Full, member.Unasked, member.Progress, silent
		return s
	}
	status := read(0, quorum.Member{}).etcdStatus(nil)
	g.Expect(status.Members[2].State).To(Equal("Wavering"))
	g.Expect(status.Members[2].SilentSince.Time).To(Equal(at), "another process goes on from there")
	restarted := read(time.Minute, quorum.Member{})
	restarted.State.Etcd.Members[2].Silent, restarted.State.Etcd.Members[2].Recalled = 0, time.Minute
	g.Expect(restarted.etcdStatus(nil).Members[2].SilentSince.Time).To(Equal(at), "and so does a third one")
	for silent := time.Duration(0); silent < deadAfter; silent += time.Second {
		g.Expect(read(silent, quorum.Member{}).etcdStatus(status)).To(BeIdenticalTo(status), "silent for %s", silent)
	}
	dead := read(deadAfter, quorum.Member{}).etcdStatus(status)
	g.Expect(dead.Members[2].State).To(Equal("Dead"))
	g.Expect(read(deadAfter+observedInterval-time.Second, quorum.Member{}).etcdStatus(dead)).To(BeIdenticalTo(dead))

	slow := read(0, quorum.Member{Progress: 7}).etcdStatus(status)
	g.Expect(slow.Members[2].Syncs).To(HaveValue(BeEquivalentTo(7)))
	later := read(0, quorum.Member{Progress: 8})
	later.Etcd.ReadAt = at.Add(time.Second)
	g.Expect(later.etcdStatus(slow)).To(BeIdenticalTo(slow), "a slow disk comes further all the time")

	for want, member := range map[string]quorum.Member{"Full": {Full: true}, "Unasked": {Unasked: true},
		"Slow": {Progress: 1}} {
		g.Expect(read(0, member).etcdStatus(status).Members[2].State).To(Equal(want))
	}
}

// From that condition it is known since when a member is ill, also one whose Machine never gets a Node.
func TestTheMemberOfAMachineThatJoinedIsToldOfBeforeThereIsANode(t *testing.T) {
	w, names := three(t)
	g := w.g
	machine := w.machine(names[1])
	machine.Status.NodeRef = clusterv1.MachineNodeReference{}
	g.Expect(w.mgmt.Status().Update(t.Context(), machine)).To(Succeed())
	provisioned := func(yes bool) {
		infra := w.infra(names[1])
		infra.Status.Initialization.Provisioned = ptr.To(yes)
		g.Expect(w.mgmt.Status().Update(t.Context(), infra)).To(Succeed())
	}
	provisioned(false)
	told := func() metav1.ConditionStatus {
		return conditions.Get(w.machine(names[1]), controlplanev1.MachineEtcdMemberHealthyCondition).Status
	}
	w.once()
	g.Expect(told()).To(Equal(metav1.ConditionTrue))
	w.silence(names[1])
	w.once()
	g.Expect(told()).To(Equal(metav1.ConditionTrue), "while it joins, that changes nothing for anybody")

	provisioned(true)
	w.once()
	g.Expect(told()).To(Equal(metav1.ConditionFalse))
}
