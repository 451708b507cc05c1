// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// A Machine without a member of its own may have one all the same; what holds nothing of the cluster never joined.
func TestMemberStateOfAMachine(t *testing.T) {
	stray := func(s *controlplane.State) { s.Etcd.Members[0].Machine = "" }
	unread := func(s *controlplane.State) { s.Etcd = quorum.Membership{Problem: "nobody answers"} }
	external := func(s *controlplane.State) { s.StackedEtcd = false }
	machine := func(name string) controlplane.Machine { return controlplane.Machine{Name: name} }
	hosted := func(name string) controlplane.Machine { return controlplane.Machine{Name: name, HostClaimed: true} }
	joining := func(name string) controlplane.Machine {
		return controlplane.Machine{Name: name, HostClaimed: true, Joining: true}
	}
	joined := func(name string) controlplane.Machine {
		return controlplane.Machine{Name: name, HostClaimed: true, Joined: true}
	}
	for name, test := range map[string]struct {
		machine     controlplane.Machine
		change      func(*controlplane.State)
		state       quorum.MemberState
		neverJoined bool
	}{
		"has a voter":                              {machine("b"), nil, quorum.MemberHealthy, false},
		"joins, and has a member already":          {joining("b"), nil, quorum.MemberHealthy, false},
		"has no host":                              {machine("d"), nil, quorum.MemberNone, true},
		"has no host beside a stray member":        {machine("d"), stray, quorum.MemberNone, true},
		"has no host, etcd not read":               {machine("d"), unread, quorum.MemberNone, true},
		"has a host":                               {hosted("d"), nil, quorum.MemberNone, true},
		"has a host beside a stray member":         {hosted("d"), stray, quorum.MemberUnknown, false},
		"has a host, etcd not read":                {hosted("d"), unread, quorum.MemberUnknown, false},
		"its bootstrap runs":                       {joining("d"), nil, quorum.MemberJoining, true},
		"its bootstrap runs beside a stray member": {joining("d"), stray, quorum.MemberJoining, false},
		"its bootstrap ended":                      {joined("d"), nil, quorum.MemberNone, false},
		"etcd is somebody else's":                  {hosted("b"), external, quorum.MemberNone, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := ofThree()
			if test.change != nil {
				test.change(&s)
			}
			g.Expect(facts{s}.memberState(test.machine)).To(Equal(test.state))
			g.Expect(facts{s}.neverJoined(test.machine)).To(Equal(test.neverJoined))
		})
	}
}

// A member that does not vote in health is awaited only beside a Node, and by what was read.
func TestAMemberIsAwaited(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	g.Expect(facts{s}.awaitsMember()).To(BeFalse())
	g.Expect(facts{s}.memberShortcoming(s.Machines[1])).To(BeEmpty())
	s.Etcd.Members[1].Learner = true
	g.Expect(facts{s}.awaitsMember()).To(BeTrue())
	g.Expect(facts{s}.memberShortcoming(s.Machines[1])).To(Equal("its etcd member is a learner that still copies the data"))
	s.Machines[1].Node = ""
	g.Expect(facts{s}.awaitsMember()).To(BeFalse(), "it has no Node")
	s.Machines[1].Node, s.Etcd.Known = "b", false
	g.Expect(facts{s}.awaitsMember()).To(BeFalse(), "nobody knows")
	s.Etcd = quorum.Membership{Known: true}
	g.Expect(facts{s}.memberShortcoming(s.Machines[1])).To(Equal("it has no etcd member yet"))
	s.StackedEtcd = false
	g.Expect(facts{s}.memberShortcoming(s.Machines[1])).To(BeEmpty(), "etcd is somebody else's")
}

// A full database says itself how to make room. What else is wrong, with its Machine or another one, ends otherwise.
func TestOnlyAFullDatabaseSaysHowItEnds(t *testing.T) {
	g, s := NewWithT(t), ofThree()
	s.Etcd.Members[1].Healthy, s.Etcd.Members[1].Full, s.Etcd.Members[1].Problem = false, true, quorum.MakeRoom
	f, other := facts{s}, "; if that stays so, "+haveReplaced
	g.Expect(f.memberState(s.Machines[1])).To(Equal(quorum.MemberFull))
	g.Expect(f.explained(s.Machines[1], "full: "+quorum.MakeRoom)).To(Equal("full: " + quorum.MakeRoom))
	g.Expect(f.explained(s.Machines[1], "ill")).To(Equal("ill" + other))
	g.Expect(f.explained(s.Machines[0], "full: "+quorum.MakeRoom)).To(Equal("full: " + quorum.MakeRoom + other))
}
