// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import "time"

// Timings are how soon the controller looks at a host again, and for how long what it saw counts.
type Timings struct {
	// Poll is how long one look at a running plan waits on the host for news, and so how often its step is reported.
	// PollPause lies between two looks: where the host cannot wait they are no storm.
	Poll, PollPause time.Duration
	// Probe is how often a host that nothing happens to is asked whether it is there.
	Probe time.Duration
	// Inspect is how soon the facts of a host are read again that lacks something.
	Inspect time.Duration
	// RetryFirst and RetryLast bound the distance between two attempts that fail.
	RetryFirst, RetryLast time.Duration
	// Power lies between two orders to a BMC that fails.
	Power time.Duration
	// BMC is how often a BMC is asked that nobody needs at the moment, and BMCRetry how soon again when it did not do. One
	// that refuses the account is not asked more often: BMCs lock accounts.
	BMC, BMCRetry time.Duration
	// Call is what a call with a host has at least, where it has not more anyway.
	Call time.Duration
	// Push is how soon a host asks again whether it may be sent files, and says that its call waits for those of others.
	Push time.Duration
	// Stage is how soon what could not be staged is tried again.
	Stage time.Duration
	// Isolate is how often the quarantine is written to a host on which that failed.
	Isolate time.Duration
	// Vouch is how long what another host showed counts.
	Vouch time.Duration
	// Next is how soon to look again at what the host's own change does not bring about.
	Next time.Duration
	// Longest bounds the time between two looks, so that a lost event delays and never stops anything.
	Longest time.Duration
}

// DefaultTimings are those of real hosts.
func DefaultTimings() Timings {
	return Timings{
		Poll: 3 * time.Second, PollPause: 300 * time.Millisecond,
		Probe:      3 * time.Minute,
		Inspect:    time.Minute,
		RetryFirst: 5 * time.Second, RetryLast: 5 * time.Minute,
		Power: time.Minute,
		BMC:   24 * time.Hour, BMCRetry: time.Hour,
		Call:    shortCall,
		Push:    10 * time.Second,
		Stage:   10 * time.Minute,
		Isolate: 10 * time.Minute,
		Vouch:   time.Minute,
		Next:    time.Second,
		Longest: longest,
	}
}

// distance is the time between a call's n-th failure in a row and the next attempt: it doubles up to a bound, and
// jitter in [0, 1) takes up to a fifth off, so that hosts which failed together do not come back together.
func (t Timings) distance(n int32, jitter float64) time.Duration {
	d := t.RetryLast
	if shift := n - 1; shift < 6 {
		d = min(t.RetryFirst<<shift, t.RetryLast)
	}
	return d - time.Duration(jitter*float64(d)/5)
}

// furthest is how far an attempt is put off at most.
func (t Timings) furthest() time.Duration {
	return max(t.RetryFirst, t.RetryLast, t.Inspect, bootTime/10)
}

func (r *reconciliation) timings() Timings { return r.controller.Timings }
