// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// most entries of a memory that is emptied when it is full; forgetting costs one apply, or one repeated event, per
// object.
const most = 10000

// Applied names what one field manager applied to an object of a control plane.
type Applied struct {
	ControlPlane, Object types.UID
	Manager              string
}

// Digests are those of what was applied to objects. Safe for concurrent use; its zero value is empty.
type Digests struct {
	mu      sync.Mutex
	digests map[Applied]uint64
}

// Is reports whether this was applied last.
func (c *Digests) Is(key Applied, digest uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.digests[key]
	return ok && known == digest
}

// Set remembers what was applied.
func (c *Digests) Set(key Applied, digest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.digests == nil || len(c.digests) >= most {
		c.digests = map[Applied]uint64{}
	}
	c.digests[key] = digest
}

// Forget drops what was applied to an object that goes.
func (c *Digests) Forget(key Applied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.digests, key)
}

func (c *Digests) forget(controlPlane types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.digests, func(key Applied, _ uint64) bool { return key.ControlPlane == controlPlane })
}

// Deduplicator holds events back that say what the last one of their control plane said: a retry says the same every
// few seconds. Safe for concurrent use; its zero value is empty.
type Deduplicator struct {
	mu   sync.Mutex
	last map[types.UID]string
}

// New reports whether the event differs from the control plane's last one, and remembers it.
func (c *Deduplicator) New(controlPlane types.UID, event string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if said, ok := c.last[controlPlane]; ok && said == event {
		return false
	}
	if c.last == nil || len(c.last) >= most {
		c.last = map[types.UID]string{}
	}
	c.last[controlPlane] = event
	return true
}

func (c *Deduplicator) forget(controlPlane types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, controlPlane)
}
