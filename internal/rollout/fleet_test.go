// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// tick is how often everybody looks, unless a script says.
const tick = 10 * time.Second

// fleet is a model of a Cluster's workers, and of the policy for them.
type fleet struct {
	now time.Time
	// every so often everybody looks in a story.
	every               time.Duration
	policy              quoinv1.RolloutPolicySpec
	pools               []*deployment
	unhealthy, outdated string
	// idle: the policy is paused, and nothing is decided; resumed is since when it goes on after that.
	idle    bool
	resumed time.Time
	// broken templates make no healthy Node.
	broken map[int]bool
	looks  looks
	// seen are the Machines that were available before others moved.
	seen   map[*node]bool
	result Result
	// rolled is what became of failures.
	rolled string
}

func newFleet() *fleet {
	return &fleet{every: tick, now: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC), broken: map[int]bool{}}
}

func (f *fleet) state() State {
	s := State{Namespace: "team", Unhealthy: f.unhealthy, Outdated: f.outdated, Validation: f.looks.record, Resumed: f.resumed}
	for _, d := range f.pools {
		p := Pool{Said: d.said, Since: d.since, Name: d.name, Labels: d.labels, Replicas: d.replicas, Refused: d.refused, Stock: Limits{d.surge, d.unavailable},
			Completed: d.completed, Selected: d.selected, DoneOf: d.doneOf, Pace: d.pace, Drains: d.drains, LastTermination: d.terminated, Trial: d.rolls.trial, Proofs: d.rolls.proofs, Paused: d.paused, OnDelete: d.onDelete}
		if d.behind[d.template] {
			p.Skewed = "it is of the version before: give it that of the control plane"
		}
		for _, s := range d.sets {
			if s.template == d.template {
				p.Revision = fmt.Sprint(s.template)
			}
		}
		for _, n := range d.machines {
			since := n.healthy
			if n.fell.IsZero() {
				n.fell = f.now
			}
			if n.ill == "" {
				n.fell = time.Time{}
			} else if n.joined {
				since = n.fell
			}
			noHost := ""
			if n.deleted.IsZero() && n.hosted.IsZero() && !n.admitted.IsZero() && !d.spare() {
				noHost = fmt.Sprintf("no free host matches: %d in use", d.capacity)
			}
			p.Room = Room{Hosts: d.free(), Replicas: d.current().replicas}
			p.Machines = append(p.Machines, Machine{Succession: d.succession(n), NoHost: noHost, NeedsUpdate: n.needsUpdate, Returns: !n.hosted.IsZero() && !n.holdsOn,
				Name: n.name, Created: n.created, Outdated: n.template != d.template,
				Deleting: !n.deleted.IsZero(), Hosted: !n.hosted.IsZero(), Admitted: n.admitted, Gated: n.gated, Joined: n.joined,
				Unhealthy: n.lacks(), HostFailed: n.hostFailed, Since: since, Available: n.available(), Departure: d.departure(n), Leave: n.leave(f)})
		}
		s.Pools = append(s.Pools, p)
	}
	return s
}

func (n *node) lacks() string {
	if !n.joined {
		return "InfrastructureReady: the host is being provisioned"
	}
	return n.ill
}

func (f *fleet) pool(name string) *deployment {
	for _, d := range f.pools {
		if d.name == name {
			return d
		}
	}
	panic("no pool " + name)
}

func (d *deployment) node(name string) *node {
	for _, n := range d.machines {
		if n.name == name {
			return n
		}
	}
	return nil
}

// decide and do it. What is decided is returned.
func (f *fleet) decide() []Decision {
	if f.idle {
		f.result.Decisions = nil // those of before are done
		return nil
	}
	state := f.state()
	f.result = Plan(state, &f.policy, f.now)
	f.look()
	var done []Decision
	for _, d := range f.pools {
		d.refused = false
	}
	for _, d := range f.result.Decisions {
		n := f.pool(d.Pool).node(d.Machine)
		if f.pool(d.Pool).refused {
			continue // what fails ends what is done for its pool
		}
		switch d.Action {
		case Admit:
			n.admitted, n.gated = f.now, d.Gate
			if d.Gate && n.mark == "" {
				n.mark = byUs
			}
			done = append(done, d)
		case Count:
			n.gated = false
			if n.mark == byUs {
				n.mark = ""
			}
			done = append(done, d)
		case Delete, Mark, Unmark:
			n.leaves(d, f.now)
			if d.Action == Delete && n.undeletable {
				d.Message = "the API server refuses it"
				i := slices.IndexFunc(state.Pools, func(p Pool) bool { return p.Name == d.Pool })
				f.result.Undone(state.Pools[i], d, d.Message)
				f.pool(d.Pool).refused = true
			}
			done = append(done, d)
		}
	}
	done = append(f.depart(), done...)
	for _, p := range f.result.Progress {
		said := p.Reason
		if said == Suspended {
			said = p.Before
		}
		if d := f.pool(p.Pool); d.said != said || p.Reason == Suspended {
			d.said, d.since = said, f.now
		}
		f.pool(p.Pool).completed, f.pool(p.Pool).selected, f.pool(p.Pool).pace = p.Completed, p.Selected, p.Pace
		f.pool(p.Pool).rolls.trial, f.pool(p.Pool).rolls.proofs = p.Trial, p.Proofs
		f.pool(p.Pool).terminated, f.pool(p.Pool).doneOf, f.pool(p.Pool).drains = p.LastTermination, p.DoneOf, p.Drains
	}
	f.rollBack()
	return done
}

// moves has everybody else look once.
func (f *fleet) moves() {
	for _, d := range f.pools {
		d.stock(f.now)
		d.hosts(f.now, f.broken)
	}
}

// draw the pools: o is outdated, . is held, ~ is on its way, ? is healthy and does not count yet, + counts, ! is not
// healthy, x leaves its host, h waits to be drained, d is drained.
func (f *fleet) draw() string {
	var text strings.Builder
	for i, d := range f.pools {
		if i > 0 {
			text.WriteString("  ")
		}
		fmt.Fprintf(&text, "%s ", d.name)
		for _, n := range d.machines {
			text.WriteString(d.letter(n))
		}
	}
	return text.String()
}

func (d *deployment) letter(n *node) string {
	switch {
	case !n.deleted.IsZero():
		return n.departing()
	case !n.occupies():
		return "."
	case n.ill != "":
		return "!"
	case n.template != d.template:
		return "o"
	case !n.joined:
		return "~"
	case n.gated:
		return "?"
	}
	return "+"
}

// tell the story until nothing moves any more, or the time is over.
func (f *fleet) tell(limit time.Duration) string {
	var story strings.Builder
	end, drawn, said, idle := f.now.Add(limit), f.draw(), "", 0
	fmt.Fprintf(&story, "%s %s\n", f.now.Format("15:04:05"), drawn)
	for f.now.Before(end) && (idle < int(5*time.Minute/f.every) || f.result.Again > 0) {
		idle++
		for _, d := range f.decide() {
			fmt.Fprintf(&story, "%s %s %s (%s): %s\n", f.now.Format("15:04:05"), d.Action, d.Machine, d.Reason, d.Message)
			idle = 0
		}
		if says := f.says(); says != said {
			said, idle = says, 0
			story.WriteString(says)
		}
		f.moves()
		f.now = f.now.Add(f.every)
		if is := f.draw(); is != drawn {
			drawn, idle = is, 0
			fmt.Fprintf(&story, "%s %s\n", f.now.Format("15:04:05"), drawn)
		}
	}
	return story.String()
}

// says is why pools are held, and what is stalled.
func (f *fleet) says() string {
	var text strings.Builder
	if f.result.Problem != "" {
		fmt.Fprintf(&text, "  %s\n", f.result.Problem)
	}
	for _, p := range f.result.Progress {
		if !slices.Contains([]Reason{RollingOut, UpToDate, NoneMade}, p.Reason) {
			fmt.Fprintf(&text, "  %s %s: %s\n", p.Pool, p.Reason, p.Message)
		}
	}
	if f.result.DrainFailed != "" {
		fmt.Fprintf(&text, "  STALLED: %s\n", f.result.DrainFailed)
	}
	if f.result.Stalled != "" {
		fmt.Fprintf(&text, "  STALLED: %s\n", f.result.Stalled)
	}
	text.WriteString(f.rolled)
	return text.String()
}
