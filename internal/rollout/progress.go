// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"time"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	// recently is how many measured durations are kept.
	recently = 5
	// steady is how far an expected end may drift before another one is said: it would change with each look.
	steady = time.Minute
)

// Pace is how long new Machines of a pool took from their admission until they were healthy, the latest last.
type Pace []time.Duration

// With is the pace after one more Machine counted, without its soak and whatever it waited for then: those change. One
// that took longer than its deadline waited for somebody, and says nothing about the next one.
func (p Pace) With(m Machine, deadline time.Duration) Pace {
	took := m.Since.Sub(m.Admitted)
	if m.Admitted.IsZero() || took < 0 || deadline != 0 && took > deadline {
		return p
	}
	return p.and(Pace{took.Round(time.Second)})
}

// and is the pace after more of them.
func (p Pace) and(more Pace) Pace {
	longer := slices.Concat(p, more)
	return longer[max(0, len(longer)-recently):]
}

// Last is how long the latest one took; 0 when none was measured.
func (p Pace) Last() time.Duration {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1]
}

// Median of what was measured, the longer one of two; 0 when nothing was.
func (p Pace) Median() time.Duration {
	if len(p) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(p))[len(p)/2]
}

// took is how long a Machine that counts now was on its way. The time that a person took to look at it says nothing
// about the next one. It is 0 where nobody knows since when it was, as after clusterctl move.
func (p *planner) took(pool *rules, m Machine) time.Duration {
	if m.Admitted.IsZero() {
		return 0
	}
	if p.policy.ContinueAfter == m.Name {
		return m.Since.Add(pool.soak).Sub(m.Admitted)
	}
	return p.now.Sub(m.Admitted)
}

// Left is what remains to be done in a pool.
type Left struct {
	// Machines that do not count yet, those in flight included, at so many at once.
	Machines, AtOnce int
	// Waits: somebody has to do something first.
	Waits bool
	// Alone: the next one is tried alone.
	Alone bool
	// Latest is when the last of those in flight was admitted.
	Latest time.Time
	// Soak of each.
	Soak time.Duration
}

func (p *planner) left(pool *rules, progress Progress) Left {
	if !pool.busy() || pool.OnDelete {
		return Left{}
	}
	left := Left{Soak: pool.soak, Machines: max(pool.Replicas-progress.Done, progress.InFlight),
		AtOnce: pool.limits.concurrency(), Alone: progress.Done == 0}
	if pool.pause == quoinv1.RolloutPauseEachMachine {
		left.AtOnce = 1
	}
	for _, m := range pool.Machines {
		if m.stage() == inFlight && m.Admitted.After(left.Latest) {
			left.Latest = m.Admitted
		}
	}
	return left
}

// takes is how long the rest of a pool takes from now, where one Machine takes each, and at most longest. It is not
// known once what is in flight took longer than that: its end would be now at every look.
func (p Progress) takes(each, longest time.Duration, now time.Time) (takes time.Duration, known bool) {
	rest, at := p.Left.Machines-p.InFlight, now
	switch {
	case p.InFlight > 0:
		if at = p.Left.Latest.Add(each); !at.After(now) {
			at = p.Left.Latest.Add(longest + steady)
		}
	case p.Left.Alone:
		rest, at = rest-1, now.Add(each)
	}
	rounds := (rest + p.Left.AtOnce - 1) / p.Left.AtOnce
	return at.Sub(now) + time.Duration(rounds)*each, p.InFlight == 0 || at.After(now)
}

// Expect says when each pool, and all of them, will be done, if Machines take as long as they took of late, one pool
// after the other. It is zero for what is done or waits for somebody, where nothing was measured yet, and from where a
// Machine takes longer than any did of late.
func (r Result) Expect(now time.Time) (ends map[string]time.Time, all time.Time) {
	ends = map[string]time.Time{}
	var measured Pace
	var busy []Progress
	for _, p := range r.Progress {
		measured = append(measured, p.Pace...)
		if p.Left.Machines > 0 {
			busy = append(busy, p)
		}
	}
	rank := func(p Progress) int { return slices.Index(goesOn, p.Reason) }
	slices.SortStableFunc(busy, func(a, b Progress) int { return cmp.Compare(rank(a), rank(b)) })
	known, at := len(busy) > 0, now
	for _, p := range busy {
		each := cmp.Or(p.Pace.Median(), measured.Median())
		if each == 0 || rank(p) < 0 || p.Left.Waits || r.Stalled != "" {
			known = false
			continue
		}
		longest := slices.Max(append(slices.Clone(p.Pace), each))
		takes, is := p.takes(each+p.Left.Soak, longest+p.Left.Soak, now)
		if !is {
			return ends, time.Time{}
		}
		at = at.Add(takes)
		ends[p.Pool] = at
	}
	if !known {
		return ends, time.Time{}
	}
	return ends, at
}

// goesOn are the reasons of pools for which nobody has to do anything, unless their Left Waits, in the order in which
// they come to their end.
var goesOn = []Reason{RollingOut, InFlight, First, Surge, Previous}

// Steady is the end that is said: the one that was said before unless another one is far from it.
func Steady(said, end, now time.Time) time.Time {
	end = end.Truncate(time.Second)
	if said.After(now) && said.Sub(end).Abs() <= max(steady, end.Sub(now)/10) {
		return said
	}
	return end
}
