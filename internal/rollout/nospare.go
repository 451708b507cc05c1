// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// spareRecheck is how often hosts are looked at again while a Machine finds none: they are not watched for that.
const spareRecheck = time.Minute

// removeFirst deletes one outdated Machine where a new one finds no host, when the policy consents to that.
//
// Gates only hold Machines back, so they never free a host, and Cluster API deletes nothing before the new Machine is
// Available where maxUnavailable is 0. The MachineSet of the deleted Machine makes another outdated one when that is
// gone. It stays behind its start gate, since the new Machine took the place, and Cluster API's planner removes it
// when the new Machine is Available (reconcileDeadlockBreaker in machinedeployment_rollout_rollingupdate.go).
func (p *planner) removeFirst(pool *rules) {
	// One that a rollout deletes itself left a host already.
	if pool.OnDelete || !pool.consents || !slices.ContainsFunc(pool.Machines, Machine.findsNone) {
		return
	}
	if victim, _, _ := p.leavesFirst(pool); victim != nil && !pool.unguarded(victim) {
		p.result.Decisions = append(p.result.Decisions, Decision{Pool: pool.Name, Machine: victim.Name, Action: Delete,
			Reason: NoSpare, Message: "no host is free, and whenNoSpare is RemoveFirst: one Machine is missing until a new " +
				"one counts"})
	}
}

// makeWay deletes an outdated Machine that finds no host where it keeps a new one from being admitted. It was to take
// the place of one that is gone, and is one too many since replicas were lowered. Cluster API may take none then:
// scaleDownOldMSs expects that a MachineSet takes one that serves, and reconcileDeadlockBreaker waits for the new one
// (machinedeployment_rollout_rollingupdate.go). Nothing is lost with it, so nobody has to consent.
func (p *planner) makeWay(pool *rules) {
	full := func(d Decision) bool { return d.Pool == pool.Name && d.Action == Hold && d.Reason == Surge }
	if pool.OnDelete || pool.off() || !slices.ContainsFunc(p.result.Decisions, full) {
		return
	}
	// What validates first holds the new one as well, and the MachineSet makes the old one anew meanwhile.
	if reason, _ := p.validatesFirst(pool, &room{inFlight: pool.in(inFlight)}); reason != "" {
		return
	}
	// One that leaves already makes way.
	if slices.ContainsFunc(pool.Machines, func(m Machine) bool { return m.stage() == leaves && !m.Hosted }) {
		return
	}
	for _, m := range pool.old() {
		if m.stage() == outdated && !m.Hosted && m.NoHost != "" && !pool.unguarded(m) {
			p.result.Decisions = append(p.result.Decisions, Decision{Pool: pool.Name, Machine: m.Name, Action: Delete,
				Reason: Outdated, Message: "it is of an earlier template and finds no host: a new one has its place"})
			return
		}
	}
	p.discard(pool, full)
}

// discard deletes an outdated Machine that is broken where nothing but its end lets a new one be admitted: the policy
// has less surge than the MachineDeployment. Cluster API takes none while that new one is not available
// (reconcileDeadlockBreaker in machinedeployment_rollout_rollingupdate.go), and remediates none that is outdated
// (reconcileUnhealthyMachines in machineset_controller.go). It may be mended for as long as a Machine may take.
// What leaves makes room, but for one that serves until what waits for that room does.
func (p *planner) discard(pool *rules, full func(Decision) bool) {
	goesOn := func(m Machine) bool {
		s := m.stage()
		return s == inFlight || s == leaves && (!m.Leave.PreDrain || !m.serves()) ||
			s == counts && m.Unhealthy == "" && !m.inService()
	}
	// Cluster API takes one more for what is available beside those that it deletes already.
	if slices.ContainsFunc(pool.Machines, goesOn) || pool.frees(pool.Replicas+pool.in(leaves)) {
		return
	}
	broken := slices.DeleteFunc(pool.old(), func(m *Machine) bool {
		return m.stage() != outdated || !m.Hosted || m.Joined && m.Unhealthy == "" || m.UnavailableSince.IsZero()
	})
	if len(broken) == 0 {
		return
	}
	since := func(m *Machine) time.Time {
		if since, _ := pool.awaited(*m); since.After(m.UnavailableSince) {
			return since
		}
		return m.UnavailableSince
	}
	first := slices.MinFunc(broken, func(a, b *Machine) int { return since(a).Compare(since(b)) })
	says := fmt.Sprintf("is of an earlier template and not available since %s (%s)", utc(since(first)),
		cmp.Or(first.Unhealthy, noNode))
	if end := since(first).Add(p.replacementTakes()); p.now.Before(end) {
		p.again(end.Sub(p.now))
		for i := range p.result.Decisions {
			if d := &p.result.Decisions[i]; full(*d) {
				d.Message += fmt.Sprintf(". Machine %s %s: it is deleted at %s unless it is well", first.Name, says, utc(end))
			}
		}
		return
	}
	if !pool.unguarded(first) {
		p.result.Decisions = append(p.result.Decisions, Decision{Pool: pool.Name, Machine: first.Name, Action: Delete,
			Reason: Outdated, Message: "it " + says + ": a new one has its place"})
	}
}

// RemovesFirst reports whether the policy consents to a missing Machine of the pool where a new one finds no host. The
// error says why it cannot be read.
func RemovesFirst(policy *quoinv1.RolloutPolicySpec, pool Pool) (bool, error) {
	arranged, err := arrange([]Pool{pool}, policy)
	if err != nil || len(arranged) == 0 {
		return false, err
	}
	of := &arranged[0]
	return of.consents && !of.off() && of.least < of.Replicas, nil
}

// noSpare says what a new Machine that finds no host waits for.
func (p *planner) noSpare(pool *rules, m Machine) (Reason, string) {
	why := ""
	if !pool.OnDelete && pool.consents {
		p.again(spareRecheck)
		victim, comes, not := p.leavesFirst(pool)
		switch {
		case victim != nil:
			return Provisioning, fmt.Sprintf("%s. Machine %s is deleted first, as whenNoSpare says", m.NoHost, victim.Name)
		case comes != "":
			return Provisioning, fmt.Sprintf("%s. %s", m.NoHost, comes)
		}
		why = "whenNoSpare is RemoveFirst, but " + not
	}
	if why == "" || !pool.hasOutdated() {
		why = "Add a host" + waysOut(pool)
	}
	return NoSpare, fmt.Sprintf("%s, since %s. %s", m.NoHost, utc(m.Admitted), why)
}

// waysOut are those beside one more host. Fewer replicas alone free a host only where more Machines serve than these
// ask for.
func waysOut(pool *rules) string {
	less, joins, lowers := fewer(pool), ", or set", ", or lower"
	if less != "" {
		joins, lowers = ", and", ", lower"
	}
	switch {
	case pool.OnDelete || !pool.hasOutdated():
		return less
	case pool.off():
		return "" // nothing leaves its host
	case less != "" && pool.frees(pool.DoneOf):
		return less
	case pool.least >= pool.Replicas:
		joins = fmt.Sprintf("%s minAvailable, which asks for %d of %d Machines, and set", lowers, pool.least, pool.Replicas)
	}
	return less + joins + " spec.whenNoSpare to RemoveFirst, so that an outdated Machine is deleted first and one is " +
		"missing meanwhile"
}

// frees reports whether Cluster API deletes the next outdated Machine without anybody's consent where the pool has so
// many replicas: as many serve without it.
func (r *rules) frees(replicas int) bool {
	return r.inService() > replicas-r.Stock.Unavailable || r.in(counts) >= replicas
}

// fewer says how many replicas need no host more, as the other way out for a new Machine that finds none; empty where
// that is no way out. A scale-up in the middle of a rollout may leave outdated Machines that no other one could
// replace: none of what the pool is to have by now may be missing.
func fewer(pool *rules) string {
	to, why := pool.DoneOf, ", as before, until its rollout is done"
	if !pool.hasOutdated() {
		to, why = 0, ""
		for _, m := range pool.Machines {
			if s := m.stage(); s == counts || s == inFlight && !m.findsNone() {
				to++
			}
		}
	}
	if to == 0 || to >= pool.Replicas {
		return ""
	}
	return fmt.Sprintf(", or set %s to %d%s", pool.replicasOf(), to, why)
}

// leavesFirst is the outdated Machine that makes room for a new one that finds no host; nil when a host comes anyway,
// or when something speaks against it. It is the one that would be next with a spare.
func (p *planner) leavesFirst(pool *rules) (victim *Machine, comes, why string) {
	if pool.off() {
		return nil, "", pool.whileOff()
	}
	if comes = comesAnyway(pool); comes != "" {
		return nil, comes, ""
	}
	// What would hold one more Machine holds this as well, but for the limits, which the new Machine has passed.
	if reason, says := p.holds(pool, &room{}); reason != "" {
		return nil, "", says
	}
	if victim = pool.makesRoom(); victim == nil {
		why = "none of its outdated Machines has a host that the new one could have: add a host"
		if pool.frees(pool.DoneOf) {
			why += fewer(pool)
		}
		return nil, "", why
	}
	have, least := pool.inService(), pool.Replicas
	if !victim.inService() {
		least-- // it is missing already
	} else if have-1 < pool.least {
		return nil, "", fmt.Sprintf("minAvailable asks for %d of %d Machines: add a host, or lower it", pool.least,
			pool.Replicas)
	}
	if have < least {
		why = fmt.Sprintf("only %d of %d Machines are available, and one more would be missing: add a host, or mend what is "+
			"not available", have, pool.Replicas)
		if have-least >= pool.DoneOf-pool.Replicas {
			why += fewer(pool) // enough for so many
		}
		return nil, "", why
	}
	return victim, "", ""
}

// comesAnyway says which host the new Machine can have in a while; empty when there is none.
func comesAnyway(pool *rules) string {
	for _, m := range pool.Machines {
		switch {
		case m.stage() == leaves && m.Hosted:
			return fmt.Sprintf("Machine %s leaves its host", m.Name)
		case m.stage() == inFlight && !m.findsNone():
			return fmt.Sprintf("Machine %s is on its way, and frees a host when it counts", m.Name)
		}
	}
	switch {
	case pool.Coming > 0:
		return fmt.Sprintf("Hosts that it can have, %d, are free, being prepared or left", pool.Coming)
	case pool.Stock.Unavailable > 0 && pool.frees(pool.Replicas):
		return "Cluster API deletes one, because maxUnavailable of the MachineDeployment is not 0"
	}
	return ""
}

// findsNone reports whether the Machine is a new one that may claim a host and finds none.
func (m Machine) findsNone() bool { return m.stage() == inFlight && m.NoHost != "" }
