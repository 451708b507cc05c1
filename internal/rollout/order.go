// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// current are the pools that are rolled out, at most so many, and of a group at most as many as it says (C15): first
// those of which Machines are on their way that are yet to count, then those of which any other one comes up, then
// those that were begun, then by order. One that a person has to let go takes nobody's place. Where the number was
// lowered in the middle the others end what is on its way and begin nothing. One whose topology is about to write it
// keeps its place, and one that gets no Machines takes nobody's, nor does one for which Cluster API has made none for
// too long. They are named in their order.
func current(pools []rules, topology *Topology, most int, now time.Time) []string {
	var moving, coming, begun, next []*rules
	for i := range pools {
		pool := &pools[i]
		pending := !pool.busy() && topology.pending(pool.Name)
		switch {
		case pool.failed != "" || pool.Refused || pool.untouched(now) || pool.overdue != "":
		case pool.unmade() && !topology.pending(pool.Name):
		case pool.suspended != "" || !pool.busy() && !pending || pool.conflict() && pool.in(inFlight) == 0:
		// What is marked has to stay, and nobody waits for that, nor for what finds no host beside it.
		case !pending && pool.stuck() && !slices.ContainsFunc(pool.Machines, func(m Machine) bool {
			return m.stage() == inFlight && !m.findsNone()
		}):
		case slices.ContainsFunc(pool.Machines, func(m Machine) bool { return m.stage() == inFlight && m.Gated }):
			moving = append(moving, pool)
		case pool.in(inFlight) > 0:
			coming = append(coming, pool)
		case pending:
			next = append(next, pool)
		case pool.in(counts) > 0 && !pool.onlySelected() || pool.begun() || pool.selected() != "":
			begun = append(begun, pool)
		default:
			next = append(next, pool)
		}
	}
	first, ofGroup := []string{}, map[int][]string{}
	for _, pool := range slices.Concat(moving, coming, begun, next) {
		switch own := ofGroup[pool.place]; {
		case len(own) == cmp.Or(pool.atOnce, most):
			pool.behind = own
		case len(first) < most:
			first, ofGroup[pool.place] = append(first, pool.Name), append(own, pool.Name)
		}
	}
	var ordered []string
	for i := range pools {
		if slices.Contains(first, pools[i].Name) {
			ordered = append(ordered, pools[i].Name)
		}
	}
	return ordered
}

// overtaken reports whether the last of the pools takes no place only because a write of it was refused, so that those
// after it went past it. Among those before it the refusal gains it none: a Machine that may not be changed is no
// reason to begin one pool more than may be rolled out.
func overtaken(pools []rules, topology *Topology, most int, now time.Time) bool {
	last := len(pools) - 1
	if !pools[last].Refused {
		return false
	}
	permitted := slices.Clone(pools)
	permitted[last].Refused = false
	is := slices.Contains(current(permitted, topology, most, now), pools[last].Name)
	pools[last].behind = permitted[last].behind
	return is
}

// unmade reports whether nothing of the pool goes on, since no Machine of its version is made, or would start. That may
// last until another pool is done, before which a topology gives it no other version, or until a person does.
func (r *rules) unmade() bool {
	return (r.Skewed != "" || r.Unsupported != "") && !slices.ContainsFunc(r.Machines, func(m Machine) bool {
		return m.Hosted && m.stage() == inFlight || m.leavesReplaced() && !m.Leave.PreDrain
	})
}

// settles is how long Cluster API is given to do the next thing after a Machine was made, was Available or was gone.
const settles = time.Minute

// idle is from when Cluster API counts as doing nothing for the pool although it is to do the next thing; zero when it
// is to do nothing, or does it: Machines are to be replaced, and none waits for anything, is on its way or leaves. A
// template that does not exist, a quota and a webhook of somebody else keep it from that.
func (r *rules) idle(now time.Time) (from time.Time) {
	if !r.busy() || r.OnDelete || r.suspended != "" || r.unmade() {
		return time.Time{}
	}
	last := now // it has just begun
	switch r.Said {
	case NoneMade:
		last = r.LastTermination
	case RollingOut:
		last = r.Since
	}
	for _, m := range r.Machines {
		if stage := m.stage(); stage == waits || stage == inFlight || stage == leaves {
			return time.Time{}
		}
		for _, event := range []time.Time{m.Created, m.Since, m.AvailableAt} {
			if event.After(last) {
				last = event
			}
		}
	}
	return last.Add(settles)
}

// saysOfThat is what Cluster API says about making no Machine of the pool.
func (r *rules) saysOfThat() string {
	if r.Blocked != "" {
		return ": " + r.Blocked
	}
	return fmt.Sprintf(", and the conditions of MachineDeployment %s and its MachineSets, and their events, say what "+
		"keeps it from that", r.Name)
}

// overdue has the rollout be stalled where Cluster API makes no Machine of a pool for longer than one may take. Nobody
// waits for such a pool.
func (p *planner) overdue(pool *rules) {
	deadline, from := seconds(p.policy.DeadlineSeconds), pool.idle(p.now)
	if deadline == 0 || pool.Said != NoneMade || from.IsZero() || p.now.Before(from) {
		return
	}
	if late := pool.Since.Add(deadline); p.now.Before(late) {
		p.again(late.Sub(p.now))
		return
	}
	pool.overdue = fmt.Sprintf("MachineDeployment %s: since %s Cluster API is to make or delete a Machine, and does "+
		"not%s. Mend that, take the template before, or suspend its group; other MachineDeployments go on%s", pool.Name,
		utc(pool.Since), pool.saysOfThat(), p.Topology.Withholds(pool.Name))
	if p.result.Stalled == "" {
		p.result.Stalled, p.result.Cause = pool.overdue, DeadlineExceeded
	}
}

// comeFirst says which pools are waited for.
func comeFirst(pools []string) string {
	if len(pools) == 1 {
		return fmt.Sprintf("MachineDeployment %s comes first", pools[0])
	}
	return fmt.Sprintf("MachineDeployments %s come first", strings.Join(pools, " and "))
}
