// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// lossOf3 is a control plane of three whose members b and c are silent; a is to survive.
func lossOf3() Snapshot {
	s := Snapshot{Replicas: 3, Version: "v1.36.3", StackedEtcd: true, Initialized: true,
		Recovery: &Recovery{ID: "r1", Machine: "a", GiveUp: []string{"b", "c"}, Hosts: map[string]RecoveryHost{
			"a": {Name: "host-a"}, "b": {Name: "host-b"}, "c": {Name: "host-c"},
		}}}
	s.Etcd.Known = true
	for i, name := range []string{"a", "b", "c"} {
		s.Machines = append(s.Machines, Machine{Name: name, Version: "v1.36.3", HostClaimed: true, Bootstrapped: true,
			Joined: true,
			Node:   "node-" + name, UpToDate: true, DrainHook: true, Hook: true})
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: "node-" + name, Machine: name,
			Problem: "it does not answer"})
	}
	return s
}

func (s *Snapshot) recovery(machine string, change func(*RecoveryHost)) {
	host := s.Recovery.Hosts[machine]
	change(&host)
	s.Recovery.Hosts[machine] = host
}

func running(h *RecoveryHost)   { h.Ordered = true }
func succeeded(h *RecoveryHost) { h.Ordered, h.Succeeded = true, true }
func failed(h *RecoveryHost)    { h.Ordered, h.Failed = true, true }

func gone(h *RecoveryHost)   { h.Gone = true }
func silent(h *RecoveryHost) { h.Silent = true }

func alone(s *Snapshot) {
	s.Etcd.Agreed = true
	s.Etcd.Members = []quorum.Member{{ID: 1, Name: "node-a", Machine: "a", Healthy: true, Leader: true}}
}

// The whole way: each line is one look, what happened since the one before, and what is done then.
func TestARecoveryStopsAllOthersBeforeOneSurvives(t *testing.T) {
	s := lossOf3()
	s.Prepared = []Prepared{{Name: "ahead", Unfit: "it is outdated"}}
	for _, look := range []struct {
		since   func()
		kind    Kind
		machine string
		order   string
		reason  string
	}{
		{func() {}, BeginRecovery, "a", "", ReasonRecovering},
		{func() { s.Recovery.State = RecoveryBegun; s.recovery("c", silent) }, OrderRecovery, "b", OrderStop,
			ReasonRecoveryFencing},
		{func() { s.recovery("b", running) }, Wait, "b", "", ReasonRecovering},
		{func() { s.recovery("b", succeeded) }, Wait, "c", "", ReasonRecoveryFencing},
		{func() { s.recovery("c", gone) }, OrderRecovery, "a", OrderSurvive, ReasonRecovering},
		{func() { s.recovery("a", running) }, Wait, "a", "", ReasonRecovering},
		{func() { alone(&s) }, Wait, "a", "", ReasonRecovering},
		{func() { s.recovery("a", succeeded) }, GiveUpMachine, "b", "", ReasonRecovering},
		{func() { s.Machines[1].Health.ByHand = true }, GiveUpMachine, "c", "", ReasonRecovering},
		// It is no part of the control plane, so nobody has to name it, and no reason to hurry.
		{func() { s.Machines[2].Health.ByHand = true }, DeleteMachine, "ahead", "", ReasonNotAdmitted},
		{func() { s.Prepared = nil }, EndRecovery, "a", "", ReasonRecovered},
	} {
		look.since()
		step := decideAsBefore(t, s)
		g := NewWithT(t)
		g.Expect(step.Kind).To(Equal(look.kind), step.Message)
		g.Expect(step.Machine).To(Equal(look.machine), step.Message)
		g.Expect(step.Order).To(Equal(look.order), step.Message)
		g.Expect(step.Reason).To(Equal(look.reason), step.Message)
		g.Expect(step.Operation).To(Equal(Recover))
	}
	// Killed after the record, before the hosts were freed.
	s.Recovery.State = RecoveryComplete
	NewWithT(t).Expect(Decide(s).Kind).To(Equal(EndRecovery))
	for name := range s.Recovery.Hosts {
		s.recovery(name, func(h *RecoveryHost) { h.Ordered = false })
	}
	s.Reachable = true
	NewWithT(t).Expect(Decide(s).Operation).To(Equal(Remediate), "what follows is ordinary")
}

// Until the snapshot is on the host, whole, nothing is done that could not be left as it is.
func TestARecoveryFromASnapshotStopsNobodyBeforeTheSnapshotIsThere(t *testing.T) {
	s := lossOf3()
	s.Recovery.Snapshot, s.Recovery.Delivery = "monday.db", "the store does not answer"
	for _, look := range []struct {
		since func()
		kind  Kind
		says  string
	}{
		{func() {}, FetchSnapshot, "monday.db is brought to the host of Machine a before any etcd member is stopped"},
		{func() { s.Recovery.State = RecoveryFetching }, Wait, "the store does not answer"},
		{func() { s.Machines[0].Deleting = true }, Refuse, "being deleted"},
		{func() { s.Machines[0].Deleting = false }, Wait, "the store does not answer"},
		{func() { s.Recovery.Delivered = true }, BeginRecovery, "with the data of snapshot monday.db"},
		// What is said of the delivery is of no interest any more: status is lost in a move.
		{func() { s.Recovery.State, s.Recovery.Delivered = RecoveryBegun, false }, OrderRecovery, "Machine b"},
		{func() { s.recovery("b", gone); s.recovery("c", gone) }, OrderRecovery, "with the data of snapshot monday.db"},
	} {
		look.since()
		step := Decide(s)
		g := NewWithT(t)
		g.Expect(step.Kind).To(Equal(look.kind), step.Message)
		g.Expect(step.Message).To(ContainSubstring(look.says))
	}
	s = lossOf3()
	s.Recovery.Snapshot, s.Recovery.State, s.Recovery.Delivered, s.Etcd.Agreed = "monday.db", RecoveryFetching, true, true
	NewWithT(t).Expect(Decide(s).Kind).To(Equal(VoidRecovery), "the quorum came back meanwhile")
}

func TestARecordOfARecoveryThatCannotBeReadForbidsIt(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]RecoveryState{"": RecoveryAsked, `{"id":"r0","state":"Complete"}`: RecoveryAsked,
		`{"id":"r1","state":"Begun"}`: RecoveryBegun, "{": RecoveryVoid} {
		g.Expect(ReadRecoveryRecord(text, "r1").State).To(Equal(want), text)
	}
}

func TestARecoveryIsRefusedOrVoid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Snapshot)
		kind   Kind
		says   string
	}{
		"etcd has a quorum": {func(s *Snapshot) { s.Etcd.Agreed = true }, VoidRecovery, "now or later"},
		"the quorum came back": {func(s *Snapshot) {
			s.Recovery.State, s.Etcd.Agreed = RecoveryBegun, true
		}, VoidRecovery, "has a quorum"},
		"before the survivor was changed": {func(s *Snapshot) {
			s.Recovery.State, s.Etcd.Agreed = RecoveryBegun, true
			s.recovery("a", failed)
		}, VoidRecovery, "has a quorum"},
		"the survivor is nobody":         {func(s *Snapshot) { s.Recovery.Machine = "x" }, Refuse, "it has a, b, c"},
		"the survivor is being deleted":  {func(s *Snapshot) { s.Machines[0].Deleting = true }, Refuse, "being deleted"},
		"the survivor's host is gone":    {func(s *Snapshot) { s.recovery("a", gone) }, Refuse, "is gone"},
		"the survivor is no node":        {func(s *Snapshot) { s.Machines[0].Node = "" }, Refuse, "never became a node"},
		"not all who are lost are named": {func(s *Snapshot) { s.Recovery.GiveUp = []string{"c"} }, Refuse, "are b, c"},
		"one is named who is not there": {func(s *Snapshot) {
			s.Recovery.GiveUp = []string{"b", "c", "d"}
		}, Refuse, "names b, c, d"},
		"members contradict each other": {func(s *Snapshot) {
			s.Etcd = quorum.Membership{Contradicts: true, Problem: "nodes a and b tell different members"}
		}, Refuse, "nodes a and b tell different members"},
		"a host failed to stop": {func(s *Snapshot) { s.Recovery.State = RecoveryBegun; s.recovery("c", failed) }, Refuse,
			"another id"},
		"the survivor failed": {func(s *Snapshot) {
			s.Recovery.State = RecoveryBegun
			s.recovery("b", gone)
			s.recovery("c", gone)
			s.recovery("a", failed)
		}, Refuse, "another id"},
	} {
		t.Run(name, func(t *testing.T) {
			s := lossOf3()
			c.change(&s)
			step := Decide(s)
			g := NewWithT(t)
			g.Expect(step.Kind).To(Equal(c.kind), step.Message)
			g.Expect(step.Message).To(ContainSubstring(c.says))
		})
	}
}

// Nobody who answers etcd is no proof of a loss to those who only look; a person who asks knows more.
func TestARecoveryBeginsAlsoWhereNoMemberAnswers(t *testing.T) {
	s := lossOf3()
	s.Etcd = quorum.Membership{Problem: "no member answered"}
	NewWithT(t).Expect(Decide(s).Kind).To(Equal(BeginRecovery))
}

// A Machine that never became a node is no member that could come back with others; one that becomes one is waited for.
func TestAMachineThatNeverStartedNeedsNoFence(t *testing.T) {
	g := NewWithT(t)
	s := lossOf3()
	s.Recovery.State = RecoveryBegun
	s.recovery("b", gone)
	s.Machines[2].Bootstrapped, s.Machines[2].Joined, s.Machines[2].Node = false, false, ""
	step := Decide(s)
	g.Expect(step.Kind).To(Equal(Wait))
	g.Expect(step.Message).To(ContainSubstring("still runs"))
	s.Machines[2].Health.Final = "kubeadm join failed"
	g.Expect(Decide(s).Order).To(Equal(OrderSurvive))
}

// What was carried out, or found needless, is not carried out at the next loss.
func TestARecoveryThatIsOverIsNotCarriedOutAgain(t *testing.T) {
	for _, state := range []RecoveryState{RecoveryComplete, RecoveryVoid} {
		s := lossOf3()
		s.Recovery.State = state
		NewWithT(t).Expect(Decide(s).Reason).To(Equal(ReasonQuorumLost))
	}
}
