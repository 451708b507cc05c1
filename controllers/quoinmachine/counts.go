// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

const (
	// countsEvery lies between two counts of the hosts that a QuoinMachine cannot have. They are for people, and no claim
	// waits for them.
	countsEvery = 15 * time.Second
	// mostCounted bounds the memory; who is forgotten counts anew.
	mostCounted = 1000
)

// counts remembers why no host could be claimed, for all QuoinMachines that ask for the same. Hundreds may wait for
// hosts of a fleet of thousands: the fleet is counted once for all of them, and not again while it is as it was. The
// zero value is ready.
type counts struct {
	// changes of hosts that count, since the process began.
	changes atomic.Int64

	waking sync.Mutex
	// woken is when those that wait are next woken to see what has changed.
	woken time.Time

	mu   sync.Mutex
	last map[ask]count
}

// ask is what the counts depend on beside the hosts.
type ask struct {
	namespace, accepted, cluster, selector, domain, version string
	failCgroupV1                                            bool
}

type count struct {
	at      time.Time
	changes int64
	result  placement.Result
}

// changed notes that a host changed, and reports whether those that wait are to be woken for that. They are not while
// they will be anyhow.
func (c *counts) changed(now time.Time) bool {
	c.changes.Add(1)
	c.waking.Lock()
	defer c.waking.Unlock()
	if now.Before(c.woken) {
		return false
	}
	c.woken = now.Add(countsEvery)
	return true
}

// of returns the counts, and in how long they are to be asked for again; zero when the next change is an event. look
// counts; what finds a host is not remembered.
func (c *counts) of(
	key ask, now time.Time, look func() (placement.Result, error),
) (placement.Result, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes := c.changes.Load()
	if last, ok := c.last[key]; ok {
		left := last.at.Add(countsEvery).Sub(now)
		switch {
		case last.changes == changes:
			return last.result, 0, nil
		case left > 0:
			return last.result, left, nil
		}
	}
	result, err := look()
	if err != nil || result.Chosen != nil {
		return result, 0, err
	}
	if c.last == nil || len(c.last) >= mostCounted {
		c.last = map[ask]count{}
	}
	c.last[key] = count{now, changes, result}
	return result, 0, nil
}
