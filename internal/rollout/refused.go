// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"time"
)

// Undone corrects a plan of which one decision was not written, so that nothing is remembered of what did not happen,
// and says so of its pool where the write was refused. Until it is permitted the decision comes again, and the pool
// takes no other one's place (K-6).
func (r *Result) Undone(pool Pool, d Decision, refused string) {
	for i := range r.Progress {
		if p := &r.Progress[i]; p.Pool == d.Pool {
			p.Pace, p.Proofs, p.Selected, p.DoneOf = pool.Pace, pool.Proofs, pool.Selected, pool.DoneOf
		}
	}
	if refused != "" {
		r.Refuse(d, refused)
	}
}

// Counted corrects a plan of whose pool something else was undone: what was measured of a Machine that counts all the
// same is remembered.
func (r *Result) Counted(d Decision) {
	for i := range r.Progress {
		if p := &r.Progress[i]; p.Pool == d.Pool {
			p.Pace = p.Pace.and(d.Pace)
		}
	}
}

// Postpone corrects a plan of which an admission waits until the Cluster's API server answers.
func (r *Result) Postpone(pool Pool, d Decision, why string, again time.Duration) {
	r.Undone(pool, d, "")
	for i := range r.Progress {
		if p := &r.Progress[i]; p.Pool == d.Pool {
			p.Held++
			p.Reason, p.Message = NodeUnknown, fmt.Sprintf("Machine %s: %s", d.Machine, why)
		}
	}
	if r.Again == 0 || again < r.Again {
		r.Again = again
	}
}

// Refuse says of its pool that the write of a decision is refused.
func (r *Result) Refuse(d Decision, refused string) {
	for i := range r.Progress {
		p := &r.Progress[i]
		if p.Pool != d.Pool {
			continue
		}
		p.Reason, p.Message = Refused, d.refusal(r.topology.Withholds(d.Pool), refused)
		r.Stall(p.Message)
	}
}

// Stall says of the policy that a write is refused, after what stalls it already. No pool waits for that alone.
func (r *Result) Stall(refusal string) {
	if r.Stalled == "" {
		r.Stalled, r.Cause = refusal, Refused
	}
}

// Refusal says that the write of a decision is refused, and why. What was to be a Machine has no pool.
func (d Decision) Refusal(why string) string { return d.refusal("", why) }

func (d Decision) refusal(withholds, why string) string {
	of := ""
	if d.Pool != "" {
		of = " of MachineDeployment " + d.Pool
	}
	return fmt.Sprintf("Machine %s%s: %s is refused and tried again; other MachineDeployments go on%s. Permit it: %s",
		d.Machine, of, d.Action, withholds, why)
}
