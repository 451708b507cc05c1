// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// leaving is a control plane of three of which one leaves and was agreed to; change makes it what the case is about.
func leaving(change func(*controlplane.State, *controlplane.Machine)) controlplane.State {
	s := controlplane.State{Replicas: 3, Version: "v1.36.3", StackedEtcd: true, Initialized: true, Reachable: true,
		Certificates: true,
		Etcd:         quorum.Membership{Known: true, Agreed: true}}
	for i, name := range []string{"a", "b", "c", "d"} {
		s.Machines = append(s.Machines, controlplane.Machine{Name: name, Version: "v1.36.3", Node: "n-" + name,
			HostClaimed:  true,
			Bootstrapped: true, Joined: true,
			UpToDate: true, Healthy: true, Serving: true, Registered: true, Created: int64(i)})
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: "n-" + name, Machine: name,
			Healthy: true, Leader: name == "d"})
	}
	s.Machines[0].Deleting, s.Machines[0].Hook, s.Machines[0].AtTermination = true, true, true
	change(&s, &s.Machines[0])
	return s
}

// Proves: S2-19, S2-20
func TestWhatClusterAPILeavesUndoneIsDoneBeforeTheHostGoes(t *testing.T) {
	removed := func(s *controlplane.State) { s.Etcd.Members = s.Etcd.Members[1:] }
	all := func(s *controlplane.State) {
		for i := range s.Machines {
			s.Machines[i].Deleting, s.Machines[i].DrainHook = true, i > 0
		}
	}
	for name, c := range map[string]struct {
		change func(*controlplane.State, *controlplane.Machine)
		want   controlplane.Kind
	}{
		"drained":     {func(*controlplane.State, *controlplane.Machine) {}, controlplane.RemoveEtcdMember},
		"not drained": {func(_ *controlplane.State, m *controlplane.Machine) { m.Undrained = true }, controlplane.EvictPods},
		"not drained, others wait": {func(_ *controlplane.State, m *controlplane.Machine) {
			m.Undrained, m.OtherHooks = true, []string{"x"}
		}, controlplane.EvictPods},
		"not drained, no member": {func(s *controlplane.State,
			m *controlplane.Machine) {
			m.Undrained = true
			removed(s)
		}, controlplane.EvictPods},
		"not drained, API is silent": {func(s *controlplane.State, m *controlplane.Machine) {
			m.Undrained, s.Reachable = true,
				false
		}, controlplane.EvictPods},
		"not agreed to": {func(_ *controlplane.State, m *controlplane.Machine) {
			m.Undrained, m.DrainHook = true,
				true
		}, controlplane.ReleaseDrainHook},
		"no member": {func(s *controlplane.State, _ *controlplane.Machine) { removed(s) },
			controlplane.ReleaseTerminateHook},
		"no member, nobody stays": {func(s *controlplane.State, _ *controlplane.Machine) { removed(s); all(s) },
			controlplane.DeleteNode},
		"no Node, nobody stays": {func(s *controlplane.State,
			m *controlplane.Machine) {
			m.Registered = false
			removed(s)
			all(s)
		},
			controlplane.ReleaseTerminateHook},
		"etcd elsewhere, not drained": {func(s *controlplane.State,
			m *controlplane.Machine) {
			s.StackedEtcd = false
			s.Etcd = quorum.Membership{}
			m.Undrained = true
		}, controlplane.EvictPods},
		"etcd elsewhere": {func(s *controlplane.State,
			_ *controlplane.Machine) {
			s.StackedEtcd = false
			s.Etcd = quorum.Membership{}
		},
			controlplane.ReleaseTerminateHook},
		"etcd elsewhere, nobody stays": {func(s *controlplane.State, _ *controlplane.Machine) {
			s.StackedEtcd = false
			s.Etcd = quorum.Membership{}
			s.Machines = s.Machines[:1]
		}, controlplane.DeleteNode},
		"the Cluster goes": {func(s *controlplane.State, m *controlplane.Machine) {
			s.ClusterDeleting, m.Undrained = true,
				true
		}, controlplane.ReleaseTerminateHook},
	} {
		t.Run(name, func(t *testing.T) {
			step := Assess(leaving(c.change)).Step
			NewWithT(t).Expect(step.Kind).To(Equal(c.want), step.Message)
			if c.want == controlplane.DeleteNode {
				NewWithT(t).Expect(step.Node).To(Equal("n-a"))
			}
		})
	}
}

func TestNodesWithoutMachinesAreDeleted(t *testing.T) {
	g := NewWithT(t)
	s := leaving(func(s *controlplane.State, _ *controlplane.Machine) {
		s.Machines, s.Etcd.Members = s.Machines[1:], s.Etcd.Members[1:]
		s.OrphanNodes = []string{"n-x", "n-y"}
	})
	step := Assess(s).Step
	g.Expect(step.Kind).To(Equal(controlplane.DeleteNode))
	g.Expect(step.Node).To(Equal("n-x"))
	g.Expect(step.Message).To(Equal("deleting Node n-x, whose Machine is gone"))
	s.Reachable = false
	g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.Wait))
}
