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
// those that have Machines on their way, then those that were begun, then by order. One that a person has to let go
// takes nobody's place. Where the number was lowered in the middle the others end what is on its way and begin nothing.
// One whose topology is about to write it keeps its place, and one that gets no Machines takes nobody's. They are named
// in their order.
func current(pools []rules, topology *Topology, most int, now time.Time) []string {
	var moving, begun, next []*rules
	for i := range pools {
		pool := &pools[i]
		pending := !pool.busy() && topology.pending(pool.Name)
		switch {
		case pool.failed != "" || pool.Refused || pool.untouched(now):
		case pool.unmade() && !topology.pending(pool.Name):
		case pool.suspended != "" || !pool.busy() && !pending || pool.conflict() && pool.in(inFlight) == 0:
		case pool.in(inFlight) > 0:
			moving = append(moving, pool)
		case pending:
			next = append(next, pool)
		case pool.stuck():
		case pool.in(counts) > 0 && !pool.onlySelected() || pool.begun() || pool.selected() != "":
			begun = append(begun, pool)
		default:
			next = append(next, pool)
		}
	}
	first, ofGroup := []string{}, map[int][]string{}
	for _, pool := range slices.Concat(moving, begun, next) {
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

// unmade reports whether nothing of the pool goes on, since no Machine of its version is made, or would start. That may
// last until another pool is done, before which a topology gives it no other version, or until a person does.
func (r *rules) unmade() bool {
	return (r.Skewed != "" || r.Unsupported != "") && !slices.ContainsFunc(r.Machines, func(m Machine) bool {
		return m.Hosted && m.stage() == inFlight || m.leavesReplaced() && !m.Leave.PreDrain
	})
}

// comeFirst says which pools are waited for.
func comeFirst(pools []string) string {
	if len(pools) == 1 {
		return fmt.Sprintf("MachineDeployment %s comes first", pools[0])
	}
	return fmt.Sprintf("MachineDeployments %s come first", strings.Join(pools, " and "))
}
