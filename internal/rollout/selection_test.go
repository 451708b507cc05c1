// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Every Machine that is marked is replaced once and no other one is, whatever else is edited meanwhile; no more are
// missing than may be, and with a canary where all are marked.
//
// Proves: S3-3, S3-5, S3-25, S3-30
func TestSelectedMachinesAreReplaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawn(t)
		f.policy.Strategy = nil
		consents := rapid.Bool().Draw(t, "consents")
		for _, d := range f.pools {
			if d.unavailable == 0 && !consents {
				d.unavailable = 1
			}
		}
		if consents {
			f.policy.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
		}
		for range 5 {
			f.step(t)
		}
		made, marked, first := map[string]int{}, map[string]int{}, map[string]map[string]bool{}
		for _, d := range f.pools {
			made[d.name], first[d.name] = d.made, map[string]bool{}
			for _, n := range d.machines {
				if rapid.Bool().Draw(t, "marked") {
					n.needsUpdate = "needs-update on its Node"
					marked[d.name]++
				} else {
					first[d.name][n.name] = true
				}
			}
		}
		for range 2000 {
			f.policy.ContinueAfter = f.result.PausedAfter
			f.step(t)
			for _, decision := range f.result.Decisions {
				if decision.Action == Admit && !decision.Gate {
					t.Fatalf("%s is admitted without a gate: %s", decision.Machine, f.draw())
				}
			}
			left := 0
			for _, d := range f.pools {
				have := d.of(d.template, (*node).available)
				if have < d.replicas-max(d.unavailable, 1) {
					t.Fatalf("%s has %d of %d: %s", d.name, have, d.replicas, f.draw())
				}
				if d.made-made[d.name] > marked[d.name] {
					t.Fatalf("%s: %d new ones for %d", d.name, d.made-made[d.name], marked[d.name])
				}
				left += d.of(d.template, func(n *node) bool { return n.needsUpdate != "" })
			}
			if left == 0 && f.settled() {
				judgeSelected(t, f, made, marked, first)
				return
			}
		}
		t.Fatalf("it does not end: %s\n%s\n%v", f.draw(), f.says(), f.lines())
	})
}

// judgeSelected holds the end against what was to be replaced.
func judgeSelected(t *rapid.T, f *fleet, made, marked map[string]int, first map[string]map[string]bool) {
	for _, d := range f.pools {
		if d.made-made[d.name] != marked[d.name] {
			t.Fatalf("%s: %d new ones for %d", d.name, d.made-made[d.name], marked[d.name])
		}
		stayed := d.of(d.template, func(n *node) bool { return first[d.name][n.name] })
		if stayed != len(first[d.name]) {
			t.Fatalf("%s: %d of %d stayed", d.name, stayed, len(first[d.name]))
		}
	}
}

// Where no Machine may be missing nobody is deleted, and the status says what would have to change.
func TestASelectedMachineStaysWhereNoneMayBeMissing(t *testing.T) {
	f := newFleet()
	d := &deployment{name: "blue", template: 1, replicas: 2, surge: 1}
	d.whole(f.now)
	f.pools = append(f.pools, d)
	d.machines[0].needsUpdate = "needs-update on its Node"
	for range 20 {
		if done := f.decide(); len(done) > 0 {
			t.Fatalf("%+v", done)
		}
		f.moves()
	}
	if p := f.result.Progress[0]; p.Reason != Limited || p.Outdated != 1 || p.Done != 1 {
		t.Fatalf("%+v", p)
	}
}
