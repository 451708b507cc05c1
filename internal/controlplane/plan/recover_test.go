// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// lossOf3 is a control plane of three whose members b and c are silent; a is to survive.
func lossOf3() controlplane.State {
	s := controlplane.State{Replicas: 3, Version: "v1.36.3", StackedEtcd: true, Initialized: true,
		Recovery: &controlplane.Recovery{ID: "r1", Machine: "a", GiveUp: []string{"b", "c"},
			Hosts: map[string]controlplane.RecoveryHost{
				"a": {Name: "-n metal quoinhost host-a"}, "b": {Name: "-n metal quoinhost host-b"},
				"c": {Name: "-n metal quoinhost host-c"},
			}}}
	s.Etcd.Known = true
	for i, name := range []string{"a", "b", "c"} {
		s.Machines = append(s.Machines, controlplane.Machine{Name: name, Version: "v1.36.3", HostClaimed: true,
			Bootstrapped: true,
			Joined:       true,
			Node:         "node-" + name, UpToDate: true, DrainHook: true, Hook: true})
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: "node-" + name, Machine: name,
			Problem: "it does not answer"})
	}
	return s
}

func part(s *controlplane.State, machine string, change func(*controlplane.RecoveryHost)) {
	host := s.Recovery.Hosts[machine]
	change(&host)
	s.Recovery.Hosts[machine] = host
}

func running(h *controlplane.RecoveryHost)   { h.Ordered = true }
func succeeded(h *controlplane.RecoveryHost) { h.Ordered, h.Succeeded = true, true }
func failed(h *controlplane.RecoveryHost)    { h.Ordered, h.Failed = true, true }

func untied(h *controlplane.RecoveryHost) {
	h.Unbound, h.Name, h.ProviderID = true, "-n ns machine c", "x"
}

func gone(h *controlplane.RecoveryHost)   { h.Gone = true }
func silent(h *controlplane.RecoveryHost) { h.Silent = true }

func alone(s *controlplane.State) {
	s.Etcd.Agreed = true
	s.Etcd.Members = []quorum.Member{{ID: 1, Name: "node-a", Machine: "a", Healthy: true, Leader: true}}
}

// The whole way: each line is one look, what happened since the one before, and what is done then.
func TestARecoveryStopsAllOthersBeforeOneSurvives(t *testing.T) {
	s := lossOf3()
	s.PreCreated = []controlplane.PreCreatedMachine{{Name: "ahead", Unfit: "it is outdated"}}
	for _, look := range []struct {
		since   func()
		kind    controlplane.Kind
		machine string
		order   string
		reason  string
	}{
		{func() {}, controlplane.BeginRecovery, "a", "", controlplane.ReasonRecovering},
		{func() { s.Recovery.State = controlplane.RecoveryBegun; part(&s, "c", silent) }, controlplane.OrderRecovery, "b",
			controlplane.OrderStop,
			controlplane.ReasonRecoveryFencing},
		{func() { part(&s, "b", running) }, controlplane.Wait, "b", "", controlplane.ReasonRecovering},
		{func() { part(&s, "b", succeeded) }, controlplane.Wait, "c", "", controlplane.ReasonRecoveryFencing},
		{func() { part(&s, "c", gone) }, controlplane.OrderRecovery, "a", controlplane.OrderSurvive,
			controlplane.ReasonRecovering},
		{func() { part(&s, "a", running) }, controlplane.Wait, "a", "", controlplane.ReasonRecovering},
		{func() { alone(&s) }, controlplane.Wait, "a", "", controlplane.ReasonRecovering},
		{func() { part(&s, "a", succeeded) }, controlplane.MarkForRemediation, "b", "", controlplane.ReasonRecovering},
		{func() { s.Machines[1].Health.ByHand = true }, controlplane.MarkForRemediation, "c", "", controlplane.ReasonRecovering},
		// It is no part of the control plane, so nobody has to name it, and no reason to hurry.
		{func() { s.Machines[2].Health.ByHand = true }, controlplane.DeleteMachine, "ahead", "",
			controlplane.ReasonHostClaimNotAllowed},
		{func() { s.PreCreated = nil }, controlplane.EndRecovery, "a", "", controlplane.ReasonRecovered},
	} {
		look.since()
		step := Assess(s).Step
		g := NewWithT(t)
		g.Expect(step.Kind).To(Equal(look.kind), step.Message)
		g.Expect(step.Machine).To(Equal(look.machine), step.Message)
		g.Expect(step.Order).To(Equal(look.order), step.Message)
		g.Expect(step.Reason).To(Equal(look.reason), step.Message)
		g.Expect(step.Operation).To(Equal(controlplane.Recover))
		g.Expect(step.MayProceed).To(BeTrue(), "nothing is made whole without it")
	}
	// Killed after the record, before the hosts were freed.
	s.Recovery.State = controlplane.RecoveryComplete
	NewWithT(t).Expect(Assess(s).Step.Kind).To(Equal(controlplane.EndRecovery))
	for name := range s.Recovery.Hosts {
		part(&s, name, func(h *controlplane.RecoveryHost) { h.Ordered = false })
	}
	s.Reachable = true
	NewWithT(t).Expect(Assess(s).Step.Operation).To(Equal(controlplane.Remediate), "what follows is ordinary")
}

// Until the snapshot is on the host, whole, nothing is done that could not be left as it is.
func TestARecoveryFromASnapshotStopsNobodyBeforeTheSnapshotIsThere(t *testing.T) {
	s := lossOf3()
	s.Recovery.Snapshot, s.Recovery.Delivery = "monday.db", "the store does not answer"
	for _, look := range []struct {
		since func()
		kind  controlplane.Kind
		says  string
	}{
		{func() {}, controlplane.FetchSnapshot,
			"monday.db is brought to the host of Machine a before any etcd member is stopped"},
		{func() { s.Recovery.State = controlplane.RecoveryFetching }, controlplane.Wait, "the store does not answer"},
		{func() { s.Machines[0].Deleting = true }, controlplane.Refuse, "being deleted"},
		{func() { s.Machines[0].Deleting = false }, controlplane.Wait, "the store does not answer"},
		{func() { s.Recovery.Delivered = true }, controlplane.BeginRecovery, "with the data of snapshot monday.db"},
		// What is said of the delivery is of no interest any more: status is lost in a move.
		{func() { s.Recovery.State, s.Recovery.Delivered = controlplane.RecoveryBegun, false }, controlplane.OrderRecovery,
			"Machine b"},
		{func() { part(&s, "b", gone); part(&s, "c", gone) }, controlplane.OrderRecovery,
			"with the data of snapshot monday.db"},
	} {
		look.since()
		step := Assess(s).Step
		g := NewWithT(t)
		g.Expect(step.Kind).To(Equal(look.kind), step.Message)
		g.Expect(step.Message).To(ContainSubstring(look.says))
	}
	s = lossOf3()
	s.Recovery.Snapshot, s.Recovery.State, s.Recovery.Delivered, s.Etcd.Agreed = "monday.db",
		controlplane.RecoveryFetching, true, true
	NewWithT(t).Expect(Assess(s).Step.Kind).To(Equal(controlplane.VoidRecovery), "the quorum came back meanwhile")
}

func TestARecoveryIsRefusedOrVoid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.State)
		kind   controlplane.Kind
		says   string
	}{
		"etcd has a quorum": {func(s *controlplane.State) { s.Etcd.Agreed = true }, controlplane.VoidRecovery,
			"now or later"},
		"the quorum came back": {func(s *controlplane.State) {
			s.Recovery.State, s.Etcd.Agreed = controlplane.RecoveryBegun, true
		}, controlplane.VoidRecovery, "has a quorum"},
		"before the survivor was changed": {func(s *controlplane.State) {
			s.Recovery.State, s.Etcd.Agreed = controlplane.RecoveryBegun, true
			part(s, "a", failed)
		}, controlplane.VoidRecovery, "has a quorum"},
		"the survivor is nobody": {func(s *controlplane.State) { s.Recovery.Machine = "x" }, controlplane.Refuse,
			"Name another Machine: it has a, b, c"},
		"the survivor is being deleted": {func(s *controlplane.State) { s.Machines[0].Deleting = true }, controlplane.Refuse,
			"is being deleted. Name another Machine, or, while that host is not reset, make a cluster of one there by hand"},
		"the survivor's host takes no orders": {func(s *controlplane.State) { part(s, "a", untied) }, controlplane.Refuse,
			"is not the Machine's any more. Name another Machine, or, while"},
		"the survivor's host is gone": {func(s *controlplane.State) { part(s, "a", gone) }, controlplane.Refuse,
			"is gone. Name another Machine"},
		"the survivor's host never does its part": {func(s *controlplane.State) {
			s.Machines[0].Bootstrapped, s.Machines[0].Health.Final = false, "a command failed"
		}, controlplane.Refuse, "takes no orders, because its bootstrap data did not run to their end: a command failed. " +
			"Name another Machine, or, while that host is not reset, make a cluster of one there by hand"},
		"the survivor's bootstrap runs": {func(s *controlplane.State) { s.Machines[0].Bootstrapped = false },
			controlplane.Refuse, "did not run to their end. Name another"},
		"the survivor is no node": {func(s *controlplane.State) { s.Machines[0].Node = "" }, controlplane.Refuse,
			"never became a node. Name another Machine"},
		"not all who are lost are named": {func(s *controlplane.State) { s.Recovery.GiveUp = []string{"c"} },
			controlplane.Refuse, "are b, c"},
		"one is named who is not there": {func(s *controlplane.State) {
			s.Recovery.GiveUp = []string{"b", "c", "d"}
		}, controlplane.Refuse, "names b, c, d"},
		"nobody is named": {func(s *controlplane.State) { s.Recovery.GiveUp = nil }, controlplane.Refuse,
			"giveUp names none, but the Machines whose members would be lost are b, c"},
		"in whatever order they are": {func(s *controlplane.State) {
			slices.Reverse(s.Machines)
			s.Recovery.GiveUp = []string{"c"}
		}, controlplane.Refuse, "are b, c"},
		"etcd is somebody else's": {func(s *controlplane.State) {
			s.StackedEtcd, s.Etcd = false, quorum.Membership{}
		}, controlplane.Refuse, "etcd is external and has to be restored where it runs"},
		"members contradict each other": {func(s *controlplane.State) {
			s.Etcd = quorum.Membership{Contradicts: true, Problem: "nodes a and b tell different members"}
		}, controlplane.Refuse, "nodes a and b tell different members"},
		"it began with another survivor": {func(s *controlplane.State) {
			s.Recovery.State, s.Recovery.Edited = controlplane.RecoveryBegun, true
		}, controlplane.Refuse, "has begun with another Machine"},
		"it began before another one did": {func(s *controlplane.State) { part(s, "b", succeeded) }, controlplane.Refuse,
			"ask under another one"},
		"it came before another one": {func(s *controlplane.State) { s.Recovery.Superseded = true }, controlplane.Refuse,
			"ask under another one"},
		"the survivor falls silent": {func(s *controlplane.State) {
			s.Recovery.State = controlplane.RecoveryBegun
			part(s, "b", succeeded)
			part(s, "c", succeeded)
			part(s, "a", running)
			part(s, "a", silent)
		}, controlplane.Wait, "It does not answer: bring it back; or, if it is gone for good, ask under another id"},
		"a host failed to stop": {func(s *controlplane.State) {
			s.Recovery.State = controlplane.RecoveryBegun
			part(s, "c",
				failed)
		}, controlplane.Refuse,
			"another id"},
		"the survivor failed": {func(s *controlplane.State) {
			s.Recovery.State = controlplane.RecoveryBegun
			part(s, "b", gone)
			part(s, "c", gone)
			part(s, "a", failed)
		}, controlplane.Refuse, "another id"},
		// What it does answers by now, so no other id is admitted.
		"the survivor failed and says the way out": {func(s *controlplane.State) {
			s.Recovery.State = controlplane.RecoveryBegun
			part(s, "b", gone)
			part(s, "c", gone)
			part(s, "a", failed)
			part(s, "a", func(h *controlplane.RecoveryHost) { h.Message = "restart it, and take spec.recovery away" })
		}, controlplane.Refuse, "and take spec.recovery away. Nothing else is done under this id"},
	} {
		t.Run(name, func(t *testing.T) {
			s := lossOf3()
			c.change(&s)
			step := Assess(s).Step
			g := NewWithT(t)
			g.Expect(step.Kind).To(Equal(c.kind), step.Message)
			g.Expect(step.Message).To(ContainSubstring(c.says))
			g.Expect(step.Message).NotTo(ContainSubstring("No Machine of this control plane runs"))
			if strings.Contains(step.Message, "take spec.recovery away") {
				g.Expect(step.Message).NotTo(ContainSubstring("another id"))
			}
			g.Expect(endless(step)).To(BeEmpty())
		})
	}
}

// A member that no Machine here runs is one whose host nobody here can stop: objects that are older than it know one
// replica of three, and the two others may have the quorum. Nobody survives beside it but at a person's word for it.
func TestAMemberWithoutAMachineIsGivenUpByItsID(t *testing.T) {
	oldObjects := func() controlplane.State {
		s := lossOf3()
		s.Machines, s.Recovery.GiveUp = s.Machines[:1], nil
		s.Etcd.Members[1].ID, s.Etcd.Members[1].Machine, s.Etcd.Members[2].Machine = 0xbeef, "", ""
		return s
	}
	for name, c := range map[string]struct {
		change func(*controlplane.State)
		kind   controlplane.Kind
		says   string
	}{
		"neither is named": {func(*controlplane.State) {}, controlplane.Refuse,
			"giveUp names none, but the members that would be lost are 3, beef: name exactly those. No Machine of this " +
				"control plane runs the members 3, beef"},
		"the only one is not named": {func(s *controlplane.State) { s.Etcd.Members = s.Etcd.Members[:2] },
			controlplane.Refuse, "but the members that would be lost are beef: name exactly those. No Machine of this control plane " +
				"runs the members beef"},
		"one is not named": {func(s *controlplane.State) { s.Recovery.GiveUp = []string{"beef"} }, controlplane.Refuse,
			"are 3, beef"},
		"however many there are": {func(s *controlplane.State) {
			for id := range uint64(6) {
				s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 4 + id})
			}
		}, controlplane.Refuse, "are 3, 4, 5, 6, 7, 8, 9, beef"},
		"both are": {func(s *controlplane.State) { s.Recovery.GiveUp = []string{"beef", "3"} },
			controlplane.BeginRecovery, "given up are beef, 3"},
		"a learner may vote by now": {func(s *controlplane.State) {
			s.Recovery.GiveUp, s.Etcd.Members[1].Learner = []string{"3"}, true
		}, controlplane.Refuse, "are 3, beef"},
		"a person's word of before was not about a recovery": {func(s *controlplane.State) {
			s.RemoveMembers = []uint64{3, 0xbeef}
		}, controlplane.Refuse, "are 3, beef"},
		"nobody reads etcd, and it had them": {func(s *controlplane.State) {
			s.Etcd, s.Recovery.Unclaimed = quorum.Membership{Problem: "no member answered"}, []string{"beef"}
		}, controlplane.Refuse, "are beef"},
		"what was read before does not count beside what is read now": {func(s *controlplane.State) {
			s.Recovery.GiveUp, s.Recovery.Unclaimed = []string{"beef", "3"}, []string{"5"}
		}, controlplane.BeginRecovery, "given up are"},
		"another one is seen once it has begun": {func(s *controlplane.State) {
			s.Recovery.State, s.Recovery.GiveUp = controlplane.RecoveryBegun, []string{"3"}
		}, controlplane.Refuse, "ask under another id, and name there also beef"},
		"named, and begun": {func(s *controlplane.State) {
			s.Recovery.State, s.Recovery.GiveUp = controlplane.RecoveryBegun, []string{"3", "beef"}
		}, controlplane.OrderRecovery, "becomes a cluster of one"},
		"the survivor has its part": {func(s *controlplane.State) {
			s.Recovery.State = controlplane.RecoveryBegun
			part(s, "a", running)
		}, controlplane.Wait, "makes its etcd member a cluster of one"},
	} {
		t.Run(name, func(t *testing.T) {
			s := oldObjects()
			c.change(&s)
			step := Assess(s).Step
			g := NewWithT(t)
			g.Expect(step.Kind).To(Equal(c.kind), step.Message)
			g.Expect(step.Message).To(ContainSubstring(c.says))
		})
	}
}

// What a person chooses from is in order, whenever its Machines were made.
func TestAPersonChoosesFromNamesInOrder(t *testing.T) {
	s := lossOf3()
	slices.Reverse(s.Machines)
	s.Recovery.Machine = "x"
	NewWithT(t).Expect(Assess(s).Step.Message).To(ContainSubstring("Name another Machine: it has a, b, c"))
}

// The annotation that records a recovery may be lost when it is over: what it made is a quorum, and holds nothing up.
func TestARecoveryWithoutItsRecordHoldsNothingUp(t *testing.T) {
	s := lossOf3()
	s.Reachable = true
	alone(&s)
	part(&s, "a", succeeded)
	NewWithT(t).Expect(Assess(s).Step.Operation).NotTo(Equal(controlplane.Recover))
}

// Nobody who answers etcd is no proof of a loss to those who only look; a person who asks knows more.
func TestARecoveryBeginsAlsoWhereNoMemberAnswers(t *testing.T) {
	s := lossOf3()
	s.Etcd = quorum.Membership{Problem: "no member answered"}
	NewWithT(t).Expect(Assess(s).Step.Kind).To(Equal(controlplane.BeginRecovery))
}

// Nothing of a recovery is done by a single reading, whatever that says of etcd, for it may be electing a leader, or was
// not reached for a moment. What is wrong with the request is said at once, and what has begun goes on.
func TestARecoveryRestsOnMoreThanOneReading(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.State)
		kind   controlplane.Kind
	}{
		"too few are healthy": {func(*controlplane.State) {}, controlplane.BeginRecovery},
		"who looks healthy may hang": {func(s *controlplane.State) {
			s.Etcd.Members[0].Healthy, s.Etcd.Members[1].Healthy = true, true
		}, controlplane.BeginRecovery},
		"no member answers": {func(s *controlplane.State) {
			s.Etcd = quorum.Membership{Problem: "no member answered"}
		}, controlplane.BeginRecovery},
		"two hosts are gone": {func(s *controlplane.State) {
			s.Machines[1].Health.Final, s.Machines[2].Health.Final = "it was given up", "it was given up"
		}, controlplane.BeginRecovery},
		"from a snapshot": {func(s *controlplane.State) { s.Recovery.Snapshot = "monday.db" }, controlplane.FetchSnapshot},
		"whose data are there": {func(s *controlplane.State) {
			s.Recovery.Snapshot, s.Recovery.State, s.Recovery.Delivered = "monday.db", controlplane.RecoveryFetching, true
		}, controlplane.BeginRecovery},
	} {
		g := NewWithT(t)
		s := lossOf3()
		c.change(&s)
		s.ElectionGrace = time.Minute
		step := Assess(s).Step
		g.Expect(step).To(And(HaveField("Kind", controlplane.Wait), HaveField("Operation", controlplane.Recover),
			HaveField("Reason", controlplane.ReasonQuorumLost), HaveField("MayProceed", true),
			HaveField("Message", And(HavePrefix("recovery r1 has not begun"), ContainSubstring("it is waited for, for 1m0s")))),
			name)
		g.Expect(endless(step)).To(BeEmpty(), name)
		s.Recovery.GiveUp = nil
		g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.Refuse), name)
		s.Recovery.GiveUp, s.ElectionGrace = []string{"b", "c"}, 0
		g.Expect(Assess(s).Step.Kind).To(Equal(c.kind), name)
	}
	s := lossOf3()
	s.Recovery.State, s.ElectionGrace = controlplane.RecoveryBegun, time.Minute
	NewWithT(t).Expect(Assess(s).Step.Order).To(Equal(controlplane.OrderStop))
}

// A Machine that never became a node is no member that could come back with others; one that becomes one is waited for.
func TestAMachineThatNeverStartedNeedsNoFence(t *testing.T) {
	g := NewWithT(t)
	s := lossOf3()
	s.Recovery.State = controlplane.RecoveryBegun
	part(&s, "b", gone)
	s.Machines[2].Bootstrapped, s.Machines[2].Joined, s.Machines[2].Node = false, false, ""
	s.Etcd.Members = s.Etcd.Members[:2]
	step := Assess(s).Step
	g.Expect(step.Kind).To(Equal(controlplane.Wait))
	g.Expect(step.Message).To(ContainSubstring("still runs"))
	s.Machines[2].Health.Final = "kubeadm join failed"
	g.Expect(Assess(s).Step.Order).To(Equal(controlplane.OrderSurvive))
}

// That the object of a host is gone says nothing of the host: a person's word does.
func TestAHostWithoutAnObjectIsNoHostThatIsOff(t *testing.T) {
	g := NewWithT(t)
	s := lossOf3()
	s.Recovery.State = controlplane.RecoveryBegun
	part(&s, "b", gone)
	part(&s, "c", untied)
	step := Assess(s).Step
	g.Expect(step).To(And(HaveField("Kind", controlplane.Wait), HaveField("Machine", "c"), HaveField("Message", And(
		ContainSubstring("takes no orders: its QuoinHost or its QuoinMachine is not there, or is not the Machine's any more"),
		HaveSuffix("kubectl annotate -n ns machine c quoin.cluster.x-k8s.io/abandon=x")))))
	for _, change := range []func(*controlplane.RecoveryHost){gone, untied} {
		s = lossOf3()
		part(&s, "a", change)
		g.Expect(Assess(s).Step).To(HaveField("Kind", controlplane.Refuse))
		s.Recovery.State = controlplane.RecoveryBegun
		part(&s, "b", gone)
		part(&s, "c", gone)
		g.Expect(Assess(s).Step).To(And(HaveField("Kind", controlplane.Refuse), HaveField("Message",
			ContainSubstring("ask under another id"))), "it went away once the recovery had begun")
	}
}

// Bootstrap data that failed may have got past kubeadm join: then there is a member, whose host takes no orders.
func TestAMachineWhoseBootstrapFailedMayHaveAMember(t *testing.T) {
	const may = "may run an etcd member"
	for name, c := range map[string]struct {
		change  func(*controlplane.State)
		fenced  bool
		because string
	}{
		"it has none":          {func(*controlplane.State) {}, true, ""},
		"it has one":           {func(s *controlplane.State) { s.Etcd.Members[2].Machine = "c" }, false, may},
		"it is a node":         {func(s *controlplane.State) { s.Machines[2].Node = "node-c" }, false, may},
		"it joined":            {func(s *controlplane.State) { s.Machines[2].Joined = true }, false, may},
		"etcd was not read":    {func(s *controlplane.State) { s.Etcd.Known = false }, false, may},
		"one is nobody's":      {func(s *controlplane.State) { s.Etcd.Members[2].Machine = "" }, false, may},
		"it runs all the same": {func(s *controlplane.State) { s.Machines[2].Joining = true }, false, may},
		"its host is silent": {func(s *controlplane.State) {
			s.Machines[2].Joined = true
			part(s, "c", silent)
		}, false, "does not answer"},
		"a person said it": {func(s *controlplane.State) { s.Machines[2].Joined = true; part(s, "c", gone) }, true, ""},
		"it never had any host": {func(s *controlplane.State) {
			s.Machines[2].HostClaimed, s.Etcd.Known = false, false
		}, true, ""},
	} {
		g := NewWithT(t)
		s := lossOf3()
		s.Recovery.State, s.Recovery.GiveUp = controlplane.RecoveryBegun, []string{"b", "c", "3"}
		part(&s, "b", gone)
		machine := &s.Machines[2]
		machine.Bootstrapped, machine.Joined, machine.Node, machine.Health.Final = false, false, "", "a command failed"
		s.Etcd.Members[2].Machine = "gone"
		c.change(&s)
		step := Assess(s).Step
		g.Expect(step.Order == controlplane.OrderSurvive).To(Equal(c.fenced), name)
		if !c.fenced {
			g.Expect(step.Message).To(And(ContainSubstring(c.because), ContainSubstring("abandon=")), name)
		}
	}
}

// What was carried out, or found needless, is not carried out at the next loss.
func TestARecoveryThatIsOverIsNotCarriedOutAgain(t *testing.T) {
	for _, state := range []controlplane.RecoveryState{controlplane.RecoveryComplete, controlplane.RecoveryVoid} {
		s := lossOf3()
		s.Recovery.State = state
		NewWithT(t).Expect(Assess(s).Step.Reason).To(Equal(controlplane.ReasonQuorumLost))
	}
}

// A recovery that is void frees its hosts as one that is complete does, and stays void.
func TestARecoveryThatIsOverFreesItsHosts(t *testing.T) {
	for state, kind := range map[controlplane.RecoveryState]controlplane.Kind{
		controlplane.RecoveryComplete: controlplane.EndRecovery, controlplane.RecoveryVoid: controlplane.VoidRecovery,
	} {
		s := lossOf3()
		s.Recovery.State = state
		part(&s, "b", running)
		NewWithT(t).Expect(Assess(s).Step.Kind).To(Equal(kind))
	}
}

// A quorum that is there, or may be, ends a recovery or keeps it from beginning; that of the survivor alone does not.
func TestARecoveryBesideAQuorum(t *testing.T) {
	g := NewWithT(t)
	s := lossOf3()
	s.Etcd.Members[0].Healthy, s.Etcd.Members[1].Healthy = true, true
	s.ElectionGrace = time.Minute
	g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.Wait), "the list was not confirmed in time")
	s.ElectionGrace = 0
	g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.BeginRecovery), "nobody agrees, so who looks healthy may hang")
	s = lossOf3()
	g.Expect(Assess(s).Step.Message).NotTo(ContainSubstring("snapshot"))
	s.Recovery.State = controlplane.RecoveryBegun
	part(&s, "a", running)
	s.Etcd.Agreed, s.Etcd.Members = true, s.Etcd.Members[:2]
	g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.VoidRecovery))
	s.Etcd.Members = s.Etcd.Members[:1]
	g.Expect(Assess(s).Step.Kind).NotTo(Equal(controlplane.VoidRecovery))
}

// What a host says is passed on while it is waited for.
func TestARecoverySaysWhatItWaitsFor(t *testing.T) {
	g := NewWithT(t)
	s := lossOf3()
	s.Recovery.State = controlplane.RecoveryBegun
	part(&s, "b", gone)
	part(&s, "c", gone)
	part(&s, "a", running)
	g.Expect(Assess(s).Step.Message).To(HaveSuffix("a cluster of one, in the time that its steps have"))
	g.Expect(Assess(s).Step.Message).To(ContainSubstring("has yet to begin its part (kubectl describe -n metal " +
		"quoinhost host-a says what it waits for; if that never ends, ask under another id): it makes its etcd member"))
	part(&s, "a", func(h *controlplane.RecoveryHost) { h.Began, h.Message = true, "it copies" })
	g.Expect(Assess(s).Step.Message).NotTo(ContainSubstring("has yet to begin"))
	g.Expect(Assess(s).Step.Message).To(HaveSuffix("a cluster of one, in the time that its steps have: it copies"))
}

// The Machines that were given up are replaced when the survivor answers as a cluster of one, and no sooner.
func TestASurvivorAnswersAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.State)
		waits  bool
	}{
		"it does":                  {func(*controlplane.State) {}, false},
		"etcd was not read":        {func(s *controlplane.State) { s.Etcd.Known = false }, true},
		"it sees no quorum":        {func(s *controlplane.State) { s.Etcd.Agreed = false }, true},
		"its member does not work": {func(s *controlplane.State) { s.Etcd.Members[0].Healthy = false }, true},
		"another votes": {func(s *controlplane.State) {
			s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 2, Name: "node-b", Machine: "b", Healthy: true})
		}, true},
		"members contradict each other": {func(s *controlplane.State) {
			s.Etcd = quorum.Membership{Contradicts: true, Problem: "nodes tell different members"}
		}, true},
	} {
		g := NewWithT(t)
		s := lossOf3()
		alone(&s)
		c.change(&s)
		step := facts{s}.carryOn(*s.Recovery)
		g.Expect(step.Kind == controlplane.Wait).To(Equal(c.waits), name)
		g.Expect(step.Kind == controlplane.MarkForRemediation).To(Equal(!c.waits), name)
		if s.Etcd.Problem != "" {
			g.Expect(step.Message).To(HaveSuffix(": nodes tell different members"))
		} else {
			g.Expect(step.Message).NotTo(HaveSuffix(": "))
		}
	}
}

// A survivor may have an alarm of before among its data, which no other recovery would take off.
func TestASurvivorWhoseDatabaseIsFullSaysHowToMakeRoom(t *testing.T) {
	g := NewWithT(t)
	s := lossOf3()
	alone(&s)
	s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Full = false, true
	step := facts{s}.carryOn(*s.Recovery)
	g.Expect(step.Kind).To(Equal(controlplane.Wait))
	g.Expect(step.Message).To(And(HaveSuffix("nothing could join it: "+quorum.MakeRoom),
		Not(ContainSubstring("under another id"))))
	g.Expect(endless(*step)).To(BeEmpty())
	s.Etcd.Agreed = false
	g.Expect(facts{s}.carryOn(*s.Recovery).Message).To(ContainSubstring("waiting until it answers"))
}
