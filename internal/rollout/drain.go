// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	// podsRecheck is how often pods that remain are looked at, as often as Cluster API does.
	podsRecheck = 20 * time.Second
	// stuckAfter is how long after its grace period a pod counts as one that never ends.
	stuckAfter = time.Minute
	// patience is how long a Node that cannot be read, or changed, is waited for before its drain.
	patience = time.Minute
	// kubeletPatience is how long a kubelet may be silent before nobody waits for its Node: as long as pods tolerate it by
	// default, so that a network which fails for a moment loses none. Then Kubernetes deletes them, whatever protects
	// them, and Cluster API's drain waits for none of these (drainNode in core/reconcilers/machine/machine_controller.go).
	kubeletPatience = 5 * time.Minute
	// volumesTake is how long volumes of pods are given to be detached that Cluster API did not evict.
	volumesTake = 5 * time.Minute
)

// drainFailure says which Machine of the pool was not drained in time, and must be; empty when none is. It stops the
// pool, and no other (K-6).
func (r *rules) drainFailure(topology *Topology, now time.Time) string {
	if r.drain == nil || r.drain.onTimeout != quoinv1.RolloutDrainFail {
		return ""
	}
	for _, m := range r.Machines {
		l := m.Leave
		if !m.Deleting || l.PreDrain || !l.PreTerminate || l.Remediated || m.nothingToDrain() || l.Node.Unreachable ||
			l.began().IsZero() || now.Before(m.drainsSince().Add(r.drain.timeout)) ||
			!l.Passed.IsZero() && l.Node.Listed && len(l.Node.Pods) == 0 {
			continue
		}
		// Cluster API comes to its hooks for the termination only when its own drain is over, which may never be.
		lose := fmt.Sprintf("take the annotation %s off the Machine", quoinv1.RolloutPreTerminateHookAnnotation)
		if l.Passed.IsZero() {
			lose = fmt.Sprintf("give the Machine the annotations %s and %s", clusterv1.ExcludeNodeDrainingAnnotation,
				clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation)
		}
		return fmt.Sprintf("Machine %s of MachineDeployment %s: its Node %s has been draining since %s, longer than %s, and "+
			"stays cordoned; other MachineDeployments go on%s. End the pods, loosen what protects them, set drain.onTimeout "+
			"to Proceed or Force, or %s to lose them. %s", m.Name, r.Name, l.NodeName, utc(l.began()), r.drain.timeout,
			topology.Withholds(r.Name), lose, l.keeps())
	}
	return ""
}

// leave decides about the deletion of every Machine of the pool.
func (p *planner) leave(pool *rules, progress *Progress) {
	progress.LastTermination, progress.Drains = pool.LastTermination, pool.Drains
	if pool.drain == nil {
		return
	}
	l := &leaver{planner: p, pool: pool, serving: pool.serving()}
	// What is terminated now keeps the next one from its drain.
	for _, drained := range []bool{true, false} {
		l.last = progress.LastTermination
		for _, m := range pool.Machines {
			if drained != (m.Deleting && !m.Leave.PreDrain) {
				continue
			}
			d := l.decide(m)
			if d.Action == Terminate && d.Reason != NoNode {
				progress.LastTermination = p.now
			}
			// Once: what is refused is decided again, and its time goes on. One that was late waited for somebody.
			took := p.now.Sub(m.drainsSince()).Round(time.Second)
			if d.Reason == Drained && took <= pool.drain.timeout && pool.LastTermination.Before(m.Leave.Passed) {
				progress.Drains = progress.Drains.and(Pace{took})
			}
			if d.Action != "" {
				p.result.Leaves = append(p.result.Leaves, d)
			}
		}
	}
	if pool.failed != "" {
		p.result.DrainFailed = cmp.Or(p.result.DrainFailed, pool.failed)
	}
}

// leaver decides about the Machines of one pool.
type leaver struct {
	*planner
	pool *rules
	// serving Machines take pods and are not drained.
	serving int
	// last termination, those that are decided included.
	last time.Time
	// opened: this plan has another one drained or replaced first.
	opened bool
}

func (l *leaver) decide(m Machine) Decision {
	d := Decision{Pool: l.pool.Name, Machine: m.Name}
	if node := m.Leave.Node; m.Deleting && node.Unreachable && !node.away(l.now) {
		l.again(node.UnreachableSince.Add(kubeletPatience).Sub(l.now))
	}
	switch {
	case m.Leave.Remediated && !m.guarded():
	case m.Leave.Remediated:
		d.Action, d.Reason, d.Message = Unguard, Remediated, "what is remediated is not held"
	case !m.Deleting:
		d.Action, d.Reason, d.Message = l.stays(m)
	case m.Leave.PreDrain:
		d.Action, d.Reason, d.Message = l.beforeDrain(m)
	case m.Leave.PreTerminate:
		d.Action, d.Reason, d.Message = l.beforeTermination(m)
	}
	return d
}

// serving counts the Machines that take pods and are not drained yet.
func (r *rules) serving() int {
	n := 0
	for _, m := range r.Machines {
		if m.serves() {
			n++
		}
	}
	return n
}

func (m Machine) serves() bool {
	return m.Joined && !m.Gated && m.Unhealthy == "" && (!m.Deleting || m.Leave.PreDrain) && !m.Leave.Node.Unreachable
}

// coming reports whether another Machine will serve before one that waits for its drain is gone: where none will, to
// wait would be to wait for ever.
func (r *rules) coming(surge int) bool {
	// What finds no host waits for that of the one that waits for its drain.
	hostless := slices.ContainsFunc(r.Machines, func(m Machine) bool { return !m.Deleting && m.NoHost != "" })
	for _, m := range r.Machines {
		switch s := m.stage(); {
		case s == inFlight && !m.findsNone(), s == waits && !m.Outdated && !hostless, s == leaves && !m.Leave.PreDrain:
			return true
		}
	}
	return !hostless && len(r.Machines) < r.Replicas+surge
}

// unmarked reports whether the Node is to be tainted, and is not. What is remediated is not held, so nothing waits for
// its taint either.
func (m Machine) unmarked() bool {
	n := m.Leave.Node
	return (m.Outdated || m.needsUpdate()) && m.Joined && !m.Deleting && !m.Leave.Remediated && n.Known &&
		!n.Gone && !n.Marked && !n.Unschedulable
}

func (l *leaver) stays(m Machine) (Action, Reason, string) {
	switch {
	case !m.started():
	case !m.Leave.PreDrain || !m.Leave.PreTerminate:
		return Guard, Scheduled, "its deletion waits for the policy"
	case m.unmarked() && l.replaces():
		return Taint, Scheduled, "its Machine is to be replaced"
	case !m.Outdated && !m.needsUpdate() && m.Leave.Node.Marked:
		return Untaint, NotScheduled, "its Machine is not to be replaced any more"
	}
	return "", "", ""
}

// unguarded reports whether the Machine is to have hooks before a rollout deletes it, and lacks them.
func (r *rules) unguarded(m *Machine) bool {
	return r.drain != nil && m.started() && !m.Leave.Remediated && (!m.Leave.PreDrain || !m.Leave.PreTerminate)
}

// replaces reports whether Machines of the pool are being replaced.
func (l *leaver) replaces() bool {
	return l.pool.suspended == "" && l.Outdated == "" &&
		(slices.Contains(l.current, l.pool.Name) || l.pool.in(leaves) > 0 || l.pool.drain.off)
}

// beforeDrain decides about a Machine whose deletion waits for its drain.
func (l *leaver) beforeDrain(m Machine) (Action, Reason, string) {
	switch {
	case !m.Joined || m.Leave.Node.Gone:
		return Drain, NoNode, "it has no Node"
	case m.Leave.Node.away(l.now):
		return Drain, NoNode, "the kubelet of its Node does not answer"
	}
	held := anew(m.Leave.Held, l.Resumed)
	if end := held.Add(patience); !m.Leave.Node.Known && !held.IsZero() && l.now.Before(end) {
		l.again(min(podsRecheck, end.Sub(l.now)))
		return HoldDrain, NodeUnknown, "its Node cannot be read; it is drained at " + utc(end) + " all the same"
	}
	wayOut := ". To let it go all the same take the annotation " + quoinv1.RolloutPreDrainHookAnnotation +
		" off the Machine"
	// Whether enough others serve is not known then, and a Cluster that cannot be reached hides all of them.
	if other := l.beingDrained(); !m.Leave.Node.Known && other != "" {
		return HoldDrain, NodeUnknown, fmt.Sprintf("its Node cannot be read, and one at a time is drained while that is so: "+
			"Machine %s is%s", other, wayOut)
	}
	action, first, without := l.replaceFirst(m)
	if action != "" {
		l.opened = l.opened || action == Replace
		return action, first, without + wayOut
	}
	if reason, why := l.holdsDrain(m); reason != "" {
		if l.Unhealthy != "" || l.Outdated != "" {
			l.again(spareRecheck) // the control plane may come to wait for this host
		}
		return HoldDrain, reason, why + wayOut
	}
	if m.serves() {
		l.serving--
	}
	l.opened = true
	return Drain, DrainStarted, "its Node is cordoned, taken out of load balancers and drained" + without
}

// beingDrained is a Machine of the pool whose Node is drained, or is to be by this plan; empty when none is.
func (l *leaver) beingDrained() string {
	for _, other := range l.pool.Machines {
		if other.Deleting && !other.Leave.PreDrain && other.Joined && !other.Leave.Remediated &&
			!other.Leave.Node.Gone && !other.Leave.Node.away(l.now) {
			return other.Name
		}
	}
	for _, d := range l.result.Leaves {
		if d.Pool == l.pool.Name && d.Action == Drain && d.Reason == DrainStarted {
			return d.Machine
		}
	}
	return ""
}

// holdsDrain says what the drain of a Machine waits for; it is empty when it may begin.
func (l *leaver) holdsDrain(m Machine) (Reason, string) {
	stock, helps := m.Outdated && !l.pool.OnDelete, m.Wanted && l.helps(m)
	if stock && l.pool.drain.off {
		return DrainOff, l.pool.whileOff()
	}
	// Nothing takes the place of what a scale-down takes away.
	empties := m.serves() && l.pool.staying() < l.pool.Replicas
	// What waits for the control plane, which waits for just that host, would wait for ever.
	if stock && !helps {
		rules := []holdRule{l.stopped, l.afterControlPlane, l.afterPrevious, l.afterPerson}
		// What a rollout deletes itself it has judged already.
		if !m.Condemned {
			rules = append(rules, l.conflicts, l.inWindow)
			// One that serves, and whose place would be empty until another window is open for long enough, if any is.
			if empties && l.fitsNowhere(l.pool) == "" {
				rules = append(rules, l.fits)
			}
		}
		// One that is broken, or was only tried, may be what looks find.
		if !m.Condemned && m.serves() {
			rules = append(rules, l.afterLooks)
		}
		for _, rule := range rules {
			if reason, why := rule(l.pool, nil); reason != "" {
				return reason, why
			}
		}
	}
	if reason, why := l.tooFewServe(m); reason != "" && !helps {
		return reason, why
	}
	if why := l.pool.besides(m, l.result.Leaves); why != "" {
		return Wave, why
	}
	if (m.Outdated || m.NeedsUpdate != "") && l.replaces() {
		for _, other := range l.pool.Machines {
			if other.unmarked() {
				return Tainting, fmt.Sprintf("the Node of Machine %s is to be tainted first", other.Name)
			}
		}
	}
	if next := l.last.Add(l.pool.drain.interval); l.now.Before(next) {
		l.again(next.Sub(l.now))
		return Interval, "the last one was terminated at " + utc(l.last)
	}
	// A pool starts with a look, so that its failure costs nothing (S3-10).
	if stock && !helps && !m.Condemned && empties && l.pool.in(counts) == 0 {
		return l.validatesFirst(l.pool, &room{inFlight: l.pool.in(inFlight)})
	}
	return "", ""
}

// helps reports whether the Machine is the first of those whose host the control plane waits for, and none leaves its
// host already.
func (l *leaver) helps(m Machine) bool {
	for _, pool := range l.Pools {
		for _, other := range pool.Machines {
			if other.Deleting && other.Wanted && (!other.Leave.PreDrain || other.Name < m.Name) {
				return false
			}
		}
	}
	return true
}

// tooFewServe has Machines that serve leave one after another. What Cluster API replaces waits while another one comes,
// what a person deletes no longer than for its replacement: nobody surges for that.
func (l *leaver) tooFewServe(m Machine) (Reason, string) {
	stock, missing, why := m.Outdated && !l.pool.OnDelete, l.pool.limits.Unavailable, ""
	if alone := l.pool.alone(); stock && missing > 1 && alone != "" {
		missing, why = 1, alone
	}
	// Where none is made beforehand one has to be missing. What minAvailable asks for is no more than this, or a conflict.
	least := l.pool.Replicas - max(missing, 1-l.pool.limits.Surge)
	if !m.serves() || m.Condemned || l.serving-1 >= least {
		return "", ""
	}
	surge, until := l.pool.Stock.Surge, ""
	if !stock {
		end := anew(m.Deleted, l.Resumed).Add(l.replacementTakes())
		if !l.now.Before(end) {
			return "", ""
		}
		l.again(end.Sub(l.now))
		surge, until = 0, ", and more are waited for until "+utc(end)
	}
	if !l.opened && !l.pool.coming(surge) {
		return "", ""
	}
	return Unavailable, fmt.Sprintf("%d of at least %d serve%s%s%s", l.serving, least, why, l.missing(), until)
}

// alone says why Machines of the pool that Cluster API replaces leave one after another, as a rollout deletes them
// itself; empty when as many may be missing as the limits say.
func (r *rules) alone() string {
	switch {
	case r.in(counts) == 0:
		return " while nothing is at the present template"
	case r.pause == quoinv1.RolloutPauseEachMachine:
		return ", because pauseAfter is EachMachine"
	}
	return ""
}

// afterLooks keeps what serves from its drain while the Cluster does not validate. A pool of which the first one is to
// be drained goes on having looks made.
func (l *leaver) afterLooks(pool *rules, _ *room) (Reason, string) {
	if l.validation.failed == "" || l.looksAt(pool) && pool.in(counts) == 0 && pool.in(inFlight) == 0 {
		return "", ""
	}
	return ValidationFailed, l.validation.failed
}

// missing names a Machine that is to serve and does not.
func (l *leaver) missing() string {
	for _, m := range l.pool.Machines {
		if !m.serves() && !m.Deleting && m.started() {
			return fmt.Sprintf("; Machine %s does not: %s", m.Name, cmp.Or(m.Unhealthy, "it does not count yet"))
		}
	}
	return ""
}

func utc(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// What ends the rollout of a pool of which nothing is to be drained or terminated. By hand it ends only where what
// takes the place of a deleted Machine is of the present template: another MachineSet makes one of its own again.
const (
	drainIsOff = "the strategy has drainAndTerminate false: take that off it"
	byHand     = drainIsOff + ", or drain and delete Machines yourself"
	madeAgain  = drainIsOff + ". What you delete yourself is made again of the same template"
)

// whileOff says what ends the rollout of such a pool.
func (r *rules) whileOff() string {
	if r.exchanges() {
		return madeAgain
	}
	return byHand
}

// exchanges reports whether Cluster API deletes an outdated Machine for each new one that counts.
func (r *rules) exchanges() bool { return !r.OnDelete && r.hasOutdated() }

// off reports whether nothing of the pool is to be drained or terminated.
func (r *rules) off() bool { return r.drain != nil && r.drain.off }

// proved reports whether every Machine in flight was healthy for long enough.
func (r *rules) proved(now time.Time) bool {
	for _, m := range r.Machines {
		if m.stage() == inFlight && (!m.Joined || m.Unhealthy != "" || now.Before(m.Since.Add(r.soak))) {
			return false
		}
	}
	return true
}

// untouched reports whether the pool has the surge that it may have, and nothing of it is to be drained or terminated
// (S3-36, S3-37): others do not wait for it.
func (r *rules) untouched(now time.Time) bool {
	return r.off() && r.proved(now) && r.present() >= r.Replicas+min(r.limits.Surge, r.Replicas)
}

// leaving is what Machines of the pool that are being deleted wait for; empty when none waits.
func (p *planner) leaving(pool *rules) (Reason, string) {
	for _, action := range []Action{HoldTermination, HoldDrain, Evict, DeletePods, Draining} {
		for _, d := range p.result.Leaves {
			if d.Pool != pool.Name || d.Action != action {
				continue
			}
			message := fmt.Sprintf("Machine %s: %s", d.Machine, d.Message)
			switch d.Reason {
			case Evicting, DrainDelay, Interval, Tainting, DrainGivenUp:
				return RollingOut, message
			}
			return d.Reason, message
		}
	}
	return "", ""
}
