// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// Who stays leads before who leaves, then who is up to date, then who is younger.
func TestWhoLeadsNext(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *controlplane.Machine)
		next   string
	}{
		"the younger":             {func(_, b *controlplane.Machine) { b.Created = 2 }, "b"},
		"the first of one age":    {func(_, _ *controlplane.Machine) {}, "a"},
		"up to date before young": {func(a, b *controlplane.Machine) { b.Created, b.UpToDate = 2, false }, "a"},
		"who stays before both":   {func(a, b *controlplane.Machine) { b.Created, b.Deleting, a.UpToDate = 2, true, false }, "a"},
		"who is kept before none": {func(a, _ *controlplane.Machine) { a.Deleting, a.DrainHook = true, false }, "b"},
		"nobody whose drain began": {func(a, b *controlplane.Machine) {
			a.Deleting, a.DrainHook, b.Deleting, b.DrainHook = true, false, true, false
		}, ""},
		"who is kept where nobody stays": {func(a, b *controlplane.Machine) {
			a.Deleting, b.Deleting, b.DrainHook = true, true, false
		}, "a"},
	} {
		s := ofThree() // c leads
		for i := range s.Machines {
			s.Machines[i].Created = 1
		}
		c.change(&s.Machines[0], &s.Machines[1])
		next := facts{s}.successor(s.Etcd.Members[2])
		if c.next == "" {
			NewWithT(t).Expect(next).To(BeNil(), name)
			continue
		}
		NewWithT(t).Expect(next).To(HaveField("Machine", c.next), name)
	}
}

// Raft hands the lead to who has all its entries, and gives up after an election's time: the youngest is not asked over
// and over while it is far behind.
func TestWhoIsFarBehindLeadsNotNext(t *testing.T) {
	for lag, next := range map[uint64]string{quorum.DefaultMaxLag: "b", quorum.DefaultMaxLag + 1: "a"} {
		s := ofThree() // c leads
		s.Machines[1].Created, s.Etcd.Members[1].Lag = s.Machines[0].Created+1, lag
		NewWithT(t).Expect(facts{s}.successor(s.Etcd.Members[2])).To(HaveField("Machine", next))
	}
}

// Nobody can have a member hand over whose host is not asked, and nobody knows how far behind it is.
func TestWhoIsKnownFromOthersNeitherLeadsNextNorHandsOver(t *testing.T) {
	g, s := NewWithT(t), ofThree() // c leads
	g.Expect(facts{s}.leads(s.Machines[2])).To(HaveField("Machine", "c"))
	s.Etcd.Members[2].Hearsay = true
	g.Expect(facts{s}.leads(s.Machines[2])).To(BeNil())
	s.Etcd.Members[1].Hearsay, s.Machines[1].Created = true, s.Machines[0].Created+1
	g.Expect(facts{s}.successor(s.Etcd.Members[2])).To(HaveField("Machine", "a"))
}

// What is lost, how many are needed, and whether it comes back by itself.
func TestWhenAQuorumIsLost(t *testing.T) {
	dead := func(s *controlplane.State, i int) {
		s.Etcd.Members[i].Healthy, s.Etcd.Members[i].Problem = false, "no answer"
	}
	final := func(s *controlplane.State, i int) {
		dead(s, i)
		s.Machines[i].Health.Final = "kubeadm failed"
	}
	torn := func(s *controlplane.State, i int) {
		dead(s, i)
		s.Machines[i].Deleting, s.Machines[i].Hook = true, false
	}
	two := "1 of 3 voters are healthy and 2 are needed"
	for name, c := range map[string]struct {
		change  func(*controlplane.State)
		says    string
		forGood bool
	}{
		"two do not answer": {func(s *controlplane.State) { dead(s, 0); dead(s, 1) },
			two + "; missing are a (no answer), b (no answer)", false},
		"one host is gone": {func(s *controlplane.State) { final(s, 0); dead(s, 1) },
			two + "; missing are a (its host is gone), b (no answer)",
			false},
		"two hosts are gone": {func(s *controlplane.State) { final(s, 0); torn(s, 1) },
			two + "; missing are a (its host is gone), b (its host is gone)", true},
		"a bootstrap that failed may have added one that runs": {func(s *controlplane.State) {
			final(s, 0)
			final(s, 1)
			s.Machines[0].Bootstrapped, s.Machines[1].Bootstrapped = false, false
		}, two + "; missing are a (no answer), b (no answer)", false},
		"one that leaves is kept": {func(s *controlplane.State) {
			final(s, 0)
			dead(s, 1)
			s.Machines[1].Deleting = true
		}, two, false},
		"one whose hook is not set yet stays": {func(s *controlplane.State) {
			final(s, 0)
			dead(s, 1)
			s.Machines[1].Hook = false
		}, two, false},
		"two have no Machine": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.Etcd.Members[0].Machine, s.Machines = "", s.Machines[2:]
		}, two + "; missing are a (no Machine runs it, and nobody here knows its host), b (no Machine runs it, and nobody " +
			"here knows its host)", false},
		"a person gave up one without a Machine, and said nothing of its host": {func(s *controlplane.State) {
			final(s, 0)
			dead(s, 1)
			s.Etcd.Members[1].Machine, s.RemoveMembers = "", []uint64{2}
		}, "a (its host is gone), b (no Machine runs it", false},
		"one without a name": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.Etcd.Members[0].ID, s.Etcd.Members[0].Name = 0xbeef, ""
		}, "missing are beef (no answer), b", false},
		"a learner counts for nothing": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 9, Name: "l", Learner: true, Healthy: true})
		}, two, false},
		"one is dead": {func(s *controlplane.State) { dead(s, 0) }, "", false},
		"an agreement": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.Etcd.Agreed = true
		}, "", false},
		"it is not known": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.Etcd.Known = false
		}, "", false},
		"there is no cluster yet": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.Initialized = false
		}, "", false},
		"etcd is somebody else's": {func(s *controlplane.State) {
			dead(s, 0)
			dead(s, 1)
			s.StackedEtcd = false
		}, "", false},
		"one that works has left": {func(s *controlplane.State) {
			dead(s, 0)
			s.Machines[1].Deleting, s.Machines[1].Hook = true, false
		}, "", false},
		// What is said of a host is older than the answer that came through it, and who answers may be part of a quorum.
		"one that works has a host that was given up": {func(s *controlplane.State) {
			dead(s, 0)
			s.Machines[1].Health.Final = "a person gave it up"
		}, "", false},
		"one that works is nobody's": {func(s *controlplane.State) {
			dead(s, 0)
			s.Etcd.Members[1].Machine = "x"
		}, "", false},
	} {
		s := ofThree()
		s.Etcd.Agreed, s.ElectionGrace = false, 1
		c.change(&s)
		loss := facts{s}.quorumLoss()
		g := NewWithT(t)
		if c.says == "" {
			g.Expect(loss).To(BeNil(), name)
			continue
		}
		g.Expect(loss).NotTo(BeNil(), name)
		g.Expect(loss.Message).To(ContainSubstring(c.says), name)
		g.Expect(loss.ForGood).To(Equal(c.forGood), name)
		g.Expect(strings.Contains(loss.WayOut, "spec.recovery")).To(Equal(c.forGood), name+", and it may be an election")
	}
}

// Etcd may be electing while nobody confirms a list that was read of our own etcd, and until the time for that is over.
func TestWhenEtcdMayBeElecting(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*controlplane.State)
		may    bool
	}{
		"nobody confirms the list": {func(*controlplane.State) {}, true},
		"its time is nearly over":  {func(s *controlplane.State) { s.ElectionGrace = 1 }, true},
		"its time is over":         {func(s *controlplane.State) { s.ElectionGrace = 0 }, false},
		"a quorum confirms it":     {func(s *controlplane.State) { s.Etcd.Agreed = true }, false},
		"it was not read":          {func(s *controlplane.State) { s.Etcd.Known = false }, false},
		"etcd is somebody else's":  {func(s *controlplane.State) { s.StackedEtcd = false }, false},
		"there is no cluster yet":  {func(s *controlplane.State) { s.Initialized = false }, false},
	} {
		s := ofThree()
		s.Etcd.Agreed, s.ElectionGrace = false, time.Minute
		c.change(&s)
		NewWithT(t).Expect(facts{s}.electing()).To(Equal(c.may), name)
	}
}

// A Machine without a member of its own may run any one of those that nobody runs, but it does not run all of them.
func TestAMachineTakesOneMemberWithIt(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Etcd.Members[2].Machine = ""
	s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 4, Name: "d", Healthy: true})
	g.Expect(facts{s}.mayDepart(s.Machines[2], facts{s}.placeTaken()).Allowed).To(BeTrue(), "three stay, whichever it is")
	s.Etcd.Members[3].Healthy = false
	g.Expect(facts{s}.mayDepart(s.Machines[2], facts{s}.placeTaken()).Allowed).To(BeFalse(), "it may be the one that works")
}

// Voters that look healthy and agree on nothing have no quorum once etcd has had the time to elect, for their disks may
// hang. Nobody knows which of them works, so none is called dead, and all are named.
func TestAQuorumThatAgreesOnNothingIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*controlplane.State)
		says, comesBy string
	}{
		"one sees no leader": {func(s *controlplane.State) {
			s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Problem = false, "it sees no leader"
		}, "A leader is named by b, c, and not by a (it sees no leader)", "look first at b, c. It comes back"},
		"all name one": {func(*controlplane.State) {}, "A leader is named by a, b, c",
			"look first at a, b, c. It comes back"},
		"the host of one is gone": {func(s *controlplane.State) {
			s.Etcd.Members[0].Healthy, s.Machines[0].Health.Final = false, "kubeadm failed"
		}, "A leader is named by b, c, and not by a (its host is gone)", "look first at b, c. It comes back"},
		"the host of one was given up, and it answers": {func(s *controlplane.State) {
			s.Machines[0].Health.Final = "a person gave it up"
		}, "A leader is named by a, b, c", "look first at a, b, c. It comes back"},
		"there is one alone": {func(s *controlplane.State) { s.Etcd.Members = s.Etcd.Members[:1] },
			"A leader is named by a", "look first at a. It comes back"},
		"no Machine runs one that others hear": {func(s *controlplane.State) {
			s.Etcd.Members[2].Machine, s.Machines = "", s.Machines[:2]
		}, "A leader is named by a, b, c", "Members 3 may be well, and have a quorum without the others"},
		"a recovery was taken away": {func(s *controlplane.State) {
			s.Recovery = &controlplane.Recovery{ID: "r1", Withdrawn: true}
		}, "A leader is named by a, b, c", "Recovery r1 has begun and was taken away"},
	} {
		g := NewWithT(t)
		s := ofThree()
		s.Etcd.Agreed = false
		c.change(&s)
		s.ElectionGrace = time.Minute
		g.Expect(facts{s}.quorumLoss()).To(BeNil(), name+", and it may be an election")
		s.ElectionGrace = 0
		assessment := Assess(s)
		g.Expect(assessment.QuorumLoss).NotTo(BeNil(), name)
		g.Expect(assessment.QuorumLoss.ForGood).To(BeFalse(), name)
		g.Expect(assessment.QuorumLoss.Message).To(HaveSuffix("no voter completes a read through it. "+c.says), name)
		g.Expect(assessment.QuorumLoss.WayOut).To(And(ContainSubstring(c.comesBy), ContainSubstring("spec.recovery")), name)
		g.Expect(assessment.Step.Message).NotTo(ContainSubstring(replaced), name)
		s.Etcd.Agreed = true
		g.Expect(facts{s}.quorumLoss()).To(BeNil(), name+", and somebody agrees")
	}
}

// While etcd may be electing a leader nobody knows who survives, whoever looks healthy: no wait advises to have a
// Machine replaced, or a member removed. What a person has asked for goes on.
func TestNobodyIsGivenUpWhileEtcdMayBeElecting(t *testing.T) {
	rapidtest.CheckAll(t, 20000, func(t *rapid.T) {
		s := anyState(t)
		s.Etcd.Agreed, s.ElectionGrace = false, time.Minute
		step := Assess(s).Step
		if !s.Initialized || !s.Etcd.Known || !s.StackedEtcd || step.Operation == controlplane.Delete ||
			step.Operation == controlplane.Recover {
			return
		}
		for _, advice := range []string{replaced, "remove-etcd-member"} {
			if step.Waiting() && strings.Contains(step.Message, advice) {
				t.Fatalf("%s advises %s, of\n%+v", tell(step), advice, s)
			}
		}
		if wrong := cmp.Or(incomplete(s, step), endless(step)); wrong != "" {
			t.Fatalf("%s, of\n%+v", wrong, s)
		}
	})
}

// Where no Machine runs what is missing, its host may be well and have the quorum with others: that is said before a
// recovery is.
func TestTheWayOutOfALossNamesMembersWithoutAMachine(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Etcd.Agreed = false
	for i := range s.Etcd.Members {
		s.Etcd.Members[i].Healthy = false
	}
	g.Expect(facts{s}.quorumLoss().WayOut).To(HavePrefix("It comes back by itself with the hosts of enough members"))
	s.Machines, s.Etcd.Members[0].Machine, s.Etcd.Members[1].Machine = s.Machines[2:], "", ""
	g.Expect(facts{s}.quorumLoss().WayOut).To(HavePrefix("Members 1, 2 may be well, and have a quorum without the " +
		"others: the objects here may be older than they. If another management cluster has their Machines, pause this " +
		"Cluster."))
}

// A Machine leaves before its replacement only while every other one works whole, whoever asks.
func TestAnotherThatIsShortKeepsAMachineThatLeavesFirst(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	g.Expect(leaveFirst(facts{s}, s.Machines[0])).To(HaveField("Kind", controlplane.DeleteMachine))
	s.Machines[0].Healthy = false
	g.Expect(leaveFirst(facts{s}, s.Machines[0])).To(HaveField("Kind", controlplane.DeleteMachine),
		"it is the one that leaves")
	s.Machines[1].Healthy = false
	g.Expect(leaveFirst(facts{s}, s.Machines[0])).To(And(HaveField("Kind", controlplane.Wait), HaveField("Machine", "b")))
}
