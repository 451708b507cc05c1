// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// shortest and longest pause between two attempts that fail; each is twice the one before.
	shortest = time.Minute
	longest  = time.Hour
)

// Backoff paces attempts at Machines that fail, so that they are not made at every reconcile. Safe for concurrent use;
// its zero value is empty.
type Backoff struct {
	mu sync.Mutex
	// failed attempts by the UIDs of control planes and Machines.
	failed map[types.UID]Attempts
}

// Attempts at the Machines of one control plane that failed last, by the UIDs of the Machines.
type Attempts map[types.UID]attempt

type attempt struct {
	at    time.Time
	pause time.Duration
}

// Due reports whether it is time for an attempt at the Machine.
func (a Attempts) Due(machine types.UID, now time.Time) bool {
	last, failed := a[machine]
	return !failed || !now.Before(last.at.Add(last.pause))
}

// Only are the attempts at these Machines.
func (a Attempts) Only(machines map[types.UID]bool) Attempts {
	only := maps.Clone(a)
	maps.DeleteFunc(only, func(machine types.UID, _ attempt) bool { return !machines[machine] })
	return only
}

// Machines are those that there are attempts at.
func (a Attempts) Machines() map[types.UID]bool {
	machines := make(map[types.UID]bool, len(a))
	for machine := range a {
		machines[machine] = true
	}
	return machines
}

// Due reports whether it is time for an attempt at the Machine.
func (c *Backoff) Due(controlPlane, machine types.UID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed[controlPlane].Due(machine, now)
}

// Of are the attempts at a control plane's Machines.
func (c *Backoff) Of(controlPlane types.UID) Attempts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.failed[controlPlane])
}

// Note remembers how an attempt ended.
func (c *Backoff) Note(controlPlane, machine types.UID, now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		delete(c.failed[controlPlane], machine)
		return
	}
	pause := shortest
	if before, failed := c.failed[controlPlane][machine]; failed {
		pause = min(2*before.pause, longest)
	}
	if c.failed == nil {
		c.failed = map[types.UID]Attempts{}
	}
	if c.failed[controlPlane] == nil {
		c.failed[controlPlane] = Attempts{}
	}
	c.failed[controlPlane][machine] = attempt{at: now, pause: pause}
}

// Keep forgets the attempts at all other Machines of the control plane.
func (c *Backoff) Keep(controlPlane types.UID, machines map[types.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for machine := range c.failed[controlPlane] {
		if !machines[machine] {
			delete(c.failed[controlPlane], machine)
		}
	}
	if len(c.failed[controlPlane]) == 0 {
		delete(c.failed, controlPlane)
	}
}
