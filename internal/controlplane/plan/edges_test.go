// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Before there is a cluster a Machine holds nothing once it is drained, and nothing of kubeadm init ran there.
func TestNothingIsGuardedBeforeThereIsACluster(t *testing.T) {
	for name, change := range map[string]func(*controlplane.Machine){
		"":                         func(*controlplane.Machine) {},
		"kubeadm init ended there": func(m *controlplane.Machine) { m.Bootstrapped = true },
		"it has a Node":            func(m *controlplane.Machine) { m.Node = "a" },
		"it is not drained":        func(m *controlplane.Machine) { m.AtTermination = false },
		"others hold it":           func(m *controlplane.Machine) { m.OtherHooks = []string{"x"} },
	} {
		machine := controlplane.Machine{HostClaimed: true, AtTermination: true}
		change(&machine)
		guards := !nothingToGuard(facts{controlplane.State{StackedEtcd: true}}, machine)
		NewWithT(t).Expect(guards).To(Equal(name != ""), name)
	}
}

// A Node goes before its host only where no Machine stays.
func TestClusterAPIDeletesNodesWhileAMachineStays(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	for i := range s.Machines {
		s.Machines[i].Deleting, s.Machines[i].Registered = i < 2, true
	}
	g.Expect(deleteNode(facts{s}, s.Machines[0])).To(BeNil())
	s.Machines[2].Deleting = true
	g.Expect(deleteNode(facts{s}, s.Machines[0])).NotTo(BeNil())
}

// A replacement comes by itself where hosts are pending and a Machine is missing.
func TestWhenAReplacementComes(t *testing.T) {
	g := NewWithT(t)
	comes := func(free, pending, replicas int) bool {
		s := controlplane.State{Replicas: replicas, Machines: []controlplane.Machine{{Name: "a", Node: "a"}},
			Spare: controlplane.Spare{Free: free, Pending: pending}}
		return facts{s}.replacementComes()
	}
	g.Expect(comes(0, 1, 2)).To(BeTrue())
	g.Expect(comes(0, 0, 2)).To(BeFalse())
	g.Expect(comes(1, 1, 2)).To(BeFalse(), "nobody makes one while a host is free and none is made")
	g.Expect(comes(0, 1, 1)).To(BeFalse())
}

// Of two Machines without a host as many are not scheduled as are too many.
func TestOnlyTheSurplusIsNotScheduled(t *testing.T) {
	s := controlplane.State{Replicas: 2,
		Machines: []controlplane.Machine{{Name: "a", Node: "a"}, {Name: "b"}, {Name: "c"}}}
	NewWithT(t).Expect(facts{s}.scheduled()).To(ConsistOf(HaveField("Name", "a"), HaveField("Name", "c")))
}

// Another member stays that votes in health, and whose Machine does not leave yet.
func TestWhichMembersStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.Machine, *quorum.Member)
		stays  bool
	}{
		"a voter":                 {func(*controlplane.Machine, *quorum.Member) {}, true},
		"one whose Machine waits": {func(m *controlplane.Machine, _ *quorum.Member) { m.Deleting = true }, true},
		"one whose Machine leaves": {func(m *controlplane.Machine, _ *quorum.Member) {
			m.Deleting, m.DrainHook = true, false
		}, false},
		"one that does not answer": {func(_ *controlplane.Machine, v *quorum.Member) { v.Healthy = false }, false},
		"one that nobody knows":    {func(_ *controlplane.Machine, v *quorum.Member) { v.Machine = "" }, false},
		"one that learns":          {func(_ *controlplane.Machine, v *quorum.Member) { v.Learner = true }, false},
	} {
		s := ofThree()
		s.Machines, s.Etcd.Members = s.Machines[:2], s.Etcd.Members[:2]
		c.change(&s.Machines[1], &s.Etcd.Members[1])
		NewWithT(t).Expect(facts{s}.othersStay(&s.Etcd.Members[0])).To(Equal(c.stays), name)
	}
}

// What was not read, or is of an etcd that is somebody else's, is no member that nobody runs.
func TestWhichMembersNobodyRuns(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Etcd.Members[2].Machine = ""
	g.Expect(facts{s}.unclaimed()).To(ConsistOf(HaveField("ID", uint64(3))))
	s.StackedEtcd = false
	g.Expect(facts{s}.unclaimed()).To(BeEmpty())
	s.StackedEtcd, s.Etcd.Known = true, false
	g.Expect(facts{s}.unclaimed()).To(BeEmpty())
}

// A member may be a Machine's, of which it is not known whether it will be back, where the Machine has none of its own
// and a Node, and nobody gave the member up.
func TestWhichMemberMayBeBackOnAMachine(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	stray := &s.Etcd.Members[2]
	stray.Machine, stray.Healthy = "", false
	node := controlplane.Machine{Name: "d", HostClaimed: true, Node: "d"}
	g.Expect(facts{s}.mayWaver(node)).To(HaveField("ID", uint64(3)))
	g.Expect(facts{s}.mayWaver(controlplane.Machine{Name: "d"})).To(BeNil(), "it has no host")
	g.Expect(facts{s}.mayWaver(s.Machines[0])).To(BeNil(), "it has a member")
	s.RemoveMembers = []uint64{3}
	g.Expect(facts{s}.mayWaver(node)).To(BeNil(), "a person gave it up")
	s.RemoveMembers, stray.Healthy = nil, true
	g.Expect(facts{s}.mayWaver(node)).To(BeNil(), "it works")
	stray.Healthy, stray.Silent = false, time.Hour
	g.Expect(facts{s}.mayWaver(node)).To(BeNil(), "it is dead")
}

// Voters that a person gave up go before the last Machine does, and no others.
func TestWhatAPersonGaveUpGoesBeforeTheLastMachine(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Etcd.Members[1].Machine, s.Etcd.Members[2].Machine = "", ""
	last := &s.Etcd.Members[0]
	g.Expect(dropGivenUp(facts{s}, last)).To(BeNil(), "nobody gave them up")
	s.RemoveMembers = []uint64{2}
	g.Expect(dropGivenUp(facts{s}, last)).To(HaveField("Member", uint64(2)))
	s.Etcd.Members[2].Machine = "c"
	g.Expect(dropGivenUp(facts{s}, last)).To(BeNil(), "another Machine stays")
	s.Etcd.Members[2].Machine = ""
	s.Machines, s.Etcd.Members[1].Healthy, s.Etcd.Members[1].Silent = s.Machines[:1], false, time.Hour
	g.Expect(dropGivenUp(facts{s}, last)).To(BeNil(), "its vote is lost already")
	s.Etcd.Members[1].Healthy, s.RemoveMembers = true, []uint64{3}
	g.Expect(dropGivenUp(facts{s}, last)).To(HaveField("Member", uint64(3)), "nobody gave up the first")
	s.Machines[0].Deleting, s.RemoveMembers = true, []uint64{2, 3}
	g.Expect(approveDrain(facts{s}, s.Machines[0])).To(HaveField("Member", uint64(2)), "its drain waits for them")
	s.Etcd.Members[0].Learner = true
	g.Expect(dropGivenUp(facts{s}, last)).To(BeNil(), "it casts no vote")
}

// What is thought of a Machine that will have joined changes nothing of the state as it is.
func TestAStateWithAMachineThatJoined(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	joins := &s.Machines[0]
	joins.Bootstrapped, joins.Joining, joins.KubeadmBegan, joins.Joined = false, true, true, false
	joins.Node, joins.Kubelet, joins.Healthy, joins.Serving, joins.Problem = "", "", false, false, "it boots"
	s.Hosts = []controlplane.Host{{Name: "a", Machine: "a"}, {Name: "b", Machine: "b"}}
	s.Etcd.Members = s.Etcd.Members[1:]
	joined := facts{s}.joined(*joins)
	want := ofThree().Machines[0]
	g.Expect(joined.Machines[0]).To(Equal(want))
	g.Expect(joined.Etcd.Members).To(ContainElement(quorum.Member{ID: 4, Name: "a", Machine: "a", Healthy: true}))
	g.Expect(joined.Hosts[0].Present && joined.Hosts[0].PresentRunning && joined.Hosts[0].Provisioned).To(BeTrue())
	g.Expect(joined.Hosts[1].Present).To(BeFalse())
	g.Expect(s.Machines[0].Joining).To(BeTrue(), "the state itself is as it was")
	g.Expect(s.Hosts[0].Present).To(BeFalse())
}

// No Machine is made ahead while another one was, or one leaves.
func TestOneMachineIsMadeAhead(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Replicas = 4
	waits := &controlplane.Step{Kind: controlplane.Wait, Reason: controlplane.ReasonMachineNotReady, Machine: "a"}
	s.StackedEtcd, s.Etcd = false, quorum.Membership{}
	g.Expect(facts{s}.preCreate(s.Machines[0], waits, "", facts{s})).NotTo(BeNil())
	s.PreCreated = []controlplane.PreCreatedMachine{{Name: "d"}}
	g.Expect(facts{s}.preCreate(s.Machines[0], waits, "", facts{s})).To(BeNil())

	s = ofThree()
	for i := range s.Machines {
		s.Machines[i].UpToDate = i == 0
	}
	s.Machines = append(s.Machines, s.Machines[2])
	s.Machines[3].Name, s.Machines[0].KubeadmBegan = "d", true
	s.StackedEtcd, s.Etcd = false, quorum.Membership{}
	g.Expect(preCreateWhileJoining(facts{s}, waits)).NotTo(BeNil())
	leaves := s
	leaves.Machines = append(slices.Clone(s.Machines), controlplane.Machine{Name: "e", Deleting: true, HostClaimed: true,
		Hook: true})
	g.Expect(preCreateWhileJoining(facts{leaves}, waits)).To(BeNil())
	leaves.Machines = slices.Clone(s.Machines)
	leaves.Machines[3].Deleting, leaves.Replicas = true, 2
	g.Expect(preCreateWhileJoining(facts{leaves}, waits)).To(BeNil(), "that may take longer than the join")
}

// Of an etcd that is somebody else's nothing is removed, whatever its list of members says.
func TestMembersOfSomebodyElsesEtcdStay(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Machines = s.Machines[:2]
	s.Etcd.Members[2].Healthy, s.Etcd.Members[2].Machine, s.Etcd.Members[2].Silent = false, "", time.Hour
	g.Expect(dropOrphanedMembers(facts{s})).To(HaveField("Kind", controlplane.RemoveEtcdMember))
	s.StackedEtcd = false
	g.Expect(dropOrphanedMembers(facts{s})).To(BeNil())
}

// Versions and numbers are judged where there is something that they could harm.
func TestWhatASpecIsJudgedBy(t *testing.T) {
	g := NewWithT(t)
	far := controlplane.Machine{Version: "v1.33.0", HostClaimed: true, Node: "a"}
	s := controlplane.State{Version: "v1.36.3", Initialized: true, Machines: []controlplane.Machine{far}}
	g.Expect(refuseVersion(facts{s})).To(HaveField("Kind", controlplane.Refuse))
	s.Initialized = false
	g.Expect(refuseVersion(facts{s})).To(BeNil())
	s.Initialized, s.Machines[0].HostClaimed = true, false
	g.Expect(refuseVersion(facts{s})).To(BeNil())
	s.Version = "next"
	g.Expect(refuseVersion(facts{s})).To(HaveField("Kind", controlplane.Refuse))
	s = controlplane.State{StackedEtcd: true}
	g.Expect(refuseReplicas(facts{s})).To(BeNil(), "there is no Machine")
	s.Machines = []controlplane.Machine{far}
	g.Expect(refuseReplicas(facts{s})).To(HaveField("Kind", controlplane.Refuse))
	s.Replicas = 2
	g.Expect(refuseReplicas(facts{s})).To(HaveField("Kind", controlplane.Refuse))
	s.Replicas = 1
	g.Expect(refuseReplicas(facts{s})).To(BeNil())
}

// The newest version that runs is that of a Machine with a Node, and of one in deletion that of its kubelet.
func TestWhichVersionRuns(t *testing.T) {
	g := NewWithT(t)
	of := func(version, kubelet, node string, change ...func(*controlplane.Machine)) controlplane.Machine {
		m := controlplane.Machine{Version: version, Kubelet: kubelet, Node: node}
		for _, each := range change {
			each(&m)
		}
		return m
	}
	deleting := func(m *controlplane.Machine) { m.Deleting = true }
	joined := func(m *controlplane.Machine) { m.Joined = true }
	for _, c := range []struct {
		machines []controlplane.Machine
		running  string
		wanted   bool
	}{
		{nil, "", false},
		{[]controlplane.Machine{of("v1.36.0", "", "")}, "", false},
		{[]controlplane.Machine{of("v1.36.0", "", "", joined)}, "", true},
		{[]controlplane.Machine{of("v1.36.0", "", "a")}, "", true},
		{[]controlplane.Machine{of("", "", "a")}, "", false},
		{[]controlplane.Machine{of("v1.36.0", "v1.35.1", "a", deleting)}, "v1.35.1", false},
		{[]controlplane.Machine{of("v1.35.0", "", "a"), of("v1.35.2", "", "b"), of("v1.35.1", "", "c")}, "v1.35.2", false},
	} {
		running, wanted := facts{controlplane.State{Version: "v1.36.0", Machines: c.machines}}.newestRunning()
		g.Expect(running).To(Equal(c.running), "%+v", c.machines)
		g.Expect(wanted).To(Equal(c.wanted), "%+v", c.machines)
	}
}

// How soon it is looked again depends on what is waited for.
func TestWhenAWaitIsLookedAtAgain(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	after := func() any { return facts{s}.wait(controlplane.Repair, "", "").RecheckAfter }
	g.Expect(after()).To(Equal(controlplane.RecheckBusy))
	s.Etcd.Members[0].Learner = true
	g.Expect(after()).To(Equal(controlplane.RecheckMember))
	s.DrainInGrace = true
	g.Expect(after()).To(Equal(controlplane.RecheckDrain))
	s = ofThree()
	s.Window, s.Machines[0].UpToDate = "no window is open", false
	g.Expect(waitForWindow(facts{s}).RecheckAfter).To(Equal(controlplane.RecheckIdle))
	s.ConfigVersion = ""
	g.Expect(configure(facts{s}).RecheckAfter).To(Equal(controlplane.RecheckSoon))
	g.Expect(facts{s}.depart(s.Machines[0], controlplane.EvictPods, "", "").MayProceed).To(BeTrue())
	g.Expect(list([]string{"a", "b", "c", "d", "e"})).To(Equal("a, b, c, d, e"))
	g.Expect(list([]string{"a", "b", "c", "d", "e", "f"})).To(Equal("a, b, c, d, e, ..."))
}

// Who never joined runs none of the members that no Machine is known for, and is not kept by those.
func TestADrainBesideAMemberThatIsNobodys(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 9, Learner: true})
	s.Machines = append(s.Machines, controlplane.Machine{Name: "d", Deleting: true, DrainHook: true, Hook: true})
	step := approveDrain(facts{s}, s.Machines[3])
	g.Expect(step.Kind).To(Equal(controlplane.ReleaseDrainHook), step.Message)
}

// A host that is made reachable does not help where two nodes name different members.
func TestTheWayOutOfAnEtcdThatIsNotRead(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Etcd = quorum.Membership{Problem: "why"}
	g.Expect(requireReachability(facts{s}).Message).To(Equal("etcd cannot be read: why. Nothing is changed until it " +
		"can: make a control-plane host reachable"))
	g.Expect(etcdUnknown(facts{s}, s.Machines[0]).Message).To(HaveSuffix("from its QuoinMachine"))
	s.Etcd.Contradicts = true
	g.Expect(requireReachability(facts{s}).Message).To(Equal("etcd cannot be read: why. " + contradiction))
	g.Expect(etcdUnknown(facts{s}, s.Machines[0]).Message).To(HaveSuffix("why. " + contradiction))
}

// Add-ons that follow are named: policies may hold kube-proxy.
func TestWhichAddonsFollow(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	g.Expect(followVersion(facts{s}).Message).To(Equal("giving CoreDNS and kube-proxy the images of v1.30.0"))
	s.ProxyHeld = true
	g.Expect(followVersion(facts{s}).Message).To(Equal("giving CoreDNS the images of v1.30.0"))
}

// What took a Machine away goes on until its replacement is there, and no longer.
func TestWhatAStepIsPartOf(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.InFlight.Operation = controlplane.Remediate
	g.Expect(facts{s}.refill()).To(Equal(controlplane.Remediate))
	s.Machines = s.Machines[:2]
	g.Expect(facts{s}.refill()).To(Equal(controlplane.Remediate))
	s.Machines = s.Machines[:1]
	g.Expect(facts{s}.refill()).To(Equal(controlplane.ScaleUp))
	g.Expect(facts{s}.during(controlplane.Repair)).To(Equal(controlplane.Repair))
	s.Initialized = false
	g.Expect(facts{s}.during(controlplane.Repair)).To(Equal(controlplane.Initialize))
}

// What a departure asks for, and whom it leaves.
func TestTheTermsOfADeparture(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	g.Expect(facts{s}.placeTaken()).To(Equal(quorum.ToLeave(3, true, s.DeadMemberTimeout)))
	s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Silent = false, s.DeadMemberTimeout
	g.Expect(facts{s}.mayDepart(s.Machines[0], facts{s}.placeTaken()).Allowed).To(BeTrue(), "what is dead leaves no gap")
	s = ofThree()
	s.Etcd.Members[0].Machine, s.Etcd.Members[1].Machine = "", ""
	g.Expect(facts{s}.removedFirst()).To(Equal(quorum.ToLeaveFirst(3, s.DeadMemberTimeout)))
	step := remove(facts{s}, s.Machines[2], controlplane.Rollout, controlplane.ReasonReplaced, facts{s}.removedFirst())
	g.Expect(step.Message).To(HavePrefix("Machine c cannot go: no other member can lead etcd. Wait until"))
	s.Machines[0] = controlplane.Machine{Name: "a"}
	s.Machines = s.Machines[:1]
	g.Expect(dropOutdated(facts{s})).To(BeNil(), "it is the last one")
}

// A Machine leaves before its replacement is made only when nothing is missing that this will need.
func TestWhatIsThereBeforeOneLeavesFirst(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Spare = controlplane.Spare{}
	g.Expect(facts{s}.keepWhoseHostIsLost(s.Machines[0], "")).NotTo(BeNil())
	s.Spare.Returning = 1
	g.Expect(facts{s}.keepWhoseHostIsLost(s.Machines[0], "")).To(BeNil())
	g.Expect(leaveFirst(facts{s}, s.Machines[0]).Kind).To(Equal(controlplane.DeleteMachine))
	s.AddonsVersion = "v1.29.0"
	s.Hosts = []controlplane.Host{{Name: "b", Machine: "b", Present: true, Version: s.Version}}
	g.Expect(leaveFirst(facts{s}, s.Machines[0]).Kind).To(Equal(controlplane.PrepullAddons))
	s.Certificates = false
	g.Expect(leaveFirst(facts{s}, s.Machines[0]).Reason).To(Equal(controlplane.ReasonCertificates))
}

// Of Machines in deletion those go first that have no member, then what was begun, then what does not work anyway.
func TestInWhichOrderMachinesLeave(t *testing.T) {
	s := ofThree()
	s.Machines = append(s.Machines, s.Machines[0], s.Machines[1], s.Machines[2])
	for i, name := range []string{"works", "works-too", "broken", "begun", "begun-and-broken", "no-member"} {
		s.Machines[i].Name, s.Machines[i].Deleting, s.Machines[i].DeletedAt = name, true, int64(i)
		s.Machines[i].DrainHook = i != 3 && i != 4
	}
	s.Etcd.Members = nil
	for i, machine := range s.Machines[:5] {
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: machine.Name, Machine: machine.Name,
			Healthy: i != 2 && i != 4})
	}
	var names []string
	for _, machine := range (facts{s}).deletingMachines() {
		names = append(names, machine.Name)
	}
	NewWithT(t).Expect(names).To(Equal([]string{"no-member", "begun", "begun-and-broken", "broken", "works", "works-too"}))
}

// Of ill Machines those go first that cost nothing, and last the one without which nobody serves.
func TestInWhichOrderMachinesAreReplaced(t *testing.T) {
	order := func(s controlplane.State) []string {
		var names []string
		for _, each := range (facts{s}).unhealthy() {
			names = append(names, each.Machine.Name)
		}
		return names
	}
	s := ofThree()
	for len(s.Machines) < 6 {
		s.Machines = append(s.Machines, s.Machines[0])
	}
	s.Etcd.Members = nil
	for i, name := range []string{"serves", "serves-not", "by-hand", "dead", "no-member", "never"} {
		m := &s.Machines[i]
		m.Name, m.Created, m.Health.Marked = name, int64(i), "ill"
		m.Serving, m.Healthy, m.Health.ByHand = name != "serves-not", name != "serves-not", name == "by-hand"
		if name == "never" {
			m.Node, m.HostClaimed, m.Healthy, m.Serving = "", false, false, false
		}
		if i < 4 {
			s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: name, Machine: name,
				Healthy: name != "dead"})
		}
	}
	g := NewWithT(t)
	g.Expect(order(s)).To(Equal([]string{"never", "dead", "no-member", "by-hand", "serves-not", "serves"}))
	s.Etcd.Known = false
	g.Expect(order(s)).To(Equal([]string{"never", "by-hand", "serves-not", "serves", "dead", "no-member"}))

	s = ofThree()
	for i := range s.Machines {
		m := &s.Machines[i]
		m.Created, m.Health.Marked, m.Health.ByHand = int64(i), "ill", i == 0
		m.Serving, m.Healthy, m.Problem = i == 0, i == 0, map[bool]string{false: "it is ill"}[i == 0]
	}
	g.Expect(order(s)).To(Equal([]string{"b", "c", "a"}), "nobody serves without a")
	s.Machines[2].Serving = true
	g.Expect(order(s)).To(Equal([]string{"a", "b", "c"}), "c serves as well")
}

// What is refused of the spec keeps nothing from going that casts no vote, as long as there is a quorum that is read.
func TestWhatIsIllGoesBesideARefusal(t *testing.T) {
	illOne := func(change func(*controlplane.State)) *controlplane.Step {
		s := ofThree()
		s.Replicas, s.Etcd.Members, s.Remediation.Now = 2, s.Etcd.Members[:2], noon
		s.Machines[2].Health.ByHand, s.Etcd.Members[0].Leader = true, true
		s.Machines[2].Node, s.Machines[2].Joined, s.Machines[2].Bootstrapped = "", false, false
		change(&s)
		return dropIll(facts{s})
	}
	g := NewWithT(t)
	g.Expect(illOne(func(*controlplane.State) {})).To(And(HaveField("Kind", controlplane.DeleteMachine),
		HaveField("Machine", "c")))
	g.Expect(illOne(func(s *controlplane.State) { s.Initialized = false })).To(BeNil())
	g.Expect(illOne(func(s *controlplane.State) { s.Reachable = false })).To(BeNil())
	g.Expect(illOne(func(s *controlplane.State) { s.Machines[2].Health.ByHand = false })).To(BeNil())
	orphaned := func(s *controlplane.State) {
		s.Machines[2].Health.ByHand, s.Machines[2].HostClaimed = false, false
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 9, Name: "x", Learner: true})
	}
	g.Expect(illOne(orphaned)).To(And(HaveField("Kind", controlplane.RemoveEtcdMember), HaveField("Member", uint64(9))))
}

// Who casts no vote waits for one that comes on a host which is free or will be, but for no host that somebody has yet
// to leave: it leaves one itself.
func TestForWhichHostsAMachineThatIsIllWaits(t *testing.T) {
	for name, test := range map[string]struct {
		spare controlplane.Spare
		dead  bool
		waits bool
	}{
		"one is free":               {controlplane.Spare{Free: 1}, true, true},
		"one is to come":            {controlplane.Spare{Pending: 1}, true, true},
		"one is left":               {controlplane.Spare{Returning: 1}, true, false},
		"one is left, and it votes": {controlplane.Spare{Returning: 1}, false, true},
		"there is none":             {controlplane.Spare{}, false, false},
	} {
		g, s := NewWithT(t), ofThree()
		s.Replicas, s.Spare = 4, test.spare
		s.Machines = append(s.Machines, controlplane.Machine{Name: "d", Problem: "it has no host"})
		s.Machines[0].Health.ByHand = true
		if test.dead {
			s.Etcd.Members, s.Machines[0].Node, s.Machines[0].Joined = s.Etcd.Members[1:], "", false
		}
		target := controlplane.UnhealthyMachine{Machine: s.Machines[0]}
		step := facts{s}.othersCarry(target, []controlplane.UnhealthyMachine{target})
		g.Expect(step != nil).To(Equal(test.waits), name)
	}
}

// Nothing is judged of a member that nobody could read, or beside a bootstrap that still runs.
func TestWhichMembersAreJudged(t *testing.T) {
	type machine = controlplane.Machine
	for name, c := range map[string]struct {
		change func(*controlplane.State, *machine)
		judged bool
	}{
		"its host answers":              {func(*controlplane.State, *machine) {}, true},
		"it has not joined":             {func(_ *controlplane.State, m *machine) { m.Joined, m.Node = false, "" }, false},
		"it has joined, without a Node": {func(_ *controlplane.State, m *machine) { m.Node = "" }, true},
		"it has a Node, after a move":   {func(_ *controlplane.State, m *machine) { m.Joined = false }, true},
		"its bootstrap runs":            {func(_ *controlplane.State, m *machine) { m.Joining = true }, false},
		"etcd is somebody else's":       {func(s *controlplane.State, _ *machine) { s.StackedEtcd = false }, false},
		"there is no cluster yet":       {func(s *controlplane.State, _ *machine) { s.Initialized = false }, false},
		"etcd was not read":             {func(s *controlplane.State, _ *machine) { s.Etcd.Known = false }, false},
		"etcd has no quorum":            {func(s *controlplane.State, _ *machine) { s.Etcd.Agreed = false }, false},
		"its host does not answer": {func(_ *controlplane.State, m *machine) {
			m.Health.AnswersSince = time.Time{}
		}, false},
	} {
		s := ofThree()
		s.Remediation.Now, s.Etcd.Members = noon, s.Etcd.Members[:2]
		m := &s.Machines[2]
		m.Health.MemberIllSince, m.Health.AnswersSince = noon.Add(-time.Hour), noon.Add(-time.Hour)
		c.change(&s, m)
		reason, _ := facts{s}.memberUnhealthyReason(*m)
		NewWithT(t).Expect(reason != "").To(Equal(c.judged), name)
	}
}

// An attempt begins when the period is over, which doubles up to an hour.
func TestWhenAnAttemptBegins(t *testing.T) {
	g := NewWithT(t)
	held := func(ago time.Duration, change ...func(*controlplane.Remediation)) bool {
		s := ofThree()
		s.Remediation.Now = noon
		m := &s.Machines[0]
		m.Health.Marked, m.Health.Replaces = "ill", &controlplane.Attempt{Machine: "x", Time: noon.Add(-ago)}
		for _, each := range change {
			each(&s.Remediation)
		}
		_, step := facts{s}.attempt(controlplane.UnhealthyMachine{Machine: *m,
			Reason: controlplane.UnhealthyHealthCheck}, nil)
		return step != nil
	}
	retry := func(period time.Duration) func(*controlplane.Remediation) {
		return func(r *controlplane.Remediation) { r.RetryPeriod = &period }
	}
	never := func(r *controlplane.Remediation) { r.MaxRetry = new(int) }
	g.Expect(held(9*time.Minute, retry(10*time.Minute))).To(BeTrue())
	g.Expect(held(10*time.Minute, retry(10*time.Minute))).To(BeFalse())
	g.Expect(held(0, retry(0))).To(BeFalse())
	g.Expect(held(0)).To(BeFalse(), "a health check says so, and the spec sets no period")
	g.Expect(held(59*time.Minute, never)).To(BeTrue())
	g.Expect(held(time.Hour, never)).To(BeFalse(), "it was healthy for long enough")
	for retries, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		g.Expect(backOff(retries)).To(Equal(time.Duration(minutes) * time.Minute))
	}
}

// One that leaves already may have come to lead since: it hands over before anything else is done with it.
func TestALeaderThatLeavesHandsOver(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	m := &s.Machines[2]
	m.Deleting, m.DrainHook, m.AtTermination = true, false, true
	g.Expect(finalize(facts{s}, *m)).To(And(HaveField("Kind", controlplane.MoveLeader), HaveField("Machine", "c"),
		HaveField("To", uint64(1))))
}

// Who is outdated goes before its replacement votes where the strategy says so, and nobody else while one can come.
func TestWhoMayLeaveFirst(t *testing.T) {
	for strategy, first := range map[controlplane.Strategy]bool{
		"": false, controlplane.Auto: false, controlplane.Surge: false, controlplane.RemoveFirst: true,
	} {
		g, s := NewWithT(t), ofThree()
		s.Strategy, s.Machines[0].UpToDate = strategy, false
		terms := facts{s}.placeTaken()
		if first {
			terms = facts{s}.removedFirst()
		}
		g.Expect(facts{s}.terms(s.Machines[0])).To(Equal(terms), string(strategy))
		g.Expect(facts{s}.terms(s.Machines[1])).To(Equal(facts{s}.placeTaken()), string(strategy)+", up to date")
	}
}

// A Machine that has no member in a list which no quorum has confirmed may have one: who told the list may be behind.
func TestAMachineStaysUntilAQuorumSaysThatItHasNoMember(t *testing.T) {
	type machine = controlplane.Machine
	for name, c := range map[string]struct {
		change func(*controlplane.State, *machine)
		stays  bool
	}{
		"it has joined":                 {func(*controlplane.State, *machine) {}, true},
		"it has joined, without a Node": {func(_ *controlplane.State, m *machine) { m.Node = "" }, true},
		"it has a Node, after a move":   {func(_ *controlplane.State, m *machine) { m.Joined = false }, true},
		"its bootstrap failed":          {func(_ *controlplane.State, m *machine) { m.Joined, m.Node = false, "" }, true},
		"it has no host": {func(_ *controlplane.State, m *machine) {
			m.Joined, m.Node, m.HostClaimed = false, "", false
		}, false},
		"a quorum says so":        {func(s *controlplane.State, _ *machine) { s.Etcd.Agreed = true }, false},
		"etcd is somebody else's": {func(s *controlplane.State, _ *machine) { s.StackedEtcd = false }, false},
	} {
		g, s := NewWithT(t), ofThree()
		s.Etcd.Agreed, s.Etcd.Members = false, s.Etcd.Members[:2]
		m := &s.Machines[2]
		m.Deleting, m.AtTermination = true, true
		c.change(&s, m)
		begins, ends := controlplane.ReleaseDrainHook, controlplane.ReleaseTerminateHook
		if c.stays {
			begins, ends = controlplane.Wait, controlplane.Wait
		}
		g.Expect(approveDrain(facts{s}, *m)).To(HaveField("Kind", begins), name)
		g.Expect(finalize(facts{s}, *m)).To(HaveField("Kind", ends), name)
	}
}

// What the replacement of one that is ill needs goes on beside a Machine that is kept.
func TestWhatAReplacementNeedsIsMadeBesideAMachineThatIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.State)
		kind   controlplane.Kind
	}{
		"a Machine": {func(*controlplane.State) {}, controlplane.CreateMachine},
		"one that was made ahead": {func(s *controlplane.State) {
			s.PreCreated = []controlplane.PreCreatedMachine{{Name: "d"}}
		}, controlplane.AllowHostClaim},
		"the version in kubeadm-config": {func(s *controlplane.State) {
			s.ConfigVersion = "v1.29.0"
		}, controlplane.UpdateKubeadmConfig},
		"images of the add-ons": {func(s *controlplane.State) {
			s.Hosts = []controlplane.Host{{Name: "w", Version: "v1.29.0", Provisioned: true}}
		}, controlplane.PrepullAddons},
	} {
		s := ofThree()
		s.Remediation.Now, s.Machines[0].Deleting = noon, true
		ill := &s.Machines[1]
		ill.Healthy, ill.Serving, ill.Health.Marked = false, false, "its Node does not report"
		c.change(&s)
		step := Assess(s).Step
		NewWithT(t).Expect(step.Kind).To(Equal(c.kind), "%s: %s", name, step.Message)
	}
}

// No drain begins by an etcd that is not read, whoever it is of.
func TestNoDrainBeginsWhileEtcdIsNotRead(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Etcd = quorum.Membership{Problem: "why"}
	joins := controlplane.Machine{Name: "d", Deleting: true, DrainHook: true, Hook: true, HostClaimed: true, Joining: true}
	s.Machines = append(s.Machines, joins)
	for _, machine := range []controlplane.Machine{s.Machines[0], joins} {
		g.Expect(approveDrain(facts{s}, machine)).To(And(HaveField("Kind", controlplane.Wait),
			HaveField("Reason", controlplane.ReasonConnectionDown)), machine.Name)
	}
}

// A Machine without a host goes for the sake of a dead voter only where there is a cluster, and its etcd is ours.
func TestWhereAMachineWithoutAHostGoesBesideADeadVoter(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Replicas, s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Silent = 5, false, time.Hour
	s.Machines = append(s.Machines, controlplane.Machine{Name: "d", UpToDate: true})
	g.Expect(dropUnjoinable(facts{s})).To(And(HaveField("Kind", controlplane.DeleteMachine), HaveField("Machine", "d")))
	s.StackedEtcd = false
	g.Expect(dropUnjoinable(facts{s})).To(BeNil(), "etcd is somebody else's")
	s.StackedEtcd, s.Initialized = true, false
	g.Expect(dropUnjoinable(facts{s})).To(BeNil(), "there is no cluster yet")
}

// A member that no Machine runs comes before what holds nothing.
func TestWhatHoldsNothingGoesBehindAMemberOfNobody(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Machines = append(s.Machines, controlplane.Machine{Name: "d"})
	g.Expect(dropIdle(facts{s})).To(HaveField("Machine", "d"))
	s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 9, Name: "x", Learner: true})
	g.Expect(dropIdle(facts{s})).To(BeNil())
}

// The last active Machine, outdated and never joined, goes beside a node that is kept, and not beside one that has left.
func TestBesideWhomTheLastMachineGoesThatNeverJoined(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.Machine)
		goes   bool
	}{
		"it is kept":      {func(*controlplane.Machine) {}, true},
		"it has left":     {func(m *controlplane.Machine) { m.Hook, m.DrainHook = false, false }, false},
		"it is no node":   {func(m *controlplane.Machine) { m.Node = "" }, false},
		"its drain began": {func(m *controlplane.Machine) { m.DrainHook = false }, true},
	} {
		s := ofThree()
		beside := s.Machines[0]
		beside.Deleting = true
		c.change(&beside)
		s.Machines = []controlplane.Machine{beside, {Name: "d"}}
		NewWithT(t).Expect(dropOutdated(facts{s}) != nil).To(Equal(c.goes), name)
	}
}

// Beside a Machine that is kept only that voter is taken which it names.
func TestWhomRemediationTakesBesideAMachineThatIsKept(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Remediation.Now = noon
	s.Machines, s.Etcd.Members = append(s.Machines, s.Machines[1]), append(s.Etcd.Members, s.Etcd.Members[1])
	s.Machines[3].Name, s.Machines[3].Node = "d", "d"
	s.Etcd.Members[3] = quorum.Member{ID: 4, Name: "d", Machine: "d", Healthy: true}
	s.Machines[0].Health.ByHand = true // it votes, and is one too many
	kept := func(kind controlplane.Kind, reason, machine string) []*controlplane.Step {
		return []*controlplane.Step{{Kind: kind, Reason: reason, Machine: machine}}
	}
	g.Expect(unblock(facts{s}, kept(controlplane.Wait, controlplane.ReasonMachineNotReady, "a"))).
		To(And(HaveField("Kind", controlplane.DeleteMachine), HaveField("Machine", "a")))
	g.Expect(unblock(facts{s}, kept(controlplane.Wait, controlplane.ReasonMachineNotReady, "b"))).To(BeNil())
	g.Expect(unblock(facts{s}, kept(controlplane.Wait, controlplane.ReasonQuorum, "a"))).To(BeNil())

	s = ofThree()
	s.Remediation.Now, s.Etcd.Members = noon, s.Etcd.Members[:2]
	ill := &s.Machines[2]
	ill.Health.ByHand, ill.Node, ill.Joined, ill.Bootstrapped = true, "", false, false
	refused := kept(controlplane.Refuse, controlplane.ReasonReplicas, "a")
	g.Expect(unblock(facts{s}, refused)).To(And(HaveField("Kind", controlplane.DeleteMachine), HaveField("Machine", "c")))
}

// One that is ill waits for a Machine that goes by itself: that goes next, before what is left of others.
func TestWhatHoldsNothingGoesBeforeTheNodesOfOthers(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Remediation.Now, s.OrphanNodes = noon, []string{"n9"}
	ill := &s.Machines[0]
	ill.Healthy, ill.Serving, ill.Health.Marked = false, false, "its Node does not report"
	s.Machines = append(s.Machines, controlplane.Machine{Name: "d", HostClaimed: true})
	g.Expect(Assess(s).Step).To(And(HaveField("Kind", controlplane.DeleteMachine), HaveField("Machine", "d")))
}
