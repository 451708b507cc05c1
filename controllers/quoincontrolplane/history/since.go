// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Since tracks since when something has been so with parts of control planes. Safe for concurrent use; its zero value
// is empty.
type Since[K comparable] struct {
	mu    sync.Mutex
	since map[types.UID]map[K]time.Time
}

// Note returns, for the parts with which it is so now, since when that was seen. All others of the control plane begin
// anew.
func (c *Since[K]) Note(controlPlane types.UID, now time.Time, parts []K) map[K]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.since[controlPlane], make(map[K]time.Time, len(parts))
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
	delete(c.since, controlPlane)
	if len(after) > 0 {
		c.since[controlPlane] = after
	}
	return after
}

func (c *Since[K]) forget(controlPlane types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, controlPlane)
}
