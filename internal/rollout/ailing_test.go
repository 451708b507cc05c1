// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// A new Machine waits for room, and an outdated one is broken, or leaves and is never gone. Where nothing else makes
// room it is named, and stalls the rollout when that lasts for as long as a Machine may take.
func TestAMachineThatKeepsANewOneFromItsRoomIsNamed(t *testing.T) {
	const (
		broken = "Machine b is of an earlier template and not in service since 2026-11-23T07:00:00Z (ill), and Cluster API " +
			"deletes none meanwhile: repair its host, or kubectl -n team delete machine b, or set the policy's maxSurge to 4"
		leaves = "Machine leaver leaves since 2026-11-23T07:00:00Z and is not gone: see its condition Deleting, or set the " +
			"policy's maxSurge to 4"
	)
	ago := func(minutes int) time.Time { return eight.Add(-time.Duration(minutes) * time.Minute) }
	type given struct {
		state  *State
		pool   *Pool
		policy *quoinv1.RolloutPolicySpec
		b, c   *Machine
	}
	also := func(more ...Machine) func(given) {
		return func(g given) {
			g.pool.Machines = append(g.pool.Machines, more...)
			g.policy.Strategy.MaxSurge = ptr.To(intstr.FromInt32(int32(1 + len(more))))
		}
	}
	leaver := func(minutes int) Machine {
		m := old("leaver", "")
		m.Deleting, m.Deleted, m.Unhealthy = true, ago(minutes), "gone"
		return m
	}
	drains := func(g given) {
		g.policy.Drain = &quoinv1.RolloutDrain{}
		guard(g.pool.Machines)
	}
	for name, c := range map[string]struct {
		change func(given)
		says   string
		late   bool
	}{
		"it is broken for long": {func(given) {}, broken, true},
		"it has its hooks":      {drains, broken, true},
		"it has no Node for long": {func(g given) { g.b.Joined, g.b.Unhealthy = false, "" }, "Machine b is of an earlier " +
			"template and not in service since 2026-11-23T07:00:00Z (it has no Node yet), and Cluster API deletes none " +
			"meanwhile: repair its host, or kubectl -n team delete machine b, or set the policy's maxSurge to 4", true},
		"it may become a Node":                  {func(g given) { g.b.Joined, g.b.Admitted = false, ago(29) }, "", false},
		"it is broken of late":                  {func(g given) { g.b.Since = eight.Add(time.Second - 30*time.Minute) }, brokenSince("07:30:01Z"), false},
		"it is broken just long":                {func(g given) { g.b.Since = ago(30) }, brokenSince("07:30:00Z"), true},
		"another one made room until of late":   {func(g given) { g.pool.Since = ago(29) }, broken, false},
		"another one made room until now":       {func(g given) { g.pool.Said = RollingOut }, broken, false},
		"the policy was paused until of late":   {func(g given) { g.state.Resumed = ago(29) }, broken, false},
		"there is no deadline":                  {func(g given) { g.policy.DeadlineSeconds, g.b.Since = nil, ago(20) }, brokenSince("07:40:00Z"), true},
		"there is no deadline, and it is early": {func(g given) { g.policy.DeadlineSeconds, g.b.Since = nil, ago(19) }, brokenSince("07:41:00Z"), false},
		"nobody knows since when":               {func(g given) { g.b.Since, g.b.Admitted = time.Time{}, ago(60) }, broken, true},
		"no more surge would help": {func(g given) { g.pool.Stock.Surge = 1 }, "Machine b is of an earlier template and not " +
			"in service since 2026-11-23T07:00:00Z (ill), and Cluster API deletes none meanwhile: repair its host, or " +
			"kubectl -n team delete machine b", true},
		"another one is broken for longer": {func(g given) { g.c.Unhealthy, g.c.Since = "worse", ago(90) }, "Machine c is of " +
			"an earlier template and not in service since 2026-11-23T06:30:00Z (worse), and Cluster API deletes none " +
			"meanwhile: repair its host, or kubectl -n team delete machine c, or set the policy's maxSurge to 4", true},
		"another one is broken of late":       {func(g given) { g.c.Unhealthy, g.c.Since = "worse", ago(1) }, broken, true},
		"its own message names it":            {func(g given) { g.b.Gated = true }, "", false},
		"it has no host":                      {func(g given) { g.b.Hosted, g.b.Admitted = false, ago(60) }, "", false},
		"it is well":                          {func(g given) { g.b.Unhealthy, g.b.Available = "", true }, "", false},
		"it is well and not available":        {func(g given) { g.b.Unhealthy = "" }, "", false},
		"one counts and is not available yet": {func(g given) { g.pool.Machines[3].Available = false }, "", false},
		"one is on its way":                   {also(Machine{Name: "flies", Hosted: true, Gated: true}), "", false},
		"one is admitted now": {func(g given) {
			g.pool.Machines = append(g.pool.Machines, Machine{Name: "other"})
			g.policy.Strategy.MaxSurge = ptr.To(intstr.FromInt32(2))
		}, "", false},
		"enough are available":   {also(old("d", "")), "", false},
		"a rollout deletes them": {func(g given) { g.pool.OnDelete = true }, "", false},
		"nothing leaves its host": {func(g given) {
			g.policy.Strategy.DrainAndTerminate = ptr.To(false)
		}, "", false},
		"something else holds the new one": {func(g given) { g.state.Unhealthy = "etcd has no leader" }, "", false},
		"one leaves":                       {also(leaver(29)), "", false},
		"one leaves for ever":              {also(leaver(60)), leaves, true},
		"one is drained": {func(g given) {
			also(leaver(60))(g)
			drains(g)
			g.pool.Machines[5].Leave.PreDrain = false
		}, "", false},
		"one was given up of late": {func(g given) {
			also(leaver(60))(g)
			drains(g)
			g.pool.Machines[5].Leave, g.pool.LastTermination = Leave{}, ago(29)
		}, "", false},
		"one that serves waits for its drain": {func(g given) {
			drains(g)
			g.c.Deleting, g.c.Deleted = true, ago(60)
			g.c.Leave.Node.Known = true
		}, broken, true},
		"one more is available than that": {func(g given) {
			also(old("d", ""))(g)
			drains(g)
			g.c.Deleting, g.c.Deleted = true, ago(60)
			g.c.Leave.Node.Known = true
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := State{Namespace: "team", Pools: []Pool{{Name: "blue", Replicas: 3, Revision: "2", Completed: "1",
				Stock: Limits{Surge: 4}, Said: Surge, Since: ago(120),
				Machines: []Machine{old("a", ""), old("b", ""), old("c", ""), countedOne, {Name: "next"}}}}}
			policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800),
				Strategy: &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(1))}}
			pool := &s.Pools[0]
			b := &pool.Machines[1]
			b.Unhealthy, b.Available, b.Since = "ill", false, ago(60)
			c.change(given{&s, pool, policy, b, &pool.Machines[2]})
			result := Plan(s, policy, eight)
			for _, d := range result.Decisions {
				g.Expect(d.Action).NotTo(Equal(Delete))
				if d.Action == Hold && d.Reason == Surge {
					if c.says == "" {
						g.Expect(d.Message).To(HaveSuffix("one has to leave first"))
					} else {
						g.Expect(d.Message).To(HaveSuffix("one has to leave first. " + c.says))
						g.Expect(result.Progress[0].Message).To(HaveSuffix(c.says))
					}
				}
			}
			g.Expect(result.Progress[0].Left.Waits).To(Equal(c.says != ""))
			if c.late {
				g.Expect(result.Stalled).To(Equal("MachineDeployment blue: " + c.says))
				g.Expect(result.Cause).To(Equal(DeadlineExceeded))
			} else {
				g.Expect(result.Stalled).NotTo(HavePrefix("MachineDeployment"))
			}
		})
	}
}

func brokenSince(at string) string {
	return "Machine b is of an earlier template and not in service since 2026-11-23T" + at + " (ill), and Cluster API " +
		"deletes none meanwhile: repair its host, or kubectl -n team delete machine b, or set the policy's maxSurge to 4"
}

// Nobody expects the end of a rollout that waits for a person.
func TestARolloutThatAwaitsARepairHasNoEnd(t *testing.T) {
	p := Progress{Pool: "blue", Reason: Surge, Pace: Pace{time.Minute}, Left: Left{Machines: 1, AtOnce: 1}}
	_, end := Result{Progress: []Progress{p}}.Expect(eight)
	NewWithT(t).Expect(end).To(Equal(eight.Add(time.Minute)))
	p.Left.Waits = true
	ends, end := Result{Progress: []Progress{p}}.Expect(eight)
	NewWithT(t).Expect(end).To(BeZero())
	NewWithT(t).Expect(ends).To(BeEmpty())
}

// It is looked at again when what keeps a new Machine from its room has had its time.
func TestAMachineThatKeepsANewOneFromItsRoomIsLookedAtAgain(t *testing.T) {
	ago := func(minutes int) time.Time { return eight.Add(-time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		change func(*Machine)
		again  time.Duration
	}{
		"it leaves":             {func(m *Machine) { m.Deleting, m.Deleted = true, ago(29) }, time.Minute},
		"it is broken":          {func(m *Machine) { m.Unhealthy, m.Since = "ill", ago(28) }, 2 * time.Minute},
		"it may become a Node":  {func(m *Machine) { m.Joined, m.Admitted = false, ago(27) }, 3 * time.Minute},
		"it is broken for long": {func(m *Machine) { m.Unhealthy, m.Since = "ill", ago(30) }, 0},
	} {
		b := old("b", "")
		c.change(&b)
		pool := Pool{Name: "blue", Replicas: 2, Revision: "2", Completed: "1", Stock: Limits{Surge: 1}, Said: Surge,
			Since: ago(60), Machines: []Machine{old("a", ""), b, countedOne, {Name: "next"}}}
		policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](1800)}
		NewWithT(t).Expect(Plan(State{Pools: []Pool{pool}}, policy, eight).Again).To(Equal(c.again), name)
	}
}
