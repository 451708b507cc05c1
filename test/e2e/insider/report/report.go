// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report is what a client inside the workload cluster writes down, and the test reads.
package report

import (
	"fmt"
	"time"
)

// Report of both kinds of requests, of the renewals of the scheduler's lease, and of names that were resolved.
type Report struct {
	Reads, Writes, Schedulers, Names Gaps
}

// Calls are what a caller has seen of a workload. It counts from the first answer on: before that nothing leads from its new Node
// to the workload yet.
type Calls struct {
	// Pod that calls, on Node.
	Pod, Node string
	Gaps      Gaps
	// Failures are how the first few requests failed, with when.
	Failures []string
	// Ended says that the caller was told to end, and calls no more.
	Ended bool
}

// maxFailures bounds what is kept of failures.
const maxFailures = 20

// Note a request that began and ended.
func (c *Calls) Note(began, ended time.Time, err error) {
	if err != nil && c.Gaps.Successes == 0 {
		return
	}
	c.Gaps.Note(began, ended, err)
	if err != nil && len(c.Failures) < maxFailures {
		c.Failures = append(c.Failures, fmt.Sprintf("%s from %s: %v", ended.Format(time.TimeOnly), c.Node, err))
	}
}

// Gaps are the times without a success.
type Gaps struct {
	Successes, Failures int
	// Last is when the last success came.
	Last time.Time
	// Longest time between two successes, Until when it lasted, and how an attempt in it failed.
	Longest time.Duration
	Until   time.Time
	Failure string
	// Pending is how an attempt failed since the last success.
	Pending string
}

// Note an attempt that began and ended. A request that is answered late is a gap as one that is not answered.
func (g *Gaps) Note(began, ended time.Time, err error) {
	if err != nil {
		g.Pending = err.Error()
		g.Failures++
		return
	}
	from := g.Last
	if from.IsZero() {
		from = began
	}
	if gap := ended.Sub(from); gap > g.Longest {
		g.Longest, g.Until, g.Failure = gap, ended, g.Pending
	}
	g.Last, g.Pending = ended, ""
	g.Successes++
}

// String says how long the longest gap was, when it ended, and how an attempt in it failed.
func (g Gaps) String() string {
	text := fmt.Sprintf("%s of %d", g.Longest.Round(time.Millisecond), g.Successes)
	if g.Failure != "" {
		text += fmt.Sprintf(" (until %s: %s)", g.Until.Format(time.TimeOnly), g.Failure)
	}
	return text
}
