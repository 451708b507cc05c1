// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// memoryDetour is kind and two management clusters in memory, with the workspace's record of the last pivot. A pivot dies
// before its first write, after that, or when everything is done.
type memoryDetour struct {
	found detourFound
	last  *record
	log   []stage
	fail  func(stage, int) error
}

func (m *memoryDetour) next(context.Context) (stage, error) {
	f := m.found
	f.pivots(m.last, "bootstrap")
	return f.next(), nil
}

func (m *memoryDetour) pivot(next stage, r record) error {
	r.Journal = &pivot.Journal{Phase: pivot.Copying}
	m.last = &r
	if err := m.fail(next, 1); err != nil {
		return err
	}
	r.Journal = &pivot.Journal{Phase: pivot.Done}
	return nil
}

func (m *memoryDetour) reach(_ context.Context, next stage) (err error) {
	if err := m.fail(next, 0); err != nil {
		return err
	}
	m.log = append(m.log, next)
	home, there := cluster.Kubeconfig{Path: "home"}, cluster.Kubeconfig{Path: "bootstrap"}
	switch next {
	case makeBootstrap:
		m.found.Bootstrap, m.found.Lacks = true, []string{"quoin"}
	case installThere:
		m.found.Lacks = nil
	case pivotThere:
		err = m.pivot(next, record{Source: home, Target: there})
	case upgradeThere:
		m.found.Upgraded = true
	case pivotHome:
		err = m.pivot(next, record{Source: there, Target: home, Back: true})
	case removeBootstrap:
		if m.last.Target != home || m.last.Journal.Phase != pivot.Done {
			return errors.New("the only management cluster is deleted")
		}
		m.found.Bootstrap = false
	}
	return errors.Join(err, m.fail(next, 2))
}

// An upgrade through a bootstrap cluster that dies before, in the middle of or after any stage goes on with the same command:
// each stage is reached once, a pivot that was open is finished, and the bootstrap cluster is deleted at the end alone.
//
// Proves: S0-64, S0-65, S0-68, S0-69
func TestADetourThatDiesGoesOn(t *testing.T) {
	all := []stage{makeBootstrap, installThere, pivotThere, upgradeThere, pivotHome, removeBootstrap}
	silent := func(string, ...any) {}
	for _, fatal := range all {
		for when := range 3 {
			t.Run(string(fatal), func(t *testing.T) {
				g, broken, failed := NewWithT(t), errors.New("killed"), false
				m := &memoryDetour{last: &record{Source: cluster.Kubeconfig{Path: "bootstrap"}, Target: cluster.Kubeconfig{Path: "home"},
					Journal: &pivot.Journal{Phase: pivot.Done}}} // as the cluster was born
				m.fail = func(s stage, at int) error {
					if s == fatal && at == when && !failed {
						failed = true
						return broken
					}
					return nil
				}
				if err := reachAll(t.Context(), m, silent); failed {
					g.Expect(err).To(MatchError(broken))
					g.Expect(reachAll(t.Context(), m, silent)).To(Succeed())
				}
				want := all
				if i := len(want); failed && when == 1 {
					for i = range want {
						if want[i] == fatal {
							break
						}
					}
					want = append(append([]stage{}, want[:i+1]...), want[i:]...) // the pivot goes on
				}
				g.Expect(m.log).To(Equal(want))
				g.Expect(m.found.Bootstrap).To(BeFalse())
			})
		}
	}
}

// The workspace says which side manages the cluster, also after a pivot that was undone or made by hand.
func TestADetourKnowsWhereTheClusterIs(t *testing.T) {
	g := NewWithT(t)
	home, there := cluster.Kubeconfig{Path: "home"}, cluster.Kubeconfig{Path: "bootstrap"}
	find := func(r record, phase pivot.Phase) detourFound {
		f := detourFound{Bootstrap: true}
		r.Journal = &pivot.Journal{Phase: phase}
		f.pivots(&r, "bootstrap")
		return f
	}
	into, back := record{Source: home, Target: there}, record{Source: there, Target: home, Back: true}
	byHand := record{Source: home, Target: there, Back: true} // back to where the cluster was born
	g.Expect(find(into, pivot.Done).There).To(BeTrue())
	g.Expect(find(byHand, pivot.Done).There).To(BeTrue())
	g.Expect(find(into, pivot.Undone).There).To(BeFalse())
	g.Expect(find(back, pivot.Done).There).To(BeFalse())
	g.Expect(find(back, pivot.Undone).There).To(BeTrue(), "the way home was undone")
	g.Expect(find(record{Source: there, Target: home}, pivot.Done).There).To(BeFalse(), "born")
	for _, phase := range []pivot.Phase{pivot.Copying, pivot.Undoing, pivot.Releasing} {
		g.Expect(find(into, phase).Open).To(Equal(pivotThere))
		g.Expect(find(back, phase).Open).To(Equal(pivotHome))
	}
	var none detourFound
	none.pivots(nil, "bootstrap")
	g.Expect(none).To(Equal(detourFound{}))
}
