// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Since tracks since when something has been so with parts of control planes. Safe for concurrent use; its zero value
// is empty.
type Since[K comparable] struct {
	mu    sync.Mutex
	since map[types.UID]map[K]time.Time
	noted map[types.UID]time.Time
}

// longestGap may lie between two observations of which the second goes on with the first. Nobody knows what was in a
// longer one, such as a pause: two misses an hour apart are no hour of silence. The idlest control plane is observed
// several times within it.
const longestGap = 5 * time.Minute

// Note returns, for the parts with which it is so now, since when that was seen. All others of the control plane begin
// anew, and so does everything after a gap, or when the clock was set back.
func (c *Since[K]) Note(controlPlane types.UID, now time.Time, parts []K) map[K]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.since[controlPlane], make(map[K]time.Time, len(parts))
	if gap := now.Sub(c.noted[controlPlane]); gap < 0 || gap > longestGap {
		before = nil
	}
	for _, part := range parts {
		first, seen := before[part]
		if !seen {
			first = now
		}
		after[part] = first
	}
	if c.since == nil {
		c.since, c.noted = map[types.UID]map[K]time.Time{}, map[types.UID]time.Time{}
	}
	delete(c.since, controlPlane)
	delete(c.noted, controlPlane)
	if len(after) > 0 {
		c.since[controlPlane], c.noted[controlPlane] = after, now
	}
	return after
}

// Last are the parts of the control plane with which it was so when that was noted last.
func (c *Since[K]) Last(controlPlane types.UID) []K {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.since[controlPlane]))
}

func (c *Since[K]) forget(controlPlane types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, controlPlane)
	delete(c.noted, controlPlane)
}
