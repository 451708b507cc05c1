// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// sinceCache remembers since when something has been so with parts of control planes. Safe for concurrent use; its zero value is
// empty. What a restart forgets only makes somebody wait once more.
type sinceCache[K comparable] struct {
	mu    sync.Mutex
	since map[types.UID]map[K]time.Time
}

// note tells of the parts with which it is so now since when that was seen. All others of the control plane begin anew.
func (c *sinceCache[K]) note(uid types.UID, now time.Time, parts []K) map[K]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.since[uid], make(map[K]time.Time, len(parts))
	for _, part := range parts {
		first, seen := before[part]
		if !seen {
			first = now
		}
		after[part] = first
	}
	if c.since == nil {
		c.since = map[types.UID]map[K]time.Time{}
	}
	delete(c.since, uid)
	if len(after) > 0 {
		c.since[uid] = after
	}
	return after
}

// forget drops what is remembered of a control plane that is going.
func (c *sinceCache[K]) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, uid)
}
