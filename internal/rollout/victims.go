// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Departure is what decides when a Machine leaves.
type Departure struct {
	// Domain is the failure domain of the host; empty when it is in none.
	Domain string
	// Last Machines are replaced after the others that are well.
	Last bool
	// Set is the MachineSet of the Machine, and SetMade when that was made: Cluster API shrinks the oldest first.
	Set     string
	SetMade time.Time
	// Marked Machines are deleted first by their MachineSet, and MarkedByUs says that a rollout wants that.
	Marked, MarkedByUs bool
	// Condemned Machines have it written down that a rollout deletes them.
	Condemned bool
}

// leaving is what a policy says about the Machines of a pool that leave.
type leaving struct {
	// waves by failure domain.
	waves bool
	// least Machines that have to be available.
	least int
	// counted are those that this plan lets count.
	counted int
}

func leavingBy(strategy *quoinv1.RolloutStrategy, pool Pool) (l leaving, err error) {
	asked := ptr.Deref(strategy, quoinv1.RolloutStrategy{})
	l.waves = asked.Waves == quoinv1.RolloutWavesFailureDomain
	if asked.MinAvailable != nil {
		l.least, err = intstr.GetScaledValueFromIntOrPercent(asked.MinAvailable, pool.Replicas, true)
	}
	if err != nil {
		err = fmt.Errorf("minAvailable: %w", err)
	}
	return l, err
}

// onDelete are the limits of a pool whose Machines a rollout deletes: none is made beforehand, so at least one is
// missing unless the policy forbids that.
func onDelete(strategy *quoinv1.RolloutStrategy, machines int) (Limits, error) {
	asked := quoinv1.RolloutStrategy{MaxSurge: &intstr.IntOrString{}}
	if strategy != nil {
		asked.MaxUnavailable = strategy.MaxUnavailable
	}
	return Resolve(asked, machines)
}

// contradiction says why nothing of the pool may ever be replaced, and what to change; empty when it may.
func (r *rules) contradiction() string {
	switch {
	case r.OnDelete && r.limits.Unavailable == 0:
		return fmt.Sprintf("the policy lets no Machine be missing, and MachineDeployment %s makes none beforehand, since "+
			"its strategy is OnDelete: set the policy's maxUnavailable to 1 or more for it", r.Name)
	case !r.OnDelete && r.limits.Surge == 0 && r.Stock.Unavailable == 0:
		return fmt.Sprintf("the policy allows no surge, and MachineDeployment %s lets no Machine be missing: set "+
			"%s to 1 or more, or the policy's maxSurge", r.Name, r.maxUnavailableOf())
	}
	return r.tooFew()
}

// tooFew says why fewer Machines would be available than the policy asks for; empty when that need not be.
func (r *rules) tooFew() string {
	missing := r.Stock.Unavailable
	if r.OnDelete {
		missing = 1
	}
	asks := fmt.Sprintf("minAvailable asks for %d Machines of MachineDeployment %s, which has %d replicas", r.least,
		r.Name, r.Replicas)
	switch {
	case r.least == 0 || r.least <= r.Replicas-missing:
		return ""
	case r.least > r.Replicas:
		return asks + ": lower it, or give a percentage"
	case r.OnDelete:
		return asks + ". Each replacement leaves one missing, since its strategy is OnDelete: lower minAvailable"
	}
	return asks + fmt.Sprintf(". Cluster API lets %d be missing: set %s to %d, or lower minAvailable", missing,
		r.maxUnavailableOf(), r.Replicas-r.least)
}

// unbegun are the reasons of pools of which nothing leaves but what is broken, which waits for no order.
var unbegun = []Reason{"", UpToDate, Suspended, ControlPlane, ValidationFailed, Previous}

// begun reports whether an outdated Machine is gone already, so that the pool is finished before another is begun. What
// Cluster API deletes beforehand serves until it is drained.
func (r *rules) begun() bool {
	if r.OnDelete {
		return r.rolling() && r.onTheirWay() > 0
	}
	if r.drain == nil || r.onlySelected() || slices.Contains(unbegun, r.Said) {
		return false
	}
	there := 0
	for _, m := range r.Machines {
		if m.started() && (!m.Deleting || m.Leave.PreDrain) {
			there++
		}
	}
	return there < min(r.Replicas, cmp.Or(r.DoneOf, r.Replicas))
}

// onTheirWay counts the Machines that leave and those that take the place of what left.
func (p Pool) onTheirWay() int { return max(0, p.Replicas-p.in(outdated)-p.in(counts)) }

// inService reports whether Cluster API takes the Machine for Available.
func (m Machine) inService() bool {
	return !m.Deleting && !m.Gated && m.Joined && m.Unhealthy == "" && m.Available
}

func (p Pool) inService() int {
	n := 0
	for _, m := range p.Machines {
		if m.inService() {
			n++
		}
	}
	return n
}

// victims decides which Machines of a pool leave next. With OnDelete they are deleted, in exactly this order, while
// nothing holds the rollout and enough are left. Otherwise their MachineSet deletes them, and only learns
// which one goes first.
func (p *planner) victims(pool *rules) {
	first := pool.first(pool.old())
	if pool.early() {
		first = nil
	}
	for i := range pool.Machines {
		m := &pool.Machines[i]
		d := Decision{Pool: pool.Name, Machine: m.Name}
		wanted := !pool.OnDelete && slices.Contains(first, m)
		switch {
		case wanted && !m.Marked:
			d.Action, d.Reason, d.Message = Mark, Order, pool.says(m)
		case p.removes(m.Name):
			continue
		case m.MarkedByUs && !wanted && !m.Deleting && !m.Gated,
			m.Condemned && !m.Deleting && (!m.Outdated || !pool.OnDelete):
			d.Action, d.Reason, d.Message = Unmark, Later, "others leave first"
			if !m.Outdated {
				d.Message = "it is of the present template and stays"
			}
		default:
			continue
		}
		p.result.Decisions = append(p.result.Decisions, d)
	}
	// What counts as of now may be the next to leave, and is known as what it is when this is decided again.
	if pool.OnDelete && pool.Revision != "" && pool.counted == 0 {
		p.deletes(pool)
	}
}

// removes reports whether the Machine is deleted by this plan.
func (p *planner) removes(machine string) bool {
	return slices.ContainsFunc(p.result.Decisions, func(d Decision) bool {
		return d.Machine == machine && d.Action == Delete
	})
}

// early reports whether Cluster API deletes none before a new Machine has a host, whose failure domain then says where
// the first wave is.
func (r *rules) early() bool {
	return r.Stock.Unavailable == 0 && !slices.ContainsFunc(r.Machines, func(m Machine) bool {
		return m.MarkedByUs && m.Outdated || m.Deleting || m.Hosted && !m.Outdated
	})
}

// says why the Machine is among the first.
func (r *rules) says(m *Machine) string {
	switch {
	case !m.inService():
		return "it is not available: nothing is lost with it"
	case r.waves:
		return fmt.Sprintf("failure domain %s is replaced", cmp.Or(m.Domain, "(none)"))
	case m.Last:
		return "only those that go last are left"
	}
	return "it leaves before those that go last"
}

// deletes as many as may be, the one that comes next first (S3-13, S3-19, S3-26).
func (p *planner) deletes(pool *rules) {
	gone := map[*Machine]bool{}
	taken := 0
	for range pool.Machines {
		victim := pool.next(gone)
		if victim == nil {
			return
		}
		d := Decision{Pool: pool.Name, Machine: victim.Name, Action: Keep}
		unbegun, room := &room{}, &room{present: pool.present() - len(gone) - 1, inFlight: pool.onTheirWay() + len(gone)}
		if d.Reason, d.Message = p.holds(pool, room); d.Reason == "" {
			d.Reason, d.Message = pool.keeps(victim, taken, gone)
		}
		// One that is broken is what keeps the Cluster from being validated, and its end proves nothing for the next one.
		if d.Reason == "" && victim.inService() {
			d.Reason, d.Message = p.validatesFirst(pool, unbegun)
		}
		switch {
		case pool.off():
			d.Reason, d.Message = DrainOff, pool.whileOff()
		case d.Reason == "" && pool.unguarded(victim):
			d.Reason, d.Message = Scheduled, "its deletion hooks are put on first"
		}
		if d.Reason == "" {
			d.Action, d.Reason, d.Message = Delete, Next, "its place is taken by one of the present template"
			if pool.in(counts) == 0 {
				d.Reason, d.Message = First, "nothing is at the present template: one is replaced alone"
			}
		} else if leaver := pool.leaver(); leaver != nil && (d.Reason == InFlight || d.Reason == First) {
			says := fmt.Sprintf("Machine %s is being deleted, see its condition Deleting", leaver.Name)
			if d.Message += "; " + says; pool.in(inFlight) == 0 {
				d.Message = says + ": what takes its place has to count first"
			}
		}
		p.result.Decisions = append(p.result.Decisions, d)
		if d.Action == Keep {
			return
		}
		gone[victim] = true
		if victim.inService() {
			taken++
		}
	}
}

// keeps says what keeps a Machine that nothing holds: too few would be left, or those of another failure domain leave.
func (r *rules) keeps(victim *Machine, taken int, gone map[*Machine]bool) (Reason, string) {
	least := max(r.least, r.Replicas-r.limits.Unavailable)
	if have := r.inService() - taken; victim.inService() && have <= least {
		return MinAvailable, fmt.Sprintf("%d of %d Machines are available, and no fewer than %d may be: see those that are "+
			"not", have, r.Replicas, least)
	}
	if !r.waves {
		return "", ""
	}
	for i := range r.Machines {
		if m := &r.Machines[i]; (gone[m] || m.Deleting && m.Hosted) && m.Domain != victim.Domain {
			return Wave, beforeOthers(m)
		}
	}
	return "", ""
}

// beforeOthers says that the Machine's failure domain is not done.
func beforeOthers(m *Machine) string {
	return fmt.Sprintf("failure domain %s is replaced, and Machine %s of it has to be gone before another one begins",
		cmp.Or(m.Domain, "(none)"), m.Name)
}

// besides says which Machine of another failure domain is drained or given up already, or is by what was decided, or
// comes first: Cluster API deletes ahead of a wave what a new Machine that counts makes superfluous, while one of the
// wave waits for its drain. It is empty when the Machine may be drained. One that does not serve is no loss.
func (r *rules) besides(m Machine, decided []Decision) string {
	if !r.waves || r.OnDelete || !m.Outdated || !m.serves() {
		return ""
	}
	for i := range r.Machines {
		other := &r.Machines[i]
		if !other.Deleting || other.Domain == m.Domain || other.Leave.Remediated {
			continue
		}
		drains := slices.ContainsFunc(decided, func(d Decision) bool {
			return d.Pool == r.Name && d.Machine == other.Name && d.Action == Drain && d.Reason == DrainStarted
		})
		if drains || !other.Leave.PreDrain && other.Joined && other.Hosted ||
			other.Leave.PreDrain && other.serves() && other.Marked && !m.Marked {
			return beforeOthers(other)
		}
	}
	return ""
}

func (r *rules) leaver() *Machine {
	for i := range r.Machines {
		if r.Machines[i].Deleting {
			return &r.Machines[i]
		}
	}
	return nil
}

// next is the Machine that leaves next; nil when none is left.
func (r *rules) next(gone map[*Machine]bool) *Machine {
	away := func(m *Machine) bool { return gone[m] || m.stage() != outdated }
	if first := slices.DeleteFunc(r.first(r.old()), away); len(first) > 0 {
		return foremost(first)
	}
	// Nothing is steered, or those that may leave now are on their way.
	return foremost(slices.DeleteFunc(r.old(), away))
}

// makesRoom is the Machine that leaves next of those whose host a new Machine that finds none can have; nil when there
// are none. may says which of them come into question.
func (r *rules) makesRoom(may func(*Machine) bool) *Machine {
	old := slices.DeleteFunc(r.old(), func(m *Machine) bool { return m.stage() != outdated || !m.Returns || !may(m) })
	if first := r.first(old); len(first) > 0 {
		return foremost(first)
	}
	return foremost(old)
}

// foremost is one whose deletion was written down already, then one that is not available, then one that is marked, and
// of those that are alike the first; nil when there are none.
func foremost(of []*Machine) *Machine {
	if len(of) == 0 {
		return nil
	}
	rank := func(m *Machine) int {
		return slices.Index([]bool{m.Condemned, !m.inService(), m.Marked, !m.Last, true}, true)
	}
	return slices.MinFunc(of, func(a, b *Machine) int { return cmp.Compare(rank(a), rank(b)) })
}

// old are the outdated Machines that do not leave yet, those of the oldest MachineSet first.
func (r *rules) old() []*Machine {
	var old []*Machine
	for i := range r.Machines {
		if m := &r.Machines[i]; m.Outdated && !m.Deleting {
			old = append(old, m)
		}
	}
	slices.SortStableFunc(old, func(a, b *Machine) int {
		return cmp.Or(a.SetMade.Compare(b.SetMade), strings.Compare(a.Set, b.Set))
	})
	return old
}

// first are those of the outdated Machines that leave before all others; nil when none is asked to. They are those of
// the wave's failure domain that do not go last. Of a MachineSet that has some that are not available only these: it
// would take what is marked instead of them, where Cluster API's planner counted on their being no loss
// (reconcileDeadlockBreaker in machinedeployment_rollout_rollingupdate.go).
func (r *rules) first(old []*Machine) []*Machine {
	if !r.waves && !slices.ContainsFunc(old, func(m *Machine) bool { return m.Last }) {
		return nil
	}
	ailing := map[string]bool{}
	for _, m := range old {
		ailing[m.Set] = ailing[m.Set] || !m.inService()
	}
	domain := r.wave(old)
	first := []*Machine{}
	for _, m := range old {
		switch {
		case ailing[m.Set] && !m.inService():
		case ailing[m.Set], r.waves && m.Domain != domain, m.Last && r.others(old, m):
			continue
		}
		first = append(first, m)
	}
	return first
}

// others reports whether some beside the Machine, of whatever failure domain, do not go last. A MachineSet only knows
// its own Machines.
func (r *rules) others(old []*Machine, than *Machine) bool {
	return slices.ContainsFunc(old, func(m *Machine) bool { return !m.Last && r.together(m, than) })
}

// together reports whether the order of two Machines is ours: Cluster API shrinks one MachineSet after another.
func (r *rules) together(a, b *Machine) bool { return r.OnDelete || a.Set == b.Set }

// wave is the failure domain whose Machines leave: that of whoever leaves already, then of what was marked, first by a
// person. A new one is that where the new Machines are, so that the surplus of a domain goes first, then the most
// crowded.
func (r *rules) wave(old []*Machine) string {
	if !r.waves || len(old) == 0 {
		return ""
	}
	var mine []*Machine
	for _, m := range old {
		if r.together(m, old[0]) && (!m.Last || !r.others(old, m)) {
			mine = append(mine, m)
		}
	}
	has := func(domain string) bool {
		return slices.ContainsFunc(mine, func(m *Machine) bool { return m.Domain == domain })
	}
	leaves := ""
	for i := range r.Machines {
		if m := &r.Machines[i]; m.Deleting && m.Hosted && m.Domain != "" {
			if has(m.Domain) {
				return m.Domain
			}
			leaves = cmp.Or(leaves, m.Domain)
		}
	}
	if leaves != "" {
		return leaves
	}
	for _, ours := range []bool{false, true} {
		for _, m := range mine {
			if m.Marked && m.MarkedByUs == ours && m.inService() {
				return m.Domain
			}
		}
	}
	young, all := map[string]int{}, map[string]int{}
	for _, m := range r.Machines {
		all[m.Domain]++
		if s := m.stage(); s == inFlight || s == counts {
			young[m.Domain]++
		}
	}
	return slices.MinFunc(mine, func(a, b *Machine) int {
		return cmp.Or(-cmp.Compare(young[a.Domain], young[b.Domain]), -cmp.Compare(all[a.Domain], all[b.Domain]),
			strings.Compare(a.Domain, b.Domain))
	}).Domain
}

// beforeCounting says why a Machine that is healthy may not count yet although nothing stops the rollout: with one more
// that is Available Cluster API would delete one that is not to leave now. It deletes of the oldest MachineSet first.
func (r *rules) beforeCounting() (Reason, string) {
	if r.OnDelete || !r.rolling() {
		return "", ""
	}
	if why := r.tooFew(); why != "" {
		return Limited, why
	}
	old := r.old()
	first := r.first(old)
	// One that waits for its drain serves until a new one does.
	if first == nil || slices.ContainsFunc(r.Machines, func(m Machine) bool { return m.Deleting && m.Leave.PreDrain }) {
		return "", ""
	}
	takes := r.inService() + r.counted + 1 - max(0, r.Replicas-r.Stock.Unavailable)
	for begin := 0; begin < len(old) && takes > 0; {
		end, marked, stray := begin, 0, false
		for ; end < len(old) && old[end].Set == old[begin].Set; end++ {
			switch wanted := slices.Contains(first, old[end]); {
			case old[end].Marked && (wanted || !old[end].MarkedByUs):
				marked++
			case old[end].Marked:
				stray = true
			}
		}
		if all := end - begin; stray || min(takes, all) > marked {
			return Wave, r.awaits()
		}
		takes -= end - begin
		begin = end
	}
	return "", ""
}

// awaits says what has to be before Cluster API may delete one more.
func (r *rules) awaits() string {
	if leaver := r.leaver(); leaver != nil {
		return fmt.Sprintf("Machine %s leaves, and has to be gone before those begin that come after it: see its condition "+
			"Deleting", leaver.Name)
	}
	return "Machines that leave first are marked before Cluster API may delete any"
}
