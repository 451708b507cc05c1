// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// needsUpdate reports whether the Machine is at the present template and is to be replaced all the same. One that is
// outdated is replaced anyway, and one that waits has nothing to replace (S3-3, S3-5).
func (m Machine) needsUpdate() bool {
	return m.NeedsUpdate != "" && (m.stage() == counts || m.stage() == inFlight)
}

// selected is a Machine of the pool that a person selected and that leaves or is gone, while what takes its place does
// not count yet; empty when there is none, or when another template has all of them replaced. The Machine that takes it
// is made when the other is gone, so that nothing of the pool itself tells it from one of a scale-up: as many have to
// count as there were.
func (p Pool) selected() string {
	name, leaver := p.Selected, ""
	for _, m := range p.Machines {
		switch {
		case m.Outdated:
			return ""
		case m.leavesReplaced():
			leaver = m.Name
		}
	}
	if p.whole() {
		name = ""
	}
	return cmp.Or(leaver, name)
}

// leavesReplaced reports whether the Machine leaves because it is replaced: it is outdated, or a person selected it.
func (m Machine) leavesReplaced() bool {
	return m.stage() == leaves && (m.Outdated || m.NeedsUpdate != "") && !m.Leave.Remediated
}

// replaceSelected deletes one Machine that a person selected; its MachineSet makes another one at the same template.
// Cluster API's planner knows no such selection, so that no surge precedes it, and as many are deleted as may be
// missing.
func (p *planner) replaceSelected(pool *rules, progress *Progress) {
	progress.Selected = pool.selected()
	if victim, _, _ := p.nextSelected(pool); victim != nil && !pool.unguarded(victim) {
		progress.Selected = victim.Name
		p.result.Decisions = append(p.result.Decisions, Decision{Pool: pool.Name, Machine: victim.Name, Action: Delete,
			Reason: Selected, Message: victim.NeedsUpdate})
	}
	progress.DoneOf = pool.doneOf(progress.Selected)
}

// nextSelected is the selected Machine that is deleted now; without one it says why, unless none is selected. One
// that is not healthy is the first, or else the oldest.
func (p *planner) nextSelected(pool *rules) (victim *Machine, reason Reason, why string) {
	fresh := 0
	for i := range pool.Machines {
		m := &pool.Machines[i]
		switch {
		case m.needsUpdate() && (victim == nil || m.Unhealthy != "" && victim.Unhealthy == ""):
			victim = m
		case m.stage() == counts && m.NeedsUpdate == "":
			fresh++
		}
	}
	if victim == nil {
		return nil, "", ""
	}
	says := fmt.Sprintf("Machine %s is to be replaced (%s)", victim.Name, victim.NeedsUpdate)
	if pool.hasOutdated() {
		return nil, RollingOut, says + " when the outdated ones are"
	}
	if pool.off() {
		return nil, DrainOff, says + ": " + pool.whileOff()
	}
	missing := pool.mayMiss()
	if missing == 0 {
		return nil, Limited, fmt.Sprintf("%s, and no Machine may be missing meanwhile: %s", says, pool.toMiss())
	}
	// What would hold one more Machine holds this as well, but for the limits, which follow.
	if reason, why := p.holds(pool, &room{}); reason != "" {
		return nil, reason, says + ": " + why
	}
	if fresh == 0 || pool.pause == quoinv1.RolloutPauseEachMachine {
		missing = 1 // none that was replaced shows yet that it works (S3-26), or a person looks at each
	}
	// Nothing is lost with one that is broken: it waits for no other one of its kind, only for what is replaced already.
	have := pool.inService()
	if !victim.inService() {
		have = pool.Replicas - pool.replacing()
	}
	if have-1 < pool.Replicas-missing {
		return nil, RollingOut, fmt.Sprintf("%s: %d of %d Machines are available, and %d may be missing", says,
			pool.inService(), pool.Replicas, missing)
	}
	// One that is broken is what keeps the Cluster from being validated.
	if reason, why := p.validatesFirst(pool, &room{}); reason != "" && victim.inService() {
		return nil, reason, says + ": " + why
	}
	return victim, RollingOut, says
}

// replacing counts the Machines that are missing or on their way, without those that are selected or find no host.
func (p Pool) replacing() int {
	n := p.onTheirWay()
	for _, m := range p.Machines {
		if m.stage() == inFlight && (m.NeedsUpdate != "" || m.findsNone()) {
			n--
		}
	}
	return n
}

// mayMiss is how many Machines of the pool a rollout may delete beforehand.
func (r *rules) mayMiss() int {
	missing := min(r.limits.Unavailable, max(0, r.Replicas-r.least))
	if r.consents && r.least < r.Replicas {
		missing = max(missing, 1)
	}
	return missing
}

// toMiss says what to change where no Machine may be deleted beforehand.
func (r *rules) toMiss() string {
	switch {
	case r.least > 0 && r.least >= r.Replicas:
		return fmt.Sprintf("minAvailable asks for %d of %d: lower it", r.least, r.Replicas)
	case r.OnDelete || r.Stock.Unavailable > 0:
		return "set the policy's maxUnavailable to 1 or more, or spec.whenNoSpare to RemoveFirst"
	}
	return fmt.Sprintf("set %s to 1 or more, or spec.whenNoSpare to RemoveFirst", r.maxUnavailableOf())
}

// onlySelected reports whether nothing of the pool is to be replaced but what a person selected.
func (r *rules) onlySelected() bool {
	return r.Completed == r.Revision && !r.hasOutdated()
}

// stuck reports whether what a person selected is all that is to be replaced, and none of it may be missing: it waits
// for somebody to change that, and nothing waits for it.
func (r *rules) stuck() bool { return r.onlySelected() && r.selected() == "" && r.mayMiss() == 0 }
