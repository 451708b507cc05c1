// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"
)

// late counts the new Machines of a pool that have a host and do not serve for longer than they may take.
func (p *planner) late(pool *rules) int {
	awaited := slices.ContainsFunc(pool.Machines, func(m Machine) bool { return m.stage() == waits && m.Outdated })
	n := 0
	for _, m := range pool.Machines {
		if !awaited || m.stage() != inFlight || !m.Hosted || m.Joined && m.Unhealthy == "" {
			continue
		}
		since, _ := pool.awaited(m)
		if end := since.Add(p.replacementTakes()); p.now.Before(end) {
			p.again(end.Sub(p.now))
			continue
		}
		n++
	}
	return n
}

// awaited is since when a new Machine takes its time, and what was then: since its admission, or since it was made
// where that is not known, or since it was proved last, and anew after a pause, in which nothing becomes of it.
func (p Pool) awaited(m Machine) (since time.Time, was string) {
	since, was = m.Admitted, "was admitted at"
	if since.IsZero() {
		since, was = m.Created, "was made at"
	}
	if lost := p.proof(m).Lost; lost.After(since) {
		since, was = lost, "is not healthy any more since"
	}
	if m.Resumed.After(since) {
		since, was = m.Resumed, "goes on after a pause since"
	}
	return since, was
}

// stillLate reports whether a Machine became healthy when it was late, and has not been so for its whole soak since:
// one that flaps does not cease to be late with each moment in which it is healthy.
func (p *planner) stillLate(pool *rules, m Machine) bool {
	since, _ := pool.awaited(m)
	proof := pool.proof(m)
	return m.Since.After(since.Add(seconds(p.policy.DeadlineSeconds))) && (proof.Since.IsZero() || !proof.Lost.IsZero())
}

// stalls notes a Machine that takes longer than it may (C16).
func (p *planner) stalls(pool *rules, m Machine, why string) {
	deadline := seconds(p.policy.DeadlineSeconds)
	if deadline == 0 {
		return
	}
	since, was := pool.awaited(m)
	if late := since.Add(deadline); p.now.Before(late) {
		p.again(late.Sub(p.now))
		return
	}
	if p.result.Stalled == "" {
		p.result.Cause = DeadlineExceeded
		p.result.Stalled = fmt.Sprintf("Machine %s %s %s and does not count yet: %s", m.Name, was, utc(since), why)
	}
}
