// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstLookAgain and longestLookAgain lie between two looks at a host that showed nothing; each is twice the one before.
	firstLookAgain   = time.Minute
	longestLookAgain = time.Hour
)

// lookCache remembers which looks at Machines failed, so that they are not made at every reconcile. Safe for concurrent use;
// its zero value is empty. What a restart forgets only makes a look come early.
type lookCache struct {
	mu sync.Mutex
	// failed looks by the UIDs of control planes and Machines.
	failed map[types.UID]map[types.UID]failedLook
}

type failedLook struct {
	at    time.Time
	pause time.Duration
}

// due tells that it is time to look at the Machine.
func (c *lookCache) due(plane, machine types.UID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	look, failed := c.failed[plane][machine]
	return !failed || !now.Before(look.at.Add(look.pause))
}

// note remembers how a look ended.
func (c *lookCache) note(plane, machine types.UID, now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		delete(c.failed[plane], machine)
		return
	}
	pause := firstLookAgain
	if before, failed := c.failed[plane][machine]; failed {
		pause = min(2*before.pause, longestLookAgain)
	}
	if c.failed == nil {
		c.failed = map[types.UID]map[types.UID]failedLook{}
	}
	if c.failed[plane] == nil {
		c.failed[plane] = map[types.UID]failedLook{}
	}
	c.failed[plane][machine] = failedLook{at: now, pause: pause}
}

// keep forgets the looks at all other Machines of the control plane.
func (c *lookCache) keep(plane types.UID, machines map[types.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for machine := range c.failed[plane] {
		if !machines[machine] {
			delete(c.failed[plane], machine)
		}
	}
	if len(c.failed[plane]) == 0 {
		delete(c.failed, plane)
	}
}
