// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// leaving is a control plane of three of which one leaves and was agreed to; change makes it what the case is about.
func leaving(change func(*Snapshot, *Machine)) Snapshot {
	s := Snapshot{Replicas: 3, Version: "v1.36.3", StackedEtcd: true, Initialized: true, Reachable: true,
		Certificates: true,
		Etcd:         quorum.Membership{Known: true, Agreed: true}}
	for i, name := range []string{"a", "b", "c", "d"} {
		s.Machines = append(s.Machines, Machine{Name: name, Version: "v1.36.3", Node: "n-" + name, HostClaimed: true,
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
	removed := func(s *Snapshot) { s.Etcd.Members = s.Etcd.Members[1:] }
	all := func(s *Snapshot) {
		for i := range s.Machines {
			s.Machines[i].Deleting, s.Machines[i].DrainHook = true, i > 0
		}
	}
	for name, c := range map[string]struct {
		change func(*Snapshot, *Machine)
		want   Kind
	}{
		"drained":     {func(*Snapshot, *Machine) {}, RemoveEtcdMember},
		"not drained": {func(_ *Snapshot, m *Machine) { m.Undrained = true }, Evict},
		"not drained, others wait": {func(_ *Snapshot, m *Machine) {
			m.Undrained, m.OtherHooks = true, []string{"x"}
		}, Evict},
		"not drained, no member":     {func(s *Snapshot, m *Machine) { m.Undrained = true; removed(s) }, Evict},
		"not drained, API is silent": {func(s *Snapshot, m *Machine) { m.Undrained, s.Reachable = true, false }, Evict},
		"not agreed to":              {func(_ *Snapshot, m *Machine) { m.Undrained, m.DrainHook = true, true }, OpenDrain},
		"no member":                  {func(s *Snapshot, _ *Machine) { removed(s) }, ReleaseHook},
		"no member, nobody stays":    {func(s *Snapshot, _ *Machine) { removed(s); all(s) }, DeleteNode},
		"no Node, nobody stays": {func(s *Snapshot, m *Machine) { m.Registered = false; removed(s); all(s) },
			ReleaseHook},
		"etcd elsewhere, not drained": {func(s *Snapshot,
			m *Machine) {
			s.StackedEtcd = false
			s.Etcd = quorum.Membership{}
			m.Undrained = true
		}, Evict},
		"etcd elsewhere": {func(s *Snapshot, _ *Machine) { s.StackedEtcd = false; s.Etcd = quorum.Membership{} },
			ReleaseHook},
		"etcd elsewhere, nobody stays": {func(s *Snapshot, _ *Machine) {
			s.StackedEtcd = false
			s.Etcd = quorum.Membership{}
			s.Machines = s.Machines[:1]
		}, DeleteNode},
		"the Cluster goes": {func(s *Snapshot, m *Machine) { s.ClusterDeleting, m.Undrained = true, true }, ReleaseHook},
	} {
		t.Run(name, func(t *testing.T) {
			step := Decide(leaving(c.change))
			NewWithT(t).Expect(step.Kind).To(Equal(c.want), step.Message)
			if c.want == DeleteNode {
				NewWithT(t).Expect(step.Node).To(Equal("n-a"))
			}
		})
	}
}

func TestNodesWithoutMachinesAreDeleted(t *testing.T) {
	g := NewWithT(t)
	s := leaving(func(s *Snapshot, _ *Machine) {
		s.Machines, s.Etcd.Members = s.Machines[1:], s.Etcd.Members[1:]
		s.OrphanNodes = []string{"n-x", "n-y"}
	})
	step := Decide(s)
	g.Expect(step.Kind).To(Equal(DeleteNode))
	g.Expect(step.Node).To(Equal("n-x"))
	s.Reachable = false
	g.Expect(Decide(s).Kind).To(Equal(Wait))
}
