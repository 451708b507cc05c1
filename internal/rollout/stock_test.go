// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// deployment is a model of a MachineDeployment with what Cluster API 1.14 does to it
// (core/reconcilers/machinedeployment/machinedeployment_rollout_rollingupdate.go, machineset/machineset_deletion_order.go)
// and what hosts do. Nothing of it is shared with what decides.
type deployment struct {
	name     string
	labels   map[string]string
	replicas int
	// atWork are as many as served when its template came, as the test knows it.
	atWork int
	// surge and unavailable are of the MachineDeployment; asked are the policy's.
	surge, unavailable int
	paused, onDelete   bool
	// refused: the API server refused a deletion last.
	refused  bool
	template int
	// behind are templates of another version than the control plane's, of which no Machine is made
	// (machineset_preflight.go).
	behind map[int]bool
	// kubelets of the Machines, by their template, where a script says.
	kubelets  map[int]string
	sets      []*set
	machines  []*node
	made      int
	completed string
	selected  string
	doneOf    int
	// said and since are the reason that was given last.
	said  Reason
	since time.Time
	// owes is how many have to count before what takes the place of a Machine that was selected does, as the test knows it.
	owes int
	// touched: Machines may be missing through what happened to it, until it is calm again.
	touched bool
	pace    Pace
	drains  Pace
	rolls   rollbacks
	// domains of the hosts, and whether its MachineSets delete the newest first.
	domains []string
	newest  bool
	// capacity is how many hosts there are for it; 0 when there is always one more.
	capacity   int
	terminated time.Time
	// terminatedBefore is kept by the test.
	terminatedBefore time.Time
}

// spare reports whether a host is free.
func (d *deployment) spare() bool {
	hosted := 0
	for _, n := range d.machines {
		if !n.hosted.IsZero() {
			hosted++
		}
	}
	return d.capacity == 0 || hosted < d.capacity
}

// free is how many hosts are, as far as anybody looks.
func (d *deployment) free() int {
	if d.capacity == 0 {
		return 9
	}
	return d.capacity - len(slices.DeleteFunc(slices.Clone(d.machines), func(n *node) bool { return n.hosted.IsZero() }))
}

// set is a MachineSet.
type set struct{ template, replicas int }

// node is a Machine with its host.
type node struct {
	name     string
	template int
	created  time.Time
	hosted   time.Time
	admitted time.Time
	healthy  time.Time
	deleted  time.Time
	gated    bool
	joined   bool
	ill      string
	// fell is when it fell ill.
	fell time.Time
	// hostFailed says why its host is not provisioned.
	hostFailed string
	// domain of its host.
	domain string
	// mark is whose delete-machine annotation it carries: ours, a person's, or none.
	mark string
	last bool
	// condemned Machines were deleted by the rollout.
	condemned bool
	// undeletable Machines are those whose deletion the API server refuses.
	undeletable bool
	// holdsOn to its host: nobody else could have it.
	holdsOn bool
	// needsUpdate says why a person wants it replaced.
	needsUpdate string
	// replacement is what was made in its place, replaces in whose place it was made.
	replacement string
	replaces    *node
	departure
}

func (n *node) available() bool { return n.joined && n.ill == "" && !n.gated && n.deleted.IsZero() }

// occupies reports whether the Machine has a host or is about to.
func (n *node) occupies() bool { return !n.hosted.IsZero() || !n.admitted.IsZero() }

func (d *deployment) of(template int, match func(*node) bool) int {
	count := 0
	for _, n := range d.machines {
		if n.template == template && match(n) {
			count++
		}
	}
	return count
}

func (d *deployment) status(s *set) int {
	return d.of(s.template, func(*node) bool { return true })
}

func (d *deployment) ready(s *set) int { return d.of(s.template, (*node).available) }

func (d *deployment) current() *set {
	for _, s := range d.sets {
		if s.template == d.template {
			return s
		}
	}
	s := &set{template: d.template}
	d.sets = append(d.sets, s)
	return s
}

// stock is one look of Cluster API's controllers.
func (d *deployment) stock(now time.Time) {
	switch {
	case d.paused:
	case d.onDelete:
		d.planOnDelete()
	default:
		d.plan()
	}
	for _, s := range d.sets {
		d.scale(s, now)
	}
}

// planOnDelete replaces what is gone (machinedeployment_rollout_ondelete.go).
func (d *deployment) planOnDelete() {
	current, sum := d.current(), 0
	for _, s := range d.sets {
		sum += max(s.replicas, d.status(s))
	}
	for _, s := range d.sets {
		if s != current {
			s.replicas = min(s.replicas, d.of(s.template, func(n *node) bool { return n.deleted.IsZero() }))
		}
	}
	current.replicas = min(d.replicas, current.replicas+max(0, d.replicas-sum))
	d.scaleDownOnDelete(current)
}

func (d *deployment) plan() {
	current, intents := d.current(), map[*set]int{}
	unavailable := d.unavailable
	if d.surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	spec, sum, ready := 0, 0, 0
	for _, s := range d.sets {
		sum += max(s.replicas, d.status(s))
		spec += s.replicas
		ready += d.ready(s)
	}
	switch {
	case current.replicas > d.replicas:
		intents[current] = d.replicas
	case current.replicas < d.replicas && sum < d.replicas+d.surge:
		intents[current] = current.replicas + min(d.replicas+d.surge-sum, d.replicas-current.replicas)
	}
	d.shrink(current, intents, spec, ready, max(d.replicas-unavailable, 0))
	d.unblock(current, intents)
	for s, replicas := range intents {
		s.replicas = replicas
	}
}

// shrink takes from old MachineSets what may be missing.
func (d *deployment) shrink(current *set, intents map[*set]int, spec, ready, least int) {
	pending := 0
	for _, s := range d.sets {
		intent := s.replicas
		if v, is := intents[s]; is {
			intent = min(intent, v)
		}
		pending += max(d.status(s)-intent, 0)
	}
	down := spec - pending - least - max(current.replicas-d.ready(current), 0)
	for _, unavailableOnly := range []bool{true, false} {
		for _, s := range d.sets {
			replicas := s.replicas
			if v, is := intents[s]; is {
				replicas = v
			}
			if s == current || down <= 0 || replicas <= 0 {
				continue
			}
			most := replicas
			if unavailableOnly {
				most = max(replicas-d.ready(s), 0)
			}
			by := min(most, down)
			if d.ready(s) > 0 && by > 0 {
				existing := max(d.status(s)-(replicas-by), 0)
				if existing > 0 {
					if ready-least < existing {
						to := min(d.status(s)-max(ready-least, 0), replicas)
						by, existing = max(replicas-to, 0), max(d.status(s)-to, 0)
					}
					ready -= min(d.ready(s), existing)
				}
			}
			if by > 0 {
				intents[s] = replicas - by
				down -= by
			}
		}
	}
}

// unblock deletes an unavailable old Machine where nothing else moves.
func (d *deployment) unblock(current *set, intents map[*set]int) {
	if d.ready(current) != d.status(current) || len(intents) > 0 {
		return
	}
	for _, s := range d.sets {
		if s.replicas != d.status(s) {
			return
		}
	}
	for _, s := range d.sets {
		if s != current && d.ready(s) != d.status(s) && s.replicas > 0 {
			s.replicas--
			return
		}
	}
}

// scale makes and deletes Machines of a MachineSet.
func (d *deployment) scale(s *set, now time.Time) {
	var of []*node
	for _, n := range d.machines {
		if n.template == s.template {
			of = append(of, n)
		}
	}
	if d.newest {
		slices.Reverse(of)
	}
	for i := len(of); i < s.replicas && !d.behind[s.template] && (!d.onDelete || s.template == d.template); i++ {
		d.made++
		d.machines = append(d.machines, &node{name: fmt.Sprintf("%s-%d", d.name, d.made), template: s.template, created: now})
	}
	rank := func(n *node) int {
		switch {
		case !n.deleted.IsZero():
			return 0
		case n.mark != "":
			return 1
		case !n.joined || n.ill != "":
			return 2
		}
		return 3
	}
	slices.SortStableFunc(of, func(a, b *node) int { return cmp.Compare(rank(a), rank(b)) })
	for i := range max(0, len(of)-s.replicas) {
		if of[i].deleted.IsZero() {
			of[i].deleted = now
		}
	}
}

const (
	joinTakes  = 60 * time.Second
	leaveTakes = 30 * time.Second
)

// hosts is what hosts do until now. Machines of broken templates never become healthy.
func (d *deployment) hosts(now time.Time, broken map[int]bool) {
	for _, n := range d.machines {
		n.walk(now)
	}
	d.machines = slices.DeleteFunc(d.machines, func(n *node) bool {
		return !n.deleted.IsZero() && (n.hosted.IsZero() && !n.preTerminate || n.left(now) >= leaveTakes)
	})
	for _, n := range d.machines {
		switch {
		case !n.deleted.IsZero():
		case n.hosted.IsZero() && !n.admitted.IsZero() && d.spare():
			n.hosted, n.domain = now, d.emptiest()
		case !n.joined && !n.hosted.IsZero() && now.Sub(n.hosted) >= joinTakes && n.hostFailed == "":
			n.joined, n.healthy = true, now
			if broken[n.template] {
				n.ill = "NodeHealthy: kubelet stopped posting node status"
			}
		}
	}
}

// whole has the deployment be as it is to be, without any history.
func (d *deployment) whole(now time.Time) {
	d.current().replicas = d.replicas
	for range d.replicas {
		d.made++
		d.machines = append(d.machines, &node{name: fmt.Sprintf("%s-%d", d.name, d.made), template: d.template,
			created: now, hosted: now, healthy: now, joined: true,
			domain: d.emptiest()})
	}
	d.completed = fmt.Sprint(d.template)
}
