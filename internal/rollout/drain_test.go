// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// decided is what is decided about the deletion of a Machine, and when it is to be decided anew.
func decided(s State, policy *quoinv1.RolloutPolicySpec, now time.Time, machine string) string {
	result := Plan(s, policy, now)
	for _, d := range result.Leaves {
		if d.Machine != machine {
			continue
		}
		message, _, _ := strings.Cut(d.Message, ". To let it go")
		if d.Action == Terminate && result.Progress[0].LastTermination.Equal(now) {
			message += "; it is the last one"
		}
		return strings.TrimSuffix(fmt.Sprintf("%s (%s): %s; %s", d.Action, d.Reason, message, result.Again), "; 0s")
	}
	return ""
}

// What becomes of a Machine whose Node is drained, by the time since its drain began.
func TestHowAMachineIsDrained(t *testing.T) {
	const again, given = "; 20s", "The host is taken away with pods on it: db-0. StatefulSets make theirs anew, and " +
		"volumes are attached elsewhere, when its Node is deleted"
	const timeout = 15 * time.Minute
	proceed := func(_ *Machine, d *quoinv1.RolloutDrain) { d.OnTimeout = quoinv1.RolloutDrainProceed }
	force := func(_ *Machine, d *quoinv1.RolloutDrain) { d.OnTimeout = quoinv1.RolloutDrainForce }
	listed := func(ends ...time.Duration) func(*Machine, *quoinv1.RolloutDrain) {
		return func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Node.Listed = true
			for i, after := range ends {
				pod := Pod{Name: fmt.Sprintf("db-%d", i)}
				if after > 0 {
					pod.Ends = eight.Add(after)
				}
				m.Leave.Node.Pods = append(m.Leave.Node.Pods, pod)
			}
		}
	}
	passed := func(m *Machine, _ *quoinv1.RolloutDrain) { m.Leave.Passed = eight.Add(time.Minute) }
	volumes := func(emptied time.Duration) func(*Machine, *quoinv1.RolloutDrain) {
		return func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Node.Volumes, m.Leave.Node.Emptied = []string{"data"}, eight.Add(emptied)
		}
	}
	unreachable := func(since time.Duration) func(*Machine, *quoinv1.RolloutDrain) {
		return func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Node.Unreachable, m.Leave.Node.UnreachableSince = true, eight.Add(since)
		}
	}
	paused := func(until time.Duration) func(*Machine, *quoinv1.RolloutDrain) {
		return func(m *Machine, _ *quoinv1.RolloutDrain) { m.Resumed = eight.Add(until) }
	}
	all := func(changes ...func(*Machine, *quoinv1.RolloutDrain)) func(*Machine, *quoinv1.RolloutDrain) {
		return func(m *Machine, d *quoinv1.RolloutDrain) {
			for _, change := range changes {
				change(m, d)
			}
		}
	}
	const late = "Machine a of MachineDeployment blue: its Node n has been draining since 2026-11-23T08:00:00Z, " +
		"longer than 15m0s, and stays cordoned; other MachineDeployments go on. End the pods, loosen what protects them, set " +
		"drain.onTimeout to Proceed or Force, or "
	// A hook for its termination is read only after Cluster API's own drain.
	const failed = late + "take the annotation " + quoinv1.RolloutPreTerminateHookAnnotation + " off the Machine to lose them. "
	const hangs = late + "give the Machine the annotations machine.cluster.x-k8s.io/exclude-node-draining and " +
		"machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach to lose them. "
	for name, c := range map[string]struct {
		after  time.Duration
		change func(*Machine, *quoinv1.RolloutDrain)
		want   string
	}{
		"it waits for Cluster API": {time.Minute, all(), "Draining (Evicting): Cluster API does not say what it waits for; 14m0s"},
		"pods remain":              {time.Minute, listed(0), "Draining (Evicting): Pods remain: db-0; 14m0s"},
		"it is said what it waits for": {time.Minute, all(listed(0), func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Says = "db-0 is protected"
		}), "Draining (Evicting): db-0 is protected; 14m0s"},
		"it did not begin": {0, func(m *Machine, _ *quoinv1.RolloutDrain) { m.Leave.Began = time.Time{} }, ""},
		"it has no Node": {0, func(m *Machine, _ *quoinv1.RolloutDrain) { m.Joined = false },
			"Terminate (NoNode): it has no Node"},
		"its Node is gone": {0, func(m *Machine, _ *quoinv1.RolloutDrain) { m.Leave.Node.Gone = true },
			"Terminate (NoNode): it has no Node"},
		"nobody drains it": {0, func(m *Machine, _ *quoinv1.RolloutDrain) { m.Leave.Excluded = true },
			"Terminate (NotDrained): it has the annotation machine.cluster.x-k8s.io/exclude-node-draining; it is the last one"},
		"it is the last second": {timeout - time.Second, all(),
			"Draining (Evicting): Cluster API does not say what it waits for; 1s"},
		"the time is over": {timeout, all(),
			"HoldTermination (DrainFailed): " + hangs + "Cluster API does not say what it waits for"},
		"its kubelet is away": {5 * time.Minute, unreachable(0),
			"SkipDrain (DrainTimeout): the kubelet of its Node does not answer; 10m0s"},
		"its kubelet may come back": {5*time.Minute - time.Second, unreachable(0),
			"Draining (Evicting): Cluster API does not say what it waits for; 1s"},
		"its kubelet went away during the drain": {5 * time.Minute, unreachable(4 * time.Minute),
			"Draining (Evicting): Cluster API does not say what it waits for; 4m0s"},
		"the time is over, and its kubelet is away": {timeout, unreachable(timeout - 5*time.Minute),
			"SkipDrain (DrainTimeout): the kubelet of its Node does not answer"},
		"the time is over, and its kubelet may come back": {timeout, unreachable(timeout - time.Minute),
			"Draining (Evicting): Cluster API does not say what it waits for; 4m0s"},
		"who proceeds has more time": {timeout, proceed, "Draining (Evicting): Cluster API does not say what it waits for; 5m0s"},
		"and proceeds then": {20 * time.Minute, proceed, "SkipDrain (DrainTimeout): its Node was not drained within 20m0s, and " +
			"onTimeout is Proceed. Cluster API does not say what it waits for"},
		"who forces it has to know the pods": {timeout, force, "HoldTermination (Evicting): pods that were deleted end, and " +
			"volumes are detached: Cluster API does not say what it waits for" + again},
		"who forces it deletes them": {timeout, all(force, listed(0, timeout)), "DeletePods (DrainTimeout): its Node was not " +
			"drained within 15m0s, and onTimeout is Force: deletes db-0 (nobody makes it anew), db-1 (nobody makes it anew)" +
			again},
		"they were deleted": {timeout, all(force, listed(timeout)), "HoldTermination (Evicting): pods that were deleted end, " +
			"and volumes are detached: Pods remain: db-0" + again},
		"volumes remain": {timeout, all(force, listed()), "HoldTermination (Evicting): pods that were deleted end, and " +
			"volumes are detached: Cluster API does not say what it waits for" + again},
		"it is forced for five minutes": {20*time.Minute - time.Second, all(force, listed(timeout)),
			"HoldTermination (Evicting): pods that were deleted end, and volumes are detached: Pods remain: db-0; 1s"},
		"and is given up": {20 * time.Minute, all(force, listed(timeout)),
			"SkipDrain (DrainTimeout): pods or volumes remain after pods were deleted. " + given},
		"pods have a minute more than they may take": {20 * time.Minute, all(force, listed(19*time.Minute+time.Second)),
			"HoldTermination (Evicting): pods that were deleted end, and volumes are detached: Pods remain: db-0; 1s"},

		"it is drained": {time.Minute, all(passed, listed()),
			"HoldTermination (PostDrainDelay): its Node is drained; it is terminated at 2026-11-23T08:01:05Z; 5s"},
		"and was for a while": {time.Minute + 5*time.Second, all(passed, listed()),
			"Terminate (Drained): its Node is drained; it is the last one; 13m55s"},
		"it began with that": {time.Minute, all(passed, listed(0), func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Began = time.Time{}
		}), "Evict (Evicting): Pods remain: db-0" + again},
		"its last pods ended later": {2 * time.Minute, all(passed, listed(), func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Node.Emptied = eight.Add(2 * time.Minute)
		}), "HoldTermination (PostDrainDelay): its Node is drained; it is terminated at 2026-11-23T08:02:05Z; 5s"},
		"its volumes are attached": {2 * time.Minute, all(passed, listed(), volumes(2*time.Minute)),
			"HoldTermination (Evicting): volumes are attached to its Node: data; it is terminated at 2026-11-23T08:07:00Z all " +
				"the same" + again},
		"they still are": {7*time.Minute - time.Second, all(passed, listed(), volumes(2*time.Minute)),
			"HoldTermination (Evicting): volumes are attached to its Node: data; it is terminated at 2026-11-23T08:07:00Z all " +
				"the same; 1s"},
		"and are for ever": {7 * time.Minute, all(passed, listed(), volumes(2*time.Minute)),
			"Terminate (Drained): its Node is drained; it is the last one; 8m0s"},
		"nobody waits for them": {2*time.Minute + 5*time.Second, all(passed, listed(), volumes(2*time.Minute),
			func(m *Machine, _ *quoinv1.RolloutDrain) { m.Leave.VolumesExcluded = true }),
			"Terminate (Drained): its Node is drained; it is the last one; 12m55s"},
		"Cluster API waited for them": {2 * time.Minute, all(passed, listed(), volumes(0),
			func(m *Machine, _ *quoinv1.RolloutDrain) { m.Leave.Node.Emptied = time.Time{} }),
			"Terminate (Drained): its Node is drained; it is the last one; 13m0s"},
		"it has pods that Cluster API left": {2 * time.Minute, all(passed, listed(0)),
			"Evict (Evicting): Pods remain: db-0" + again},
		"whoever proceeds":   {2 * time.Minute, all(passed, listed(0), proceed), "Evict (Evicting): Pods remain: db-0" + again},
		"or forces it":       {2 * time.Minute, all(passed, listed(0), force), "Evict (Evicting): Pods remain: db-0" + again},
		"for too long":       {timeout, all(passed, listed(0)), "Evict (DrainFailed): " + failed + "Pods remain: db-0" + again},
		"they are lost then": {20 * time.Minute, all(passed, listed(0), proceed), "Terminate (DrainTimeout): " + given + "; it is the last one"},
		"or deleted": {timeout, all(passed, listed(0), force), "DeletePods (DrainTimeout): its Node was not drained within " +
			"15m0s, and onTimeout is Force: deletes db-0 (nobody makes it anew)" + again},
		"and lost when they do not end": {20 * time.Minute, all(passed, listed(timeout), force),
			"Terminate (DrainTimeout): " + given + "; it is the last one"},
		"its kubelet went away": {7 * time.Minute, all(passed, listed(0), unreachable(2*time.Minute)),
			"Terminate (DrainTimeout): the kubelet of its Node does not answer; it is the last one; 8m0s"},
		"its kubelet went away a moment ago": {2 * time.Minute, all(passed, listed(0), unreachable(2*time.Minute)),
			"Evict (Evicting): Pods remain: db-0" + again},
		"its pods are not known": {2 * time.Minute, passed,
			"HoldTermination (NodeUnknown): its pods cannot be read, and are asked for again: the Cluster does not answer" + again},
		"its pods are not known, and somebody says why": {2 * time.Minute, all(passed, func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Says = "x509"
		}), "HoldTermination (NodeUnknown): its pods cannot be read, and are asked for again: x509" + again},
		"nor whether they may be lost": {timeout, passed, "HoldTermination (NodeUnknown): its pods cannot be read, and are asked for again: the Cluster " +
			"does not answer" + again},
		"who proceeds waits for them": {2 * time.Minute, all(passed, proceed),
			"HoldTermination (NodeUnknown): its pods cannot be read, and are asked for again: the Cluster does not answer" + again},
		"and not for ever": {20 * time.Minute, all(passed, proceed), "Terminate (DrainTimeout): its pods cannot be read, and the " +
			"time for its drain is over; it is the last one"},
		"its Cluster was paused": {timeout, paused(10 * time.Minute),
			"Draining (Evicting): Cluster API does not say what it waits for; 10m0s"},
		"and goes on for long": {25 * time.Minute, paused(10 * time.Minute),
			"HoldTermination (DrainFailed): " + hangs + "Cluster API does not say what it waits for"},
		"its Cluster was paused before": {timeout, paused(-time.Minute),
			"HoldTermination (DrainFailed): " + hangs + "Cluster API does not say what it waits for"},
		"it did not begin before a pause": {timeout, all(paused(0), func(m *Machine, _ *quoinv1.RolloutDrain) {
			m.Leave.Began = time.Time{}
		}), ""},
		"who proceeds waits for a pause": {20 * time.Minute, all(proceed, paused(10*time.Minute)),
			"Draining (Evicting): Cluster API does not say what it waits for; 10m0s"},
		"who forces it does": {timeout, all(force, listed(0), paused(10*time.Minute)),
			"Draining (Evicting): Pods remain: db-0; 10m0s"},
		"and gives it up later": {30*time.Minute - time.Second, all(force, listed(timeout), paused(10*time.Minute)),
			"HoldTermination (Evicting): pods that were deleted end, and volumes are detached: Pods remain: db-0; 1s"},
		"Cluster API gave it up in a pause": {20 * time.Minute, all(passed, listed(0), proceed, paused(10*time.Minute)),
			"Evict (Evicting): Pods remain: db-0" + again},
	} {
		t.Run(name, func(t *testing.T) {
			m := serving("a")
			m.Deleting, m.Leave.PreDrain, m.Leave.Began, m.Leave.NodeName = true, false, eight, "n"
			drain := &quoinv1.RolloutDrain{}
			c.change(&m, drain)
			s := State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Machines: []Machine{m}}}}
			NewWithT(t).Expect(decided(s, &quoinv1.RolloutPolicySpec{Drain: drain}, eight.Add(c.after), "a")).To(Equal(c.want))
		})
	}
}

// A drain fails where Cluster API or Quoin still waits for one that is over its time, and nowhere else.
func TestWhichDrainsFail(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rules, *Machine)
		fails  bool
	}{
		"it takes too long":        {func(*rules, *Machine) {}, true},
		"it has another second":    {func(_ *rules, m *Machine) { m.Leave.Began = eight.Add(time.Second) }, false},
		"it was paused":            {func(_ *rules, m *Machine) { m.Resumed = eight.Add(time.Second) }, false},
		"it did not begin":         {func(_ *rules, m *Machine) { m.Leave.Began = time.Time{} }, false},
		"the Machine stays":        {func(_ *rules, m *Machine) { m.Deleting = false }, false},
		"the Machine is not ours":  {func(_ *rules, m *Machine) { m.Leave.PreTerminate = false }, false},
		"it waits for its drain":   {func(_ *rules, m *Machine) { m.Leave.PreDrain = true }, false},
		"it is remediated":         {func(_ *rules, m *Machine) { m.Leave.Remediated = true }, false},
		"it has no Node":           {func(_ *rules, m *Machine) { m.Joined = false }, false},
		"its kubelet is away":      {func(_ *rules, m *Machine) { m.Leave.Node.Unreachable = true }, false},
		"the policy does not fail": {func(r *rules, _ *Machine) { r.drain.onTimeout = quoinv1.RolloutDrainProceed }, false},
		"nobody drains":            {func(r *rules, _ *Machine) { r.drain = nil }, false},
		"Cluster API gave it up":   {func(_ *rules, m *Machine) { m.Leave.Passed = eight }, true},
		"its pods are known":       {func(_ *rules, m *Machine) { m.Leave.Node.Listed = true }, true},
		"and have ended": {func(_ *rules, m *Machine) { m.Leave.Passed, m.Leave.Node.Listed = eight, true },
			false},
		"or have not": {func(_ *rules, m *Machine) {
			m.Leave.Passed, m.Leave.Node.Listed, m.Leave.Node.Pods = eight, true, []Pod{{}}
		}, true},
		"its kubelet may come back": {func(_ *rules, m *Machine) {
			m.Leave.Node.Unreachable, m.Leave.Node.UnreachableSince = true, eight.Add(10*time.Minute+time.Second)
		}, false},
	} {
		m := serving("a")
		m.Deleting, m.Leave.PreDrain, m.Leave.Began = true, false, eight
		r := &rules{drain: drainOf(&quoinv1.RolloutDrain{}, nil)}
		c.change(r, &m)
		r.Machines = []Machine{m}
		NewWithT(t).Expect(r.drainFailure(nil, eight.Add(15*time.Minute)) != "").To(Equal(c.fails), name)
	}
}

// Pods are read of what waits for Quoin to end them, and of nothing else.
func TestWhosePodsAreRead(t *testing.T) {
	g := NewWithT(t)
	for name, c := range map[string]struct {
		change func(*Machine, *quoinv1.RolloutPolicySpec)
		reads  bool
	}{
		"Cluster API passed":     {func(*Machine, *quoinv1.RolloutPolicySpec) {}, true},
		"nobody asks for it":     {func(_ *Machine, p *quoinv1.RolloutPolicySpec) { p.Drain = nil }, false},
		"the Machine stays":      {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Deleting = false }, false},
		"it waits for its drain": {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Leave.PreDrain = true }, false},
		"it is let go":           {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Leave.PreTerminate = false }, false},
		"it has no Node":         {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Joined = false }, false},
		"nobody drains it":       {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Leave.Excluded = true }, false},
		"its Node is gone":       {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Leave.Node.Gone = true }, false},
		"Cluster API is at it":   {func(m *Machine, _ *quoinv1.RolloutPolicySpec) { m.Leave.Passed = time.Time{} }, false},
		"for too long": {func(m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Leave.Passed, p.Drain.OnTimeout = time.Time{}, quoinv1.RolloutDrainForce
		}, true},
		"for nearly too long": {func(m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Leave.Passed, p.Drain.OnTimeout = time.Time{}, quoinv1.RolloutDrainForce
			m.Leave.Began = eight.Add(time.Second)
		}, false},
		"for too long with a pause": {func(m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Leave.Passed, p.Drain.OnTimeout = time.Time{}, quoinv1.RolloutDrainForce
			m.Resumed = eight.Add(time.Second)
		}, false},
		"it did not begin": {func(m *Machine, p *quoinv1.RolloutPolicySpec) {
			m.Leave.Passed, m.Leave.Began, p.Drain.OnTimeout = time.Time{}, time.Time{}, quoinv1.RolloutDrainForce
		}, false},
		"the policy cannot be read": {func(_ *Machine, p *quoinv1.RolloutPolicySpec) {
			p.Strategy = ptr.To(strategy("x", ""))
		}, false},
	} {
		m := serving("a")
		m.Deleting, m.Leave.PreDrain, m.Leave.Began, m.Leave.Passed = true, false, eight, eight.Add(time.Minute)
		policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
		c.change(&m, policy)
		s := State{Pools: []Pool{{Name: "blue", Machines: []Machine{m}}}}
		g.Expect(NeedsPods(s, policy, eight.Add(15*time.Minute)) != nil).To(Equal(c.reads), name)
	}
}

// A Cluster that cannot be reached has all its Machines be neither well nor ill, which lets none of them wait for the
// others to serve: one is drained, and the next when that is gone.
func TestOneIsDrainedAtATimeWhileNoNodeCanBeRead(t *testing.T) {
	g := NewWithT(t)
	s := State{Pools: []Pool{{Name: "blue", Replicas: 5, Revision: "1", Completed: "1", Stock: Limits{Unavailable: 1}}}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		m := serving(name)
		m.Unhealthy, m.Leave.Node, m.Leave.Held = "NodeHealthy is Unknown (ConnectionDown)", Node{}, eight.Add(-time.Minute)
		m.Deleting = name < "d"
		s.Pools[0].Machines = append(s.Pools[0].Machines, m)
	}
	drained := func() (names []string) {
		for _, d := range Plan(s, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, eight).Leaves {
			if d.Action == Drain {
				names = append(names, d.Machine)
			}
		}
		return names
	}
	g.Expect(drained()).To(Equal([]string{"a"}))
	s.Pools[0].Machines[0].Leave.PreDrain = false
	g.Expect(drained()).To(BeEmpty())
	s.Pools[0].Machines = s.Pools[0].Machines[1:]
	g.Expect(drained()).To(Equal([]string{"b"}))
}

// What the drain of a Machine waits for that is deleted with its hooks on.
func TestWhatADrainWaitsFor(t *testing.T) {
	type given struct {
		*State
		pool   *Pool
		m, new *Machine
		policy *quoinv1.RolloutPolicySpec
	}
	const drains, few = "Drain (DrainStarted): its Node is cordoned, taken out of load balancers and drained", "HoldDrain (MaxUnavailable): "
	closes := func(g given) {
		g.policy.Windows = []quoinv1.RolloutWindow{{Start: "20:00", DurationMinutes: ptr.To[int32](60)}}
	}
	short := func(g given) {
		g.policy.Windows = []quoinv1.RolloutWindow{{Start: "07:00", DurationMinutes: ptr.To[int32](65)}}
		g.pool.Replicas, g.pool.Stock.Unavailable, g.pool.Pace = 3, 1, Pace{10 * time.Minute}
	}
	blind := func(g given) {
		g.policy.Validation, g.pool.Replicas, g.pool.Stock.Unavailable = &quoinv1.RolloutValidation{}, 3, 2
		for i := range g.pool.Machines {
			g.pool.Machines[i].Outdated, g.pool.Machines[i].Leave.Node.Marked = true, true
		}
	}
	away := func(g given) { g.new.Leave.Node.Unreachable = true }
	flies := func(g given) { g.new.Gated, g.new.Unhealthy = true, "ill" }
	for name, c := range map[string]struct {
		change func(given)
		want   string
	}{
		"others serve":     {func(given) {}, drains},
		"it has no Node":   {func(g given) { g.m.Joined = false }, "Drain (NoNode): it has no Node"},
		"its Node is gone": {func(g given) { g.m.Leave.Node.Gone = true }, "Drain (NoNode): it has no Node"},
		"its kubelet is away": {func(g given) {
			g.m.Leave.Node.Unreachable, g.m.Leave.Node.UnreachableSince = true, eight.Add(-5*time.Minute)
		}, "Drain (NoNode): the kubelet of its Node does not answer"},
		"its kubelet may come back": {func(g given) {
			closes(g)
			g.m.Leave.Node.Unreachable, g.m.Leave.Node.UnreachableSince = true, eight
		}, "HoldDrain (WindowClosed): no window is open; the next one opens Mon 2026-11-23 20:00 UTC; 5m0s"},
		"its Node is not known": {func(g given) { g.m.Leave.Node.Known, g.m.Leave.Held = false, eight },
			"HoldDrain (NodeUnknown): its Node cannot be read; it is drained at 2026-11-23T08:01:00Z all the same; 20s"},
		"its Node is not known for nearly a minute": {func(g given) {
			g.m.Leave.Node.Known, g.m.Leave.Held = false, eight.Add(time.Second-time.Minute)
		}, "HoldDrain (NodeUnknown): its Node cannot be read; it is drained at 2026-11-23T08:00:01Z all the same; 1s"},
		"its Node is not known for a minute": {func(g given) {
			g.m.Leave.Node.Known, g.m.Leave.Held = false, eight.Add(-time.Minute)
		}, drains},
		"its Node is not known, and another one is drained": {func(g given) {
			g.m.Leave.Node.Known, g.new.Deleting, g.new.Leave.PreDrain = false, true, false
		}, "HoldDrain (NodeUnknown): its Node cannot be read, and one at a time is drained while that is so: Machine c is"},
		"its Node is not known, and another one gives up its host": {func(g given) {
			g.m.Leave.Node.Known, g.new.Deleting, g.new.Leave.PreDrain, g.new.Joined = false, true, false, false
			g.pool.Replicas = 1
		}, drains},
		"its Node is not known, and another one waits as well": {func(g given) {
			g.m.Leave.Node.Known, g.new.Deleting = false, true
		}, drains},
		"its Node is not known, and another one is remediated": {func(g given) {
			g.m.Leave.Node.Known, g.new.Deleting, g.new.Leave = false, true, Leave{Remediated: true}
			g.pool.Replicas = 1
		}, drains},
		"its Node is not known, and one of another pool is drained": {func(g given) {
			leaves, stays := serving("amber-1"), serving("amber-2")
			g.m.Leave.Node.Known, leaves.Deleting, leaves.Outdated, stays.Outdated = false, true, false, false
			g.Pools = append(g.Pools, Pool{Name: "amber", Replicas: 1, Stock: Limits{Surge: 1},
				Machines: []Machine{leaves, stays}})
		}, drains},
		"nobody drains yet": {func(g given) { g.m.Leave.Node.Known = false }, drains},
		"nothing is drained": {func(g given) {
			g.policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		}, "HoldDrain (DrainAndTerminateFalse): " + madeAgain},
		"nothing is drained but what a person deletes": {func(g given) {
			g.policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
			g.pool.OnDelete = true
		}, drains},
		"its pool is left alone": {func(g given) { g.pool.Paused = true },
			"HoldDrain (Suspended): the MachineDeployment is paused: resume it"},
		"the control plane is ill": {func(g given) { g.Unhealthy = "etcd" },
			"HoldDrain (ControlPlane): workers wait until the control plane is healthy: etcd; 1m0s"},
		"the control plane comes first": {func(g given) { g.Outdated = "its version" },
			"HoldDrain (ControlPlane): workers come after the control plane, when that is replaced: its version; 1m0s"},
		"the control plane waits for its host": {func(g given) { g.Outdated, g.m.Wanted = "its version", true }, drains},
		"another pool comes first": {func(g given) {
			g.Pools = append(g.Pools, Pool{Name: "amber", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1},
				Machines: []Machine{serving("amber-1"), {Name: "amber-2", Admitted: eight, Hosted: true, Gated: true}}})
		}, "HoldDrain (WaitingForPrevious): MachineDeployment amber comes first"},
		"no window is open": {closes, "HoldDrain (WindowClosed): no window is open; the next one opens Mon 2026-11-23 20:00 UTC; 12h0m0s"},
		"no window is open, and a rollout deleted it before": {func(g given) {
			closes(g)
			g.m.Condemned = true
		}, drains + "; 12h0m0s"},
		"the window closes too soon for what takes its place": {short, "HoldDrain (WillNotFit): a Machine takes 10m0s here " +
			"with its soak, and the window closes Mon 2026-11-23 08:05 UTC; the next one opens Tue 2026-11-24 07:00 UTC; 5m0s"},
		"the window closes soon, and another one has its place": {func(g given) {
			short(g)
			g.pool.Replicas = 2
		}, drains + "; 5m0s"},
		"the window closes soon, and it does not serve": {func(g given) {
			short(g)
			g.m.Unhealthy = "ill"
		}, drains + "; 5m0s"},
		"the window closes soon, and a rollout deleted it before": {func(g given) {
			short(g)
			g.m.Condemned = true
		}, drains + "; 5m0s"},
		"limits leave no room": {func(g given) { g.policy.Strategy = ptr.To(strategy("0", "0")) },
			"HoldDrain (LimitsConflict): the policy allows no surge, and MachineDeployment blue lets no Machine be missing: " +
				"set maxUnavailable of MachineDeployment blue to 1 or more, or the policy's maxSurge"},
		"limits leave no room, and a rollout deleted it before": {func(g given) {
			g.policy.Strategy = ptr.To(strategy("0", "0"))
			g.m.Condemned = true
		}, drains},
		"one was terminated just now": {func(g given) { g.pool.LastTermination = eight.Add(-time.Second) },
			"HoldDrain (Interval): the last one was terminated at 2026-11-23T07:59:59Z; 14s"},
		"one was terminated a while ago": {func(g given) { g.pool.LastTermination = eight.Add(-15 * time.Second) }, drains},
		"one is terminated now": {func(g given) {
			g.new.Deleting, g.new.Leave.PreDrain, g.new.Leave.Excluded, g.pool.Replicas = true, false, true, 1
		}, "HoldDrain (Interval): the last one was terminated at 2026-11-23T08:00:00Z; 15s"},
		"another one is away, and none comes": {away, drains},
		"another one is away, and one comes": {func(g given) {
			away(g)
			g.pool.Stock.Surge = 2
		}, few + "2 of at least 2 serve; Machine c does not: it does not count yet"},
		"another one is on its way": {flies, few + "2 of at least 2 serve; Machine c does not: ill"},
		"one may be missing": {func(g given) {
			away(g)
			g.pool.Stock = Limits{Surge: 2, Unavailable: 1}
		}, drains},
		"one has to be missing": {func(g given) {
			away(g)
			g.pool.Stock.Surge = 2
			g.policy.Strategy = ptr.To(strategy("0", "0"))
			g.m.Condemned, g.pool.Stock.Unavailable = false, 1
		}, drains},
		"a rollout deleted it before": {func(g given) {
			away(g)
			g.pool.Stock.Surge, g.m.Condemned = 2, true
		}, drains},
		"it does not serve itself": {func(g given) {
			away(g)
			g.pool.Stock.Surge, g.m.Unhealthy = 2, "ill"
		}, drains},
		"the control plane waits for its host while another one is away": {func(g given) {
			away(g)
			g.pool.Stock.Surge, g.m.Wanted = 2, true
		}, drains},
		"a person deleted it while one comes": {func(g given) {
			flies(g)
			g.m.Deleted, g.pool.OnDelete, g.policy.DeadlineSeconds = eight.Add(-time.Minute), true, ptr.To[int32](90)
			g.policy.Strategy = ptr.To(quoinv1.RolloutStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(1))})
			g.pool.Replicas = 3
		}, few + "2 of at least 2 serve; Machine c does not: ill, and more are waited for until " +
			"2026-11-23T08:00:30Z; 30s"},
		"a person deleted it long ago": {func(g given) {
			flies(g)
			g.m.Deleted, g.pool.OnDelete, g.policy.DeadlineSeconds = eight.Add(-time.Minute), true, ptr.To[int32](60)
			g.pool.Replicas = 3
		}, drains},
		"one of another failure domain is drained": {func(g given) {
			g.policy.Strategy, g.pool.Replicas = &quoinv1.RolloutStrategy{}, 1
			g.policy.Strategy.Waves = quoinv1.RolloutWavesFailureDomain
			g.new.Deleting, g.new.Leave.PreDrain, g.new.Domain = true, false, "x"
		}, "HoldDrain (WaitingForWave): failure domain x is replaced, and Machine c of it has to be gone before " +
			"another one begins"},
		"the Cluster does not validate": {func(g given) {
			g.policy.Validation = &quoinv1.RolloutValidation{}
			g.Validation = &quoinv1.RolloutValidationStatus{MachineDeployment: "blue",
				Digest: validationDigest(g.policy), Since: metav1.NewTime(eight.Add(-15 * time.Minute))}
		}, "HoldDrain (ValidationFailed): MachineDeployment blue was not validated within 15m0s: looks that found nothing " +
			"were too few. Mend that, or take the template before, or suspend its group; a successThreshold of 0 goes on " +
			"without validation"},
		"nobody looked": {blind,
			"HoldDrain (Validating): the Cluster is validated: 0 of 1 looks in a row found nothing"},
		"nobody looked, and it is one too many": {func(g given) {
			blind(g)
			g.pool.Replicas = 2
		}, drains},
		"nobody looked, and another one is on its way": {func(g given) {
			blind(g)
			flies(g)
			g.new.Outdated = false
		}, few + "2 of at least 2 serve while nothing is at the present template; Machine c does not: ill"},
		"nobody looked, and the control plane waits for its host": {func(g given) {
			blind(g)
			g.m.Wanted = true
		}, drains},
		"a Node is to be tainted first": {func(g given) {
			g.new.Outdated, g.new.Leave.Node = true, Node{Known: true}
		}, "HoldDrain (Tainting): the Node of Machine c is to be tainted first"},
	} {
		t.Run(name, func(t *testing.T) {
			m := serving("a")
			m.Deleting = true
			s := State{Pools: []Pool{{Name: "blue", Replicas: 2, Revision: "2", Stock: Limits{Surge: 1},
				Machines: []Machine{m, serving("b"), serving("c")}}}}
			pool := &s.Pools[0]
			for i := range pool.Machines[1:] {
				pool.Machines[i+1].Outdated, pool.Machines[i+1].Leave.Node.Marked = false, false
			}
			policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
			c.change(given{&s, pool, &pool.Machines[0], &pool.Machines[2], policy})
			NewWithT(t).Expect(decided(s, policy, eight, "a")).To(Equal(c.want))
		})
	}
}

// A Node is waited for from when Cluster API came to the hook, or passed by it.
func TestHowLongANodeIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		leave  Leave
		waited bool
	}{
		"Cluster API did not come": {Leave{}, false},
		"it came just now":         {Leave{Held: eight.Add(time.Second - time.Minute)}, false},
		"it came a minute ago":     {Leave{Held: eight.Add(-time.Minute)}, true},
		"it passed a minute ago":   {Leave{Passed: eight.Add(-time.Minute)}, true},
		"it came after that":       {Leave{Held: eight, Passed: eight.Add(-time.Minute)}, false},
	} {
		NewWithT(t).Expect(c.leave.Waited(time.Time{}, eight)).To(Equal(c.waited), name)
	}
}

// Another Machine comes where one that is begun or may be made will serve, and not where each waits for a host.
func TestWhetherAnotherMachineComes(t *testing.T) {
	waits, flies := Machine{Name: "waits"}, Machine{Name: "flies", Hosted: true, Gated: true}
	hostless, leaver := Machine{Name: "hostless", Admitted: eight, NoHost: "none is free"}, serving("leaver")
	leaver.Deleting = true
	drained := leaver
	drained.Leave.PreDrain = false
	former := Machine{Name: "former", Outdated: true}
	for name, c := range map[string]struct {
		machines []Machine
		surge    int
		comes    bool
	}{
		"none does":                     {[]Machine{leaver, serving("a")}, 0, false},
		"there is room for one":         {[]Machine{leaver, serving("a")}, 1, true},
		"one waits":                     {[]Machine{leaver, waits}, 0, true},
		"an outdated one waits":         {[]Machine{leaver, former}, 0, false},
		"one is on its way":             {[]Machine{leaver, flies}, 0, true},
		"one finds no host":             {[]Machine{leaver, hostless}, 1, false},
		"one waits behind that":         {[]Machine{leaver, hostless, waits}, 0, false},
		"one is on its way beside that": {[]Machine{leaver, hostless, flies}, 0, true},
		"one leaves its host":           {[]Machine{leaver, drained}, 0, true},
		"what finds no host is deleted": {[]Machine{leaver, {Deleting: true, NoHost: "none", Leave: leaver.Leave}}, 1, true},
	} {
		r := &rules{Pool: Pool{Replicas: 2, Machines: c.machines}}
		NewWithT(t).Expect(r.coming(c.surge)).To(Equal(c.comes), name)
	}
}

// Whether a Machine serves, and whether its Node is to be tainted.
func TestWhoServesAndWhoIsTainted(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(*Machine)
		serves, taints bool
	}{
		"it is to be replaced":   {func(*Machine) {}, true, true},
		"it has no Node":         {func(m *Machine) { m.Joined = false }, false, false},
		"it does not count":      {func(m *Machine) { m.Gated = true }, false, true},
		"it is ill":              {func(m *Machine) { m.Unhealthy = "ill" }, false, true},
		"its kubelet is away":    {func(m *Machine) { m.Leave.Node.Unreachable = true }, false, true},
		"it waits for its drain": {func(m *Machine) { m.Deleting = true }, true, false},
		"it is drained":          {func(m *Machine) { m.Deleting, m.Leave.PreDrain = true, false }, false, false},
		"it stays":               {func(m *Machine) { m.Outdated = false }, true, false},
		"it was selected":        {func(m *Machine) { m.Outdated, m.NeedsUpdate = false, "marked" }, true, true},
		"it is remediated":       {func(m *Machine) { m.Leave.Remediated = true }, true, false},
		"its Node is not known":  {func(m *Machine) { m.Leave.Node.Known = false }, true, false},
		"its Node is gone":       {func(m *Machine) { m.Leave.Node.Gone = true }, true, false},
		"it is tainted":          {func(m *Machine) { m.Leave.Node.Marked = true }, true, false},
		"it is cordoned":         {func(m *Machine) { m.Leave.Node.Unschedulable = true }, true, false},
	} {
		m := serving("a")
		m.Leave.Node.Marked = false
		c.change(&m)
		NewWithT(t).Expect([]bool{m.serves(), m.unmarked()}).To(Equal([]bool{c.serves, c.taints}), name)
	}
}

// What is decided about a Machine that stays, or that is not ours to hold.
func TestWhatIsDoneToAMachineThatStays(t *testing.T) {
	const guards, taints = "Guard (ScheduledForUpdate): its deletion waits for the policy",
		"Taint (ScheduledForUpdate): its Machine is to be replaced"
	for name, c := range map[string]struct {
		change func(*State, *Machine)
		want   string
	}{
		"it is to be replaced":  {func(*State, *Machine) {}, taints},
		"it has no host":        {func(_ *State, m *Machine) { m.Hosted, m.Joined, m.Leave.PreDrain = false, false, false }, ""},
		"it has but one hook":   {func(_ *State, m *Machine) { m.Leave.PreDrain = false }, guards},
		"it has the other hook": {func(_ *State, m *Machine) { m.Leave.PreTerminate = false }, guards},
		"it is tainted":         {func(_ *State, m *Machine) { m.Leave.Node.Marked = true }, ""},
		"it is up to date":      {func(_ *State, m *Machine) { m.Outdated = false }, ""},
		"it is up to date and tainted": {func(_ *State, m *Machine) { m.Outdated, m.Leave.Node.Marked = false, true },
			"Untaint (NotScheduledForUpdate): its Machine is not to be replaced any more"},
		"it is selected and tainted": {func(_ *State, m *Machine) {
			m.Outdated, m.NeedsUpdate, m.Leave.Node.Marked = false, "marked", true
		}, ""},
		"its pool is left alone":        {func(s *State, _ *Machine) { s.Pools[0].Paused = true }, ""},
		"the control plane comes first": {func(s *State, _ *Machine) { s.Outdated = "its version" }, ""},
		"another pool comes first": {func(s *State, _ *Machine) {
			s.Pools = append(s.Pools, Pool{Name: "amber", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1},
				Machines: []Machine{serving("amber-1")}})
		}, ""},
		"another one leaves": {func(s *State, _ *Machine) {
			leaver := serving("b")
			leaver.Deleting = true
			s.Pools[0].Machines = append(s.Pools[0].Machines, leaver)
			s.Pools = append(s.Pools, Pool{Name: "amber", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1}, Said: NoneMade,
				Machines: []Machine{serving("amber-1")}})
		}, taints},
		"it is remediated": {func(_ *State, m *Machine) { m.Leave.Remediated = true },
			"Unguard (Remediated): what is remediated is not held"},
		"it is remediated and has one hook": {func(_ *State, m *Machine) { m.Leave.Remediated, m.Leave.PreDrain = true, false },
			"Unguard (Remediated): what is remediated is not held"},
		"it is remediated and has no hook": {func(_ *State, m *Machine) { m.Leave = Leave{Remediated: true} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := serving("a")
			m.Leave.Node.Marked = false
			s := State{Pools: []Pool{{Name: "blue", Replicas: 1, Revision: "2", Stock: Limits{Surge: 1}, Said: NoneMade}}}
			c.change(&s, &m)
			s.Pools[0].Machines = append([]Machine{m}, s.Pools[0].Machines...)
			NewWithT(t).Expect(decided(s, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, eight, "a")).
				To(Equal(c.want))
		})
	}
}

// What a pool that replaces nothing waits for is said, and what is lost or made anew.
func TestWhatIsSaidOfDrains(t *testing.T) {
	g := NewWithT(t)
	m := serving("a")
	m.Deleting, m.Outdated, m.Leave.PreDrain, m.Leave.Began = true, false, false, eight
	s := State{Pools: []Pool{{Name: "blue", Revision: "2", Completed: "2", Machines: []Machine{m}}}}
	progress := Plan(s, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, eight).Progress[0]
	g.Expect(progress.Reason).To(Equal(RollingOut))
	g.Expect(progress.Message).To(Equal("Machine a: Cluster API does not say what it waits for"))
	g.Expect(some([]string{"a", "b", "c", "d", "e"})).To(Equal("a, b, c, d, e"))
	g.Expect(some([]string{"a", "b", "c", "d", "e", "f"})).To(Equal("a, b, c, d, e, and 1 more"))
	g.Expect(lost(nil)).To(Equal("The host is taken away; volumes are attached elsewhere when its Node is deleted"))
	g.Expect(forced([]Pod{{Name: "a", Owner: "ReplicaSet web"}, {Name: "b", Volumes: 1}})).To(Equal("deletes a (ReplicaSet " +
		"web makes it anew elsewhere), b (nobody makes it anew, and its volumes follow when they are detached)"))
}

// Machines in flight are proved that were all healthy for long enough.
func TestWhatIsProvedByTime(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Machine)
		proved bool
	}{
		"it soaked":            {func(*Machine) {}, true},
		"it has no Node":       {func(m *Machine) { m.Joined = false }, false},
		"it is ill":            {func(m *Machine) { m.Unhealthy = "ill" }, false},
		"it soaks":             {func(m *Machine) { m.Since = eight.Add(time.Second - time.Minute) }, false},
		"it counts, and soaks": {func(m *Machine) { m.Gated, m.Since = false, eight }, true},
	} {
		m := Machine{Hosted: true, Joined: true, Gated: true, Since: eight.Add(-time.Minute)}
		c.change(&m)
		r := &rules{Pool: Pool{Machines: []Machine{m}}, soak: time.Minute}
		NewWithT(t).Expect(r.proved(eight)).To(Equal(c.proved), name)
	}
}

// Whether one that serves waits for its drain, since too few would serve meanwhile.
func TestWhetherTooFewServe(t *testing.T) {
	type given struct {
		l    *leaver
		pool *rules
		m    *Machine
	}
	ill := func(i int) func(given) { return func(g given) { g.pool.Machines[i].Unhealthy = "ill" } }
	counted := func(i int) func(given) { return func(g given) { g.pool.Machines[i].Outdated = false } }
	missing := func(most int) func(given) { return func(g given) { g.pool.limits.Unavailable = most } }
	alone := func(g given) { g.pool.Stock.Surge = 0 }
	person := func(ago time.Duration) func(given) {
		return func(g given) { g.m.Outdated, g.m.Deleted = false, eight.Add(-ago) }
	}
	flies := func(g given) {
		g.pool.Machines = append(g.pool.Machines, Machine{Name: "d", Hosted: true, Gated: true})
	}
	for name, c := range map[string]struct {
		changes []func(given)
		want    string
	}{
		"one may be made":        {nil, "3 of at least 3 serve"},
		"none comes":             {[]func(given){alone}, ""},
		"another one goes first": {[]func(given){alone, func(g given) { g.l.opened = true }}, "3 of at least 3 serve"},
		"one may be missing":     {[]func(given){missing(1)}, ""},
		"one has to be missing":  {[]func(given){func(g given) { g.pool.limits.Surge = 0 }}, ""},
		"one is missing":         {[]func(given){missing(1), ill(2)}, "2 of at least 2 serve; Machine c does not: ill"},
		"two may be, and nothing counts": {[]func(given){missing(2), ill(2)},
			"2 of at least 2 serve while nothing is at the present template; Machine c does not: ill"},
		"two may be, and one counts": {[]func(given){missing(2), counted(1), ill(2)}, ""},
		"two may be, and each is looked at": {[]func(given){missing(2), counted(1), ill(2), func(g given) {
			g.pool.pause = quoinv1.RolloutPauseEachMachine
		}}, "2 of at least 2 serve, because pauseAfter is EachMachine; Machine c does not: ill"},
		"a person deleted it": {[]func(given){person(time.Minute)}, ""},
		"a person deleted it, and one is to be made": {[]func(given){person(time.Minute), func(g given) {
			g.pool.Machines = g.pool.Machines[:2]
		}}, "2 of at least 3 serve, and more are waited for until 2026-11-23T08:00:30Z"},
		"a person deleted it, and one comes": {[]func(given){person(time.Minute), flies}, "3 of at least 3 serve; Machine " +
			"d does not: it does not count yet, and more are waited for until 2026-11-23T08:00:30Z"},
		"a person deleted it long ago": {[]func(given){person(90 * time.Second), flies}, ""},
		"a rollout deletes them":       {[]func(given){func(g given) { g.pool.OnDelete = true }}, ""},
		"it is written down":           {[]func(given){func(g given) { g.m.Condemned = true }}, ""},
		"it does not serve":            {[]func(given){func(g given) { g.m.Unhealthy = "ill" }}, ""},
		"what waits or leaves is not missed": {[]func(given){missing(1), ill(2), func(g given) {
			left := serving("left")
			left.Deleting, left.Leave.PreDrain = true, false
			g.pool.Machines = append([]Machine{{Name: "waits"}, left}, g.pool.Machines...)
		}}, "2 of at least 2 serve; Machine c does not: ill"},
	} {
		g := NewWithT(t)
		pool := &rules{Pool: Pool{Name: "blue", Replicas: 3, Stock: Limits{Surge: 1},
			Machines: []Machine{serving("a"), serving("b"), serving("c")}}, limits: Limits{Surge: 1}}
		pool.Machines[0].Deleting = true
		policy := &quoinv1.RolloutPolicySpec{DeadlineSeconds: ptr.To[int32](90)}
		l := &leaver{planner: &planner{policy: policy, now: eight}, pool: pool}
		m := pool.Machines[0]
		for _, change := range c.changes {
			change(given{l, pool, &m})
		}
		l.serving = pool.serving()
		reason, why := l.tooFewServe(m)
		g.Expect(why).To(Equal(c.want), name)
		g.Expect(reason == Unavailable).To(Equal(c.want != ""), name)
	}
}

// One whose place is taken by another one that is made now counts as drained: what was deleted beside it waits.
func TestADrainWaitsForWhatIsReplacedFirst(t *testing.T) {
	g := NewWithT(t)
	person := func(name string) Machine {
		m := serving(name)
		m.Outdated, m.Deleting, m.Deleted, m.Leave.Node.Marked = false, true, eight, false
		return m
	}
	stays := person("c")
	stays.Deleting = false
	s := State{Pools: []Pool{{Name: "blue", Replicas: 3, Revision: "2", Completed: "2", Stock: Limits{Surge: 1},
		Room: Room{Hosts: 1, Replicas: 3}, Machines: []Machine{person("a"), person("b"), stays}}}}
	policy := &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}
	g.Expect(decided(s, policy, eight, "a")).To(HavePrefix("Replace (ReplacementFirst): another Machine is made"))
	g.Expect(decided(s, policy, eight, "b")).To(HavePrefix("HoldDrain (MaxUnavailable): 3 of at least 3 serve"))
	s.Pools[0].Room.Hosts = 0
	for _, name := range []string{"a", "b"} {
		g.Expect(decided(s, policy, eight, name)).To(HavePrefix(map[string]string{"a": "Drain (DrainStarted): its Node is",
			"b": "HoldDrain (MaxUnavailable): 2 of at least 3 serve"}[name]))
	}
}

// What a pool waits for whose Machines leave: what stays first, and what goes on by itself is no reason of its own.
func TestWhatLeavingMachinesWaitFor(t *testing.T) {
	leaves := func(action Action, reason Reason) Decision {
		return Decision{Pool: "blue", Machine: "a", Action: action, Reason: reason, Message: string(action)}
	}
	other := leaves(HoldTermination, DrainFailed)
	other.Pool = "green"
	all := []Decision{leaves(Draining, NodeUnknown), leaves(DeletePods, NodeUnknown), leaves(Evict, NodeUnknown),
		leaves(HoldDrain, NodeUnknown), leaves(HoldTermination, NodeUnknown)}
	for _, c := range []struct {
		leaves []Decision
		reason Reason
		says   Action
	}{
		{nil, "", ""},
		{[]Decision{other, leaves(Terminate, Drained), leaves(Drain, DrainStarted)}, "", ""},
		{all, NodeUnknown, HoldTermination},
		{all[:4], NodeUnknown, HoldDrain},
		{all[:3], NodeUnknown, Evict},
		{all[:2], NodeUnknown, DeletePods},
		{all[:1], NodeUnknown, Draining},
		{[]Decision{other, leaves(Draining, Evicting)}, RollingOut, Draining},
		{[]Decision{leaves(HoldTermination, DrainDelay)}, RollingOut, HoldTermination},
		{[]Decision{leaves(HoldDrain, Interval)}, RollingOut, HoldDrain},
		{[]Decision{leaves(HoldDrain, Tainting)}, RollingOut, HoldDrain},
		{[]Decision{leaves(DeletePods, DrainGivenUp)}, RollingOut, DeletePods},
		{[]Decision{leaves(HoldTermination, DrainFailed)}, DrainFailed, HoldTermination},
	} {
		p := &planner{result: Result{Leaves: c.leaves}}
		reason, why := p.leaving(&rules{Pool: Pool{Name: "blue"}})
		want := ""
		if c.says != "" {
			want = "Machine a: " + string(c.says)
		}
		NewWithT(t).Expect([]string{string(reason), why}).To(Equal([]string{string(c.reason), want}), "%+v", c)
	}
}

// The first drain that failed is said of the policy, and the others of their pools.
func TestWhichFailedDrainIsSaid(t *testing.T) {
	g := NewWithT(t)
	var s State
	for _, name := range []string{"amber", "blue", "cyan"} {
		m := serving(name + "-1")
		m.Deleting, m.Leave.PreDrain, m.Leave.Began = true, name == "amber", eight.Add(-time.Hour)
		s.Pools = append(s.Pools, Pool{Name: name, Replicas: 1, Revision: "2", Stock: Limits{Surge: 1},
			Machines: []Machine{m}})
	}
	result := Plan(s, &quoinv1.RolloutPolicySpec{Drain: &quoinv1.RolloutDrain{}}, eight)
	g.Expect(result.DrainFailed).To(HavePrefix("Machine blue-1 of MachineDeployment blue: "))
	var reasons []Reason
	for _, progress := range result.Progress {
		reasons = append(reasons, progress.Reason)
	}
	g.Expect(reasons).To(Equal([]Reason{Unavailable, DrainFailed, DrainFailed}), "another one of amber's comes")
}

// Hooks are put on before a rollout deletes a Machine that has or may have a host, where the policy says how it leaves.
func TestWhoseHooksAreMissing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rules, *Machine)
		lacks  bool
	}{
		"it has both":                {func(*rules, *Machine) {}, false},
		"it has none":                {func(_ *rules, m *Machine) { m.Leave = Leave{} }, true},
		"it has that of its drain":   {func(_ *rules, m *Machine) { m.Leave.PreTerminate = false }, true},
		"it has that of its end":     {func(_ *rules, m *Machine) { m.Leave.PreDrain = false }, true},
		"it is remediated":           {func(_ *rules, m *Machine) { m.Leave = Leave{Remediated: true} }, false},
		"it waits for its admission": {func(_ *rules, m *Machine) { m.Hosted, m.Leave = false, Leave{} }, false},
		"the policy does not say":    {func(r *rules, m *Machine) { r.drain, m.Leave = nil, Leave{} }, false},
	} {
		r, m := &rules{drain: &drainRules{}}, serving("a")
		c.change(r, &m)
		NewWithT(t).Expect(r.unguarded(&m)).To(Equal(c.lacks), name)
	}
}

// Nodes are tainted where Machines of the pool are being replaced, or would be but for a strategy that drains nothing.
func TestWhetherAPoolReplaces(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*leaver)
		replaces bool
	}{
		"another pool is rolled out":    {func(*leaver) {}, false},
		"it is rolled out":              {func(l *leaver) { l.current = []string{"amber", "blue"} }, true},
		"one leaves":                    {func(l *leaver) { l.pool.Machines[0].Deleting = true }, true},
		"nothing is drained":            {func(l *leaver) { l.pool.drain.off = true }, true},
		"it is suspended":               {func(l *leaver) { l.pool.drain.off, l.pool.suspended = true, "suspended" }, false},
		"the control plane comes first": {func(l *leaver) { l.pool.drain.off, l.Outdated = true, "its version" }, false},
	} {
		l := &leaver{planner: &planner{current: []string{"amber"}}, pool: &rules{drain: &drainRules{},
			Pool: Pool{Name: "blue", Machines: []Machine{serving("a")}}}}
		c.change(l)
		NewWithT(t).Expect(l.replaces()).To(Equal(c.replaces), name)
	}
}

// Where nothing is drained or terminated a rollout ends by hand as its message says, or by what that says alone.
//
// Proves: S3-36
func TestWhatEndsARolloutThatDrainsNothing(t *testing.T) {
	const byHand = "drain and delete Machines yourself"
	for name, c := range map[string]struct {
		begin func(*deployment)
		hand  bool
	}{
		"Cluster API deletes nothing": {func(d *deployment) {
			d.onDelete, d.surge = true, 0
			d.template++
		}, true},
		"a person marked them": {func(d *deployment) {
			for _, n := range d.machines {
				n.needsUpdate = "marked"
			}
		}, true},
		"Cluster API deletes one for each new one": {func(d *deployment) { d.template++ }, false},
	} {
		g, f := NewWithT(t), newFleet()
		d := &deployment{name: "blue", template: 1, replicas: 2, surge: 1}
		d.whole(f.now)
		f.pools = []*deployment{d}
		f.policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
		c.begin(d)
		for _, machine := range []string{"blue-1", "blue-2"} {
			f.tell(10 * time.Minute)
			g.Expect(strings.Contains(f.says(), byHand)).To(Equal(c.hand), "%s: %s", name, f.says())
			g.Expect(f.says()).To(ContainSubstring("drainAndTerminate false: take that off it"), name)
			if c.hand {
				d.node(machine).deleted = f.now
			}
		}
		if !c.hand {
			f.policy.Strategy = nil
		}
		f.tell(time.Hour)
		g.Expect(d.settled()).To(BeTrue(), "%s: %s\n%s", name, f.draw(), f.says())
		g.Expect(f.result.Progress[0].Reason).To(Equal(UpToDate), name)
	}
}
