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
	if pool.OnDelete || !pool.consents || !slices.ContainsFunc(pool.Machines, Machine.findsNone) ||
		comesAnyway(pool) != "" {
		return
	}
	if victim, _ := p.leavesFirst(pool); victim != nil && !pool.unguarded(victim) {
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
	if pool.OnDelete || pool.off() || !slices.ContainsFunc(p.result.Decisions, pool.crowded) {
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
}

// crowded reports whether a decision holds a new Machine of the pool because there are as many as may be.
func (r *rules) crowded(d Decision) bool {
	return d.Pool == r.Name && d.Action == Hold && d.Reason == Surge
}

// awaitsRepair names a Machine that keeps a new one waiting for room until a person does something, while none is on
// its way, and has the rollout be stalled when that takes longer than a Machine may. It reports whether there is one.
//
// A policy may have less surge than the MachineDeployment. Cluster API deletes no outdated Machine then while a new one
// that waits is not available (reconcileDeadlockBreaker in machinedeployment_rollout_rollingupdate.go), and no health
// check has it replace one that is broken (reconcileUnhealthyMachines in machineset_controller.go). Nor is that deleted
// here: it may be well in a moment, and where its host is dead its deletion may need a person as well.
func (p *planner) awaitsRepair(pool *rules) bool {
	// Cluster API takes one more for what is available beside those that it deletes already.
	if pool.OnDelete || pool.off() || !slices.ContainsFunc(p.result.Decisions, pool.crowded) ||
		pool.frees(pool.Replicas+pool.in(leaves)) {
		return false
	}
	from, until := p.now, time.Time{}
	if pool.Said == Surge {
		from = anew(pool.Since, p.Resumed)
	}
	var first *Machine
	for i := range pool.Machines {
		m := &pool.Machines[i]
		s, broken := m.stage(), !m.Joined || m.Unhealthy != ""
		servesOn := func(d Decision) bool {
			return d.Pool == pool.Name && d.Machine == m.Name && d.Action == HoldDrain && d.Reason == Unavailable
		}
		switch {
		case s == waits, m.inService(), slices.ContainsFunc(p.result.Leaves, servesOn):
			continue
		case s == counts, s == outdated && (!broken || !m.Hosted || m.Gated),
			s == leaves && pool.drain != nil && m.Leave.PreTerminate:
			return false // it comes or goes, or its own message says why not
		}
		end := latest(from, pool.ailingSince(m)).Add(p.replacementTakes())
		if p.now.Before(end) && (s == leaves || !m.Joined) {
			p.again(end.Sub(p.now))
			return false // it may take so long
		}
		if first == nil || !first.Deleting && (m.Deleting || pool.ailingSince(m).Before(pool.ailingSince(first))) {
			first, until = m, end
		}
	}
	if first == nil {
		return false
	}
	says := pool.repair(first, p.Namespace)
	for i := range p.result.Decisions {
		if d := &p.result.Decisions[i]; pool.crowded(*d) {
			d.Message += ". " + says
		}
	}
	if p.now.Before(until) {
		p.again(until.Sub(p.now))
	} else if p.result.Stalled == "" {
		p.result.Stalled, p.result.Cause = fmt.Sprintf("MachineDeployment %s: %s", pool.Name, says), DeadlineExceeded
	}
	return true
}

func latest(at ...time.Time) time.Time { return slices.MaxFunc(at, time.Time.Compare) }

// ailingSince is since when a Machine does not serve, or leaves.
func (r *rules) ailingSince(m *Machine) time.Time {
	since, _ := r.awaited(*m)
	if m.Deleting {
		since = latest(since, r.LastTermination)
	}
	return latest(since, m.Since, m.Deleted)
}

// repair says what becomes of a Machine that does not serve, or is not gone.
func (r *rules) repair(m *Machine, namespace string) string {
	surge := ""
	if r.limits.Surge < r.Stock.Surge {
		surge = fmt.Sprintf(", or set the policy's maxSurge to %d", r.Stock.Surge)
	}
	since := utc(r.ailingSince(m))
	if m.Deleting {
		return fmt.Sprintf("Machine %s leaves since %s and is not gone: see its condition Deleting%s", m.Name, since, surge)
	}
	return fmt.Sprintf("Machine %s is of an earlier template and not in service since %s (%s), and Cluster API deletes "+
		"none meanwhile: repair its host, or kubectl -n %s delete machine %s%s", m.Name, since,
		cmp.Or(m.Unhealthy, noNode), namespace, m.Name, surge)
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
	why, comes := "", comesAnyway(pool)
	if comes != "" || !pool.OnDelete && pool.consents {
		p.again(spareRecheck)
	}
	if comes != "" {
		return Provisioning, fmt.Sprintf("%s. %s", m.NoHost, comes)
	}
	if !pool.OnDelete && pool.consents {
		victim, not := p.leavesFirst(pool)
		if victim != nil {
			return Provisioning, fmt.Sprintf("%s. Machine %s is deleted first, as whenNoSpare says", m.NoHost, victim.Name)
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

// leavesFirst is the outdated Machine that makes room for a new one that finds no host; nil when something speaks
// against it. It is the one that would be next with a spare.
func (p *planner) leavesFirst(pool *rules) (victim *Machine, why string) {
	if pool.off() {
		return nil, pool.whileOff()
	}
	// What would hold one more Machine holds this as well, but for the limits, which the new Machine has passed.
	if reason, says := p.holds(pool, &room{}); reason != "" {
		return nil, says
	}
	rival := ""
	victim = pool.makesRoom(func(m *Machine) bool {
		other := p.rivalOf(m)
		rival = cmp.Or(rival, other)
		return other == ""
	})
	switch {
	case victim == nil && rival != "":
		return nil, fmt.Sprintf("Machine %s finds no host either and could take the one that becomes free, and nothing "+
			"would bring this pool another one: add a host, or have fewer replicas there", rival)
	case victim == nil:
		why = "none of its outdated Machines has a host that the new one could have: add a host"
		if pool.frees(pool.DoneOf) {
			why += fewer(pool)
		}
		return nil, why
	}
	have, least := pool.inService(), pool.Replicas
	if !victim.inService() {
		least-- // it is missing already
	} else if have-1 < pool.least {
		return nil, fmt.Sprintf("minAvailable asks for %d of %d Machines: add a host, or lower it", pool.least,
			pool.Replicas)
	}
	if have < least {
		why = fmt.Sprintf("only %d of %d Machines are available, and one more would be missing: add a host, or mend what is "+
			"not available", have, pool.Replicas)
		if have-least >= pool.DoneOf-pool.Replicas {
			why += fewer(pool) // enough for so many
		}
		return nil, why
	}
	return victim, ""
}

// rivalOf names a Machine of another pool that finds no host and could have that of this one; empty when there is none.
// A pool whose outdated Machines leave theirs is to give one back: to wait for it, as it waits for this one, has no
// end.
func (p *planner) rivalOf(m *Machine) string {
	for _, rival := range m.Rivals {
		if !slices.ContainsFunc(p.Pools, func(pool Pool) bool { return pool.Name == rival.Pool && pool.hasOutdated() }) {
			return rival.Machine
		}
	}
	return ""
}

// comesAnyway says which host the new Machine can have in a while; empty when there is none.
func comesAnyway(pool *rules) string {
	if pool.off() {
		return "" // nothing leaves its host
	}
	exchanged := slices.ContainsFunc(pool.Machines, func(m Machine) bool { return m.stage() == outdated && m.Hosted })
	for _, m := range pool.Machines {
		switch {
		case m.stage() == leaves && m.Hosted && m.Returns:
			return fmt.Sprintf("Machine %s leaves its host", m.Name)
		case m.stage() == inFlight && !m.findsNone() && exchanged:
			return fmt.Sprintf("Machine %s is on its way, and frees a host when it counts", m.Name)
		}
	}
	switch {
	case pool.Coming > 0:
		return fmt.Sprintf("Hosts that it can have, %d, are free, being prepared or left", pool.Coming)
	case !pool.OnDelete && pool.Stock.Unavailable > 0 && exchanged && pool.frees(pool.Replicas):
		return "Cluster API deletes one, because maxUnavailable of the MachineDeployment is not 0"
	}
	return ""
}

// findsNone reports whether the Machine is a new one that may claim a host and finds none.
func (m Machine) findsNone() bool { return m.stage() == inFlight && m.NoHost != "" }
