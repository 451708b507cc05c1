// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package steady keeps a step of the clock from being taken for time that passed. Deadlines that outlive a process are
// absolute times. When the clock is set forward by a day, or the machine of the manager was frozen for one, a host that
// fell silent a moment ago was silent for a day by them, and in that day nobody looked.
package steady

import (
	"slices"
	"sync"
	"time"
)

// smallest step that is one; less is a clock that is being slewed.
const smallest = time.Minute

// Clock is the system's clock, which remembers by how much it was set forward while the process lives. Safe for
// concurrent use.
type Clock struct {
	wall    func() time.Time
	elapsed func() time.Duration

	mu sync.Mutex
	// seen and at are what wall and elapsed said last.
	seen time.Time
	at   time.Duration
	// steps forward that were not taken back, the oldest first.
	steps []step
}

// step forward of the clock, at a time that it then showed.
type step struct {
	from time.Time
	by   time.Duration
}

// New returns a clock that has seen no step yet.
func New() *Clock {
	start := time.Now()
	return From(time.Now, func() time.Duration { return time.Since(start) })
}

// From returns a clock that shows one time, and knows by another one how long that took.
func From(wall func() time.Time, elapsed func() time.Duration) *Clock {
	return &Clock{wall: wall, elapsed: elapsed, seen: wall().Round(0), at: elapsed()}
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, elapsed := c.wall(), c.elapsed()
	shown, expected := now.Round(0), c.seen.Add(elapsed-c.at)
	c.seen, c.at = shown, elapsed
	by := shown.Sub(expected)
	if by >= smallest {
		c.steps = append(c.steps, step{from: expected, by: by})
	}
	for i, back := len(c.steps)-1, -by; i >= 0 && back >= smallest; i-- {
		taken := min(back, c.steps[i].by)
		back, c.steps[i].by = back-taken, c.steps[i].by-taken
	}
	c.steps = slices.DeleteFunc(c.steps, func(s step) bool { return s.by == 0 })
	return now
}

// Since is how long ago a time was by what the clock shows.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Steps are what is known of how a clock was set forward. They do not change.
type Steps []step

// Shift returns the time at which something began, as the clock would have shown it then had it been set before: what
// it was set forward by since then did not pass. No time stays none.
func (s Steps) Shift(t time.Time) time.Time {
	for _, step := range s {
		if !t.IsZero() && !t.After(step.from) {
			t = t.Add(step.by)
		}
	}
	return t
}

// StepsOf a clock as it is now; none of one that does not look for them.
func StepsOf(clock any) Steps {
	c, ok := clock.(*Clock)
	if !ok || c == nil {
		return nil
	}
	c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.steps)
}

// Shift is that of the clock's steps.
func Shift(clock any, t time.Time) time.Time { return StepsOf(clock).Shift(t) }
