// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// BenchmarkPlan decides about a pool of which half is new and soaks. Each Machine costs the same.
func BenchmarkPlan(b *testing.B) {
	for _, machines := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) {
			now := newFleet().now
			pool := Pool{Name: "blue", Replicas: machines, Stock: Limits{Surge: machines / 2}, Revision: "2", Completed: "1"}
			for i := range machines {
				m := Machine{Name: fmt.Sprintf("blue-%05d", i), Hosted: true, Joined: true, Admitted: now, Since: now,
					Available: true}
				m.Outdated, m.Gated = i%2 == 0, i%2 == 1
				pool.Machines = append(pool.Machines, m)
			}
			policy := &quoinv1.RolloutPolicySpec{SoakSeconds: ptr.To[int32](60)}
			for b.Loop() {
				Plan(State{Pools: []Pool{pool}}, policy, now.Add(time.Second))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*machines), "ns/machine")
		})
	}
}

// What stops a pool is found once for all its Machines, and is what a look at each of them finds.
func TestWhatStopsAPoolIsFoundOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawn(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.disturb(t)
			f.step(t)
		}
		pools, err := arrange(f.state().Pools, &f.policy)
		if err != nil {
			t.Fatal(err)
		}
		for i := range pools {
			pool, want := &pools[i], ""
			for _, m := range pool.Machines {
				if m.stage() == counts && m.Unhealthy != "" && m.NeedsUpdate == "" && want == "" {
					want = fmt.Sprintf("Machine %s is new and not healthy any more: %s", m.Name, m.Unhealthy)
				}
			}
			if pool.suspended != "" {
				want = pool.suspended
			}
			if _, why := (&planner{}).stops(pool); why != want {
				t.Fatalf("%s: %q instead of %q", f.draw(), why, want)
			}
		}
	})
}
