// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Plan decides about every Machine that waits for a host or does not count yet.
//
// As many pools as the policy's concurrency says are rolled out at a time (S3-6, C15), while a window is open. Where
// nothing of a pool is at the present template exactly one Machine is admitted, and the others when that counts (S3-26,
// S3-35); from then on as many as the limits in force allow. What is admitted goes on whatever holds the rest, but it
// counts only while nothing speaks against it. So a canary that fails, a pause and a suspension find nothing in
// deletion where maxUnavailable is 0.
func Plan(s State, policy *quoinv1.RolloutPolicySpec, now time.Time) Result {
	s = s.asOf(now)
	pools, err := arrange(s.Pools, policy)
	if err != nil {
		return Result{Problem: err.Error()}
	}
	times, err := scheduled(policy.Windows, now)
	if err != nil {
		return Result{Problem: err.Error()}
	}
	p := &planner{State: s, policy: policy, now: now, schedule: times, result: Result{topology: s.Topology}}
	for i := range pools {
		pools[i].failed = pools[i].drainFailure(s.Topology, now)
	}
	for i := range pools {
		p.overdue(&pools[i])
	}
	most := int(ptr.Deref(policy.Concurrency, 1))
	p.current = current(pools, s.Topology, most, now)
	for i := range pools {
		pools[i].overtaken = overtaken(pools[:i+1], s.Topology, most, now)
	}
	p.recall(pools)
	for i := range pools {
		p.plan(&pools[i])
	}
	for i := range pools {
		if why := p.fitsNowhere(&pools[i]); why != "" && p.result.Stalled == "" && pools[i].suspended == "" {
			p.result.Stalled, p.result.Cause = fmt.Sprintf("MachineDeployment %s: %s", pools[i].Name, why), WillNotFit
		}
	}
	p.order()
	p.result.Misordered = misordered(pools, s.Topology)
	return p.result
}

// planner holds what is decided so far.
type planner struct {
	State
	policy *quoinv1.RolloutPolicySpec
	now    time.Time
	// current are the pools that are rolled out.
	current    []string
	schedule   schedule
	validation validation
	result     Result
}

func (p *planner) plan(pool *rules) {
	pool.Proofs = p.proofs(pool)
	progress := Progress{Pool: pool.Name, Group: pool.group, Limits: pool.limits, Completed: pool.completed(),
		Pace: pool.Pace, Trial: p.trial(pool), RollsBack: pool.onFailure == quoinv1.RolloutFailureRollback}
	begin := len(p.result.Decisions)
	for _, m := range pool.Machines {
		switch m.stage() {
		case inFlight:
			progress.InFlight++
			if p.validate(pool, m) {
				pool.Pace = pool.Pace.With(m, seconds(p.policy.DeadlineSeconds))
				progress.Pace = pool.Pace
				break // its proof is remembered no more, which spares a write
			}
			progress.Proofs = pool.remember(progress.Proofs, m)
		case counts:
			if m.NeedsUpdate != "" {
				progress.Outdated++
				break
			}
			progress.Done++
			progress.Works = progress.Works || m.Unhealthy == ""
		case outdated:
			progress.Outdated++
			if m.Gated {
				// Cluster API would take it for unavailable for ever, and might delete none beside it. Without a MachineSet it
				// plans nothing, and the template of before may come back.
				if pool.Revision != "" {
					p.validate(pool, m)
				}
				progress.Proofs = pool.remember(progress.Proofs, m)
			}
		}
	}
	room := &room{present: pool.present(), late: p.late(pool), inFlight: progress.InFlight, actual: true}
	for _, old := range []bool{false, true} {
		for _, m := range pool.Machines {
			if m.stage() == waits && m.Outdated == old {
				p.start(pool, m, room)
			}
		}
	}
	p.removeFirst(pool)
	p.makeWay(pool)
	p.replaceSelected(pool, &progress)
	p.victims(pool)
	p.leave(pool, &progress)
	waits := room.inFlight == 0 && p.awaitsRepair(pool)
	decided := p.result.Decisions[begin:]
	for _, d := range decided {
		if d.Action == Hold {
			progress.Held++
		}
	}
	if progress.Reason, progress.Message = p.summary(pool, decided); progress.Reason == Suspended {
		progress.Before = pool.Said
	}
	progress.Left = p.left(pool, progress)
	progress.Left.Waits = waits
	p.result.Progress = append(p.result.Progress, progress)
}

// room is how many Machines of a pool there are, those that this plan admits included.
type room struct {
	present, inFlight int
	// late are those of them that are new and do not serve in time.
	late int
	// actual is that of Machines that are there, and not of what a deletion would leave.
	actual bool
}

// missing reports whether a Machine that is admitted takes the place of one that is gone already.
func (r *room) missing(pool *rules) bool { return r != nil && r.actual && r.present < pool.Replicas }

// lacks reports whether the place of an outdated Machine that is gone is empty, so that another one like it takes it.
// A new one has that place while it is on its way, and no longer than it may take, since Cluster API takes no outdated
// one away while a new one is not available (reconcileDeadlockBreaker in machinedeployment_rollout_rollingupdate.go).
// Where the policy consents to one that is missing its host was given up for the new one.
func (r *rules) lacks(room *room) bool {
	return room.present < r.Replicas || !r.consents && room.present < r.Replicas+r.limits.Surge &&
		room.present-room.late < r.Replicas-r.Stock.Unavailable
}

// takesAway says who takes away an outdated Machine that waits for its admission, and when. Where Cluster API takes one
// that serves for as many as may go, it takes another one only when every new one is Available (scaleDownOldMSs and
// reconcileDeadlockBreaker in machinedeployment_rollout_rollingupdate.go).
func (r *rules) takesAway() string {
	for _, m := range r.Machines {
		if !r.OnDelete && !m.Outdated && !m.Deleting && !m.inService() {
			return fmt.Sprintf("its place is taken: Cluster API takes it away when all new Machines are Available, at the "+
				"latest; Machine %s is not yet", m.Name)
		}
	}
	return "nothing is missing: Cluster API takes it away"
}

// start decides about a Machine that waits for its admission.
func (p *planner) start(pool *rules, m Machine, room *room) {
	d := Decision{Pool: pool.Name, Machine: m.Name, Action: Hold}
	switch {
	case m.Outdated && pool.lacks(room):
		d.Action, d.Reason = Admit, Replacement
		d.Message = "an outdated Machine is gone before its turn, and this one takes its place"
	case m.Outdated && pool.off() && pool.in(inFlight) > 0:
		d.Reason, d.Message = DrainOff, "it is of an earlier template and nothing is missing: "+pool.whileOff()
	case m.Outdated:
		d.Reason, d.Message = Outdated, "it is of an earlier template and "+pool.takesAway()
	case !pool.rolling() || pool.stuck():
		d.Action, d.Reason, d.Message = Admit, NoRollout, "nothing is being replaced"
		// Until a revision is known to work, each Machine of it has to show that it does.
		d.Gate = pool.Completed != pool.Revision
	default:
		selected := pool.selected()
		if room.present >= pool.Replicas {
			selected = "" // nothing is missing
		}
		d.Reason, d.Message = p.holds(pool, room)
		// What is missing was validated before it was deleted, and may be what the Cluster lacks.
		if d.Reason == "" && !pool.OnDelete && selected == "" {
			d.Reason, d.Message = p.validatesFirst(pool, room)
		}
		if d.Reason == "" {
			d.Action, d.Gate, d.Reason, d.Message = Admit, true, Next, "there is room for one more"
			switch {
			case selected != "":
				d.Reason, d.Message = Selected, fmt.Sprintf("it takes the place of Machine %s", selected)
			case pool.in(counts) == 0:
				d.Reason, d.Message = First, "nothing is at the present template: one is tried alone"
			}
		}
	}
	if d.Action == Admit {
		room.present++
		room.inFlight++
	}
	p.result.Decisions = append(p.result.Decisions, d)
}

// holdRule says what holds a rollout of a pool; its answer is empty when nothing does.
type holdRule func(*rules, *room) (Reason, string)

// holds says what a rollout of the pool waits for before it admits one more Machine: the first rule that has an answer.
// It is empty when there is room.
func (p *planner) holds(pool *rules, room *room) (Reason, string) {
	for _, rule := range []holdRule{
		p.stopped, p.afterFailedValidation, p.afterControlPlane, p.conflicts, p.afterPrevious, p.inWindow, p.afterPerson,
		p.canaryAlone, p.full, p.fits,
	} {
		if reason, why := rule(pool, room); reason != "" {
			return reason, why
		}
	}
	return "", ""
}

func (p *planner) stopped(pool *rules, _ *room) (Reason, string) { return p.stops(pool) }

// afterControlPlane has workers come after it. What is deleted already, which has no room, waits for what takes its
// place only where something does, and what is there need not be made.
func (p *planner) afterControlPlane(pool *rules, room *room) (Reason, string) {
	missed := room == nil && pool.staying() < pool.Replicas
	switch {
	case p.Outdated != "":
		return ControlPlane, "workers come after the control plane, when that is replaced: " + p.Outdated
	case pool.Unsupported != "" && (room != nil || missed):
		return ControlPlane, "what takes the place of a Machine would not start: " + pool.Unsupported
	case pool.Skewed != "" && (room != nil && !room.actual || missed):
		return ControlPlane, "what takes the place of a Machine is not made: " + pool.Skewed
	}
	return "", ""
}

// staying counts the Machines that stay and have a host, or had one: others would not start either.
func (p Pool) staying() int {
	n := 0
	for _, m := range p.Machines {
		if !m.Deleting && (m.Hosted || m.Joined) {
			n++
		}
	}
	return n
}

func (p *planner) conflicts(pool *rules, _ *room) (Reason, string) {
	if why := pool.contradiction(); why != "" {
		return Limited, why
	}
	return "", ""
}

func (p *planner) afterPrevious(pool *rules, _ *room) (Reason, string) {
	// What was refused is tried again beside those that went past it.
	if pool.overtaken || len(p.current) == 0 || slices.Contains(p.current, pool.Name) || pool.ends() {
		return "", ""
	}
	if len(pool.behind) > 0 {
		return Previous, comeFirst(slices.Sorted(slices.Values(pool.behind)))
	}
	return Previous, comeFirst(p.current)
}

func (p *planner) afterPerson(pool *rules, _ *room) (Reason, string) {
	if pool.pausedAfter == "" {
		return "", ""
	}
	return Paused, fmt.Sprintf("Machine %[1]s is validated; set spec.continueAfter to %[1]s to go on", pool.pausedAfter)
}

func (p *planner) canaryAlone(pool *rules, room *room) (Reason, string) {
	if pool.in(counts) > 0 || room.inFlight == 0 ||
		pool.off() && pool.in(inFlight) == room.inFlight && pool.proved(p.now) {
		return "", ""
	}
	return First, "the first Machine of the present template is tried alone until it counts"
}

// full says which limit leaves no room.
func (p *planner) full(pool *rules, room *room) (Reason, string) {
	l := pool.limits
	switch {
	case pool.pause == quoinv1.RolloutPauseEachMachine && room.inFlight > 0:
		return InFlight, "one is made at a time, because pauseAfter is EachMachine: the last one has to count first"
	case room.inFlight >= l.concurrency():
		return InFlight, fmt.Sprintf("%d on their way, and %d may be: one has to count first", room.inFlight, l.concurrency())
	case room.present >= pool.Replicas+l.Surge:
		return Surge, fmt.Sprintf("%d Machines for %d replicas, and %d more may be: one has to leave first", room.present,
			pool.Replicas, l.Surge)
	}
	return "", ""
}

// stops says what stops a rollout of the pool with the Machines that are in flight; empty when nothing does.
func (p *planner) stops(pool *rules) (Reason, string) {
	if pool.suspended != "" {
		return Suspended, pool.suspended
	}
	if pool.failed != "" {
		return DrainFailed, pool.failed
	}
	if p.Unhealthy != "" {
		return ControlPlane, "workers wait until the control plane is healthy: " + p.Unhealthy
	}
	if m := pool.failing; m != nil {
		return GroupUnhealthy, fmt.Sprintf("Machine %s is new and not healthy any more: %s. Mend or delete it", m.Name,
			m.Unhealthy)
	}
	return "", ""
}

// noNode is what a Machine waits for that is on its way.
const noNode = "it has no Node yet"

// validate decides about a Machine that is in flight, and reports whether it counts now.
func (p *planner) validate(pool *rules, m Machine) (counts bool) {
	d := Decision{Pool: pool.Name, Machine: m.Name, Action: Wait}
	end := m.Since.Add(pool.soak)
	stop, why := p.stops(pool)
	switch {
	case m.NoHost != "" && !m.Outdated:
		d.Reason, d.Message = p.noSpare(pool, m)
	case !m.Joined:
		// Its own conditions say how far it is: to repeat that would be two writes for each step of its way.
		d.Reason, d.Message = Provisioning, noNode
	case m.Unhealthy != "":
		d.Reason, d.Message = NotHealthy, m.Unhealthy
	case stop != "":
		d.Reason, d.Message = stop, why
	case p.now.Before(end):
		d.Reason = Soaking
		d.Message = fmt.Sprintf("healthy since %s, counts at %s", m.Since.UTC().Format(time.RFC3339),
			end.UTC().Format(time.RFC3339))
		p.again(end.Sub(p.now))
	case p.awaitsValidation(pool, m, &d):
		p.invalidates(pool, m)
	case pool.off() && pool.exchanges() && !m.Outdated:
		d.Reason, d.Message = DrainOff, "it is validated and does not count, so that nothing is deleted in exchange: "+
			pool.whileOff()
	case p.pauses(pool, m):
		d.Reason = Paused
		d.Message = fmt.Sprintf("it is validated; set spec.continueAfter to %s to go on", m.Name)
		pool.pausedAfter = cmp.Or(pool.pausedAfter, m.Name)
		p.result.PausedAfter = cmp.Or(p.result.PausedAfter, m.Name)
	case pool.rolling() && p.schedule.closed():
		d.Reason, d.Message = p.inWindow(pool, nil)
	default:
		if d.Reason, d.Message = pool.beforeCounting(); d.Reason != "" {
			break
		}
		pool.counted++
		d.Action, d.Reason, d.Message = Count, Validated, "it is healthy"
		d.Took, d.Pace = p.took(pool, m), Pace(nil).With(m, seconds(p.policy.DeadlineSeconds))
		if pool.soak > 0 {
			d.Message = fmt.Sprintf("it was healthy for %s", pool.soak)
		}
	}
	if d.Reason == Provisioning || d.Reason == NotHealthy || d.Reason == NoSpare {
		why := d.Message
		if d.Message == noNode {
			why = cmp.Or(m.Unhealthy, noNode)
		}
		wayOut := ". Mend or delete the Machine, or take the template before"
		if d.Reason == NoSpare || m.NoHost != "" {
			wayOut = "" // said already
		}
		if m.HostFailed != "" {
			why, wayOut = m.HostFailed, ". Delete the Machine, as a MachineHealthCheck does, and another host is tried"
		}
		p.stalls(pool, m, why+wayOut)
		p.fails(pool, m, why)
	} else if d.Action == Wait && p.stillLate(pool, m) {
		p.stalls(pool, m, d.Message)
	}
	p.result.Decisions = append(p.result.Decisions, d)
	return d.Action == Count
}

// pauses reports whether a person has to say that it goes on after the Machine.
func (p *planner) pauses(pool *rules, m Machine) bool {
	if m.Outdated || !pool.rolling() || p.policy.ContinueAfter == m.Name {
		return false
	}
	return pool.pause == quoinv1.RolloutPauseEachMachine ||
		pool.pause == quoinv1.RolloutPauseCanary && pool.in(counts) == 0
}

func (p *planner) again(after time.Duration) {
	if p.result.Again == 0 || after < p.result.Again {
		p.result.Again = after
	}
}

// stopping are reasons of Machines that are on their way for which the whole pool waits.
var stopping = []Reason{Paused, Suspended, ControlPlane, GroupUnhealthy, ValidationFailed, Closed, Limited, NoSpare,
	DrainFailed, DrainOff}

// summary is the decision that tells most about a pool.
func (p *planner) summary(pool *rules, decided []Decision) (Reason, string) {
	if pool.failed != "" {
		return DrainFailed, pool.failed
	}
	if reason, why := p.replaces(pool); reason != "" {
		return reason, why
	}
	for _, action := range []Action{Wait, Admit, Count, Delete, Hold, Keep} {
		for _, d := range decided {
			if d.Action != action {
				continue
			}
			message := fmt.Sprintf("Machine %s: %s", d.Machine, d.Message)
			if slices.Contains(stopping, d.Reason) || action == Hold ||
				action == Keep && d.Reason != InFlight && d.Reason != First {
				return d.Reason, message + early(pool, d.Reason)
			}
			return RollingOut, message
		}
	}
	if _, reason, why := p.nextSelected(pool); reason != "" {
		return reason, why
	}
	leaves, how := p.leaving(pool)
	if !pool.busy() || leaves != "" && leaves != RollingOut {
		return cmp.Or(leaves, UpToDate), how
	}
	reason, why := p.holds(pool, &room{present: pool.present()})
	switch {
	case leaves != "" && reason != Previous: // what is broken leaves although its pool waits for another one
		return leaves, how
	case reason != "" && reason != Surge && (reason != Previous || pool.overdue == ""):
		return reason, why + early(pool, reason)
	}
	if from := pool.idle(p.now); p.now.Before(from) {
		p.again(from.Sub(p.now))
	} else if !from.IsZero() {
		return NoneMade, "Cluster API is to make or delete a Machine" + pool.saysOfThat()
	}
	return RollingOut, "Cluster API replaces Machines"
}

// early says that Cluster API deletes Machines out of order. What is not made cannot keep it from that. Where limits
// contradict each other that is said already.
func early(pool *rules, reason Reason) string {
	if reason == Surge || reason == Limited || pool.Stock.Unavailable == 0 || pool.drain != nil ||
		reason == NoSpare && !pool.hasOutdated() {
		return ""
	}
	return fmt.Sprintf(". Cluster API may delete %d Machines all the same: set %s to 0", pool.Stock.Unavailable,
		pool.maxUnavailableOf())
}
