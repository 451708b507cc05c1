// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// A new Machine waits for room, and an outdated one is broken. It goes where nothing else makes room, when it was not
// available for as long as a Machine may take.
func TestAnOutdatedMachineThatIsBrokenMakesRoom(t *testing.T) {
	const (
		deletes = "it is of an earlier template and not available since 2026-11-23T07:00:00Z (ill): a new one has its place"
		full    = "4 Machines for 3 replicas, and 1 more may be: one has to leave first"
		waits   = full + ". Machine b is of an earlier template and not available since "
	)
	serves, broken, next := old("a", ""), old("b", ""), Machine{Name: "next"}
	broken.Unhealthy, broken.Available, broken.UnavailableSince = "ill", false, eight.Add(-time.Hour)
	goes := func(name string, change func(*Machine)) func(*Pool, *quoinv1.RolloutPolicySpec) {
		return func(pool *Pool, _ *quoinv1.RolloutPolicySpec) {
			for i := range pool.Machines {
				if m := &pool.Machines[i]; m.Name == name {
					change(m)
				}
			}
		}
	}
	also := func(more ...Machine) func(*Pool, *quoinv1.RolloutPolicySpec) {
		return func(pool *Pool, policy *quoinv1.RolloutPolicySpec) {
			pool.Machines = append(pool.Machines, more...)
			policy.Strategy.MaxSurge = ptr.To(intstr.FromInt32(int32(1 + len(more))))
		}
	}
	leaver := old("leaver", "")
	leaver.Deleting, leaver.Leave.PreDrain = true, true
	drained, illLeaver := leaver, leaver
	drained.Leave.PreDrain, illLeaver.Unhealthy = false, "ill"
	more := func(surge int) string {
		return fmt.Sprintf("%d Machines for 3 replicas, and %d more may be: one has to leave first", 3+surge, surge)
	}
	drains := func(pool *Pool, policy *quoinv1.RolloutPolicySpec) {
		policy.Drain = &quoinv1.RolloutDrain{}
		guard(pool.Machines)
	}
	for name, c := range map[string]struct {
		change func(*Pool, *quoinv1.RolloutPolicySpec)
		// deleted is the message of b's deletion, empty where it stays; held is that of the new one.
		deleted, held string
	}{
		"it is broken for long": {func(*Pool, *quoinv1.RolloutPolicySpec) {}, deletes, full},
		"it has no Node": {goes("b", func(m *Machine) { m.Joined, m.Unhealthy = false, "" }),
			"it is of an earlier template and not available since 2026-11-23T07:00:00Z (it has no Node yet): a new one has " +
				"its place", full},
		"it has its hooks": {drains, deletes, full},
		"it has no hooks yet": {func(_ *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.Drain = &quoinv1.RolloutDrain{}
		}, "", full},
		"it may be mended": {goes("b", func(m *Machine) {
			m.UnavailableSince = eight.Add(time.Second - 30*time.Minute)
		}), "", waits + "2026-11-23T07:30:01Z (ill): it is deleted at 2026-11-23T08:00:01Z unless it is well"},
		"it was admitted late": {goes("b", func(m *Machine) { m.Admitted = eight.Add(-10 * time.Minute) }), "",
			waits + "2026-11-23T07:50:00Z (ill): it is deleted at 2026-11-23T08:20:00Z unless it is well"},
		"there is no deadline": {func(pool *Pool, policy *quoinv1.RolloutPolicySpec) {
			policy.DeadlineSeconds = nil
			goes("b", func(m *Machine) { m.UnavailableSince = eight.Add(-15 * time.Minute) })(pool, policy)
		}, "", waits + "2026-11-23T07:45:00Z (ill): it is deleted at 2026-11-23T08:05:00Z unless it is well"},
		"nobody knows since when": {goes("b", func(m *Machine) { m.UnavailableSince = time.Time{} }), "", full},
		"it waits for something else": {goes("b", func(m *Machine) {
			m.Gated, m.Unhealthy, m.Since = true, "", eight
		}), "", full},
		"it has no host": {goes("b", func(m *Machine) {
			m.Hosted, m.Admitted = false, eight.Add(-time.Hour)
		}), "", full},
		"it is well": {goes("b", func(m *Machine) {
			m.Unhealthy, m.Available = "", true
		}), "", full},
		"one counts and is not available yet":       {goes("counted", func(m *Machine) { m.Available = false }), "", full},
		"one is on its way":                         {also(Machine{Name: "flies", Hosted: true, Gated: true}), "", more(2)},
		"one is drained":                            {also(drained), "", more(2)},
		"one that serves waits for its drain":       {also(leaver), deletes, more(2)},
		"one that is broken waits for its drain":    {also(illLeaver), "", more(2)},
		"one more is available beside what leaves":  {also(leaver, old("d", "")), deletes, more(3)},
		"two more are available beside what leaves": {also(leaver, old("d", ""), old("e", "")), "", more(4)},
		"enough are available":                      {also(old("d", "")), "", more(2)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Completed: "1", Stock: Limits{Surge: 4},
				Machines: []Machine{serves, broken, old("c", ""), countedOne, next}}
			policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800),
				Strategy: &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(1))}}
			c.change(&pool, policy)
			deleted, held := "", ""
			for _, d := range Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions {
				switch {
				case d.Action == Delete:
					g.Expect(d.Machine).To(Equal("b"))
					g.Expect(d.Reason).To(Equal(Outdated))
					deleted = d.Message
				case d.Machine == "next":
					g.Expect(d.Reason).To(Equal(Surge))
					held = d.Message
				}
			}
			g.Expect(deleted).To(Equal(c.deleted))
			g.Expect(held).To(Equal(c.held))
		})
	}
}

// Of several that are broken the one goes first that is so for longest.
func TestWhatIsBrokenForLongestMakesRoom(t *testing.T) {
	g := NewWithT(t)
	pool := Pool{Name: "blue", Replicas: 3, Revision: "2", Completed: "1", Stock: Limits{Surge: 3},
		Machines: []Machine{old("a", ""), old("b", ""), old("c", ""), countedOne, {Name: "next"}}}
	for i, hours := range []int{1, 2, 0} {
		if m := &pool.Machines[i]; hours > 0 {
			m.Unhealthy, m.Available, m.UnavailableSince = "ill", false, eight.Add(-time.Duration(hours)*time.Hour)
		}
	}
	policy := &quoinv1.RolloutPolicySpec{Strategy: &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(1))}}
	decided := Plan(State{Pools: []Pool{pool}}, policy, eight).Decisions
	last := decided[len(decided)-1]
	g.Expect(last.Action).To(Equal(Delete))
	g.Expect(last.Machine).To(Equal("b"))
}
