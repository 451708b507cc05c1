// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// toldCache remembers the last event of each control plane. Safe for concurrent use; its zero value is empty.
type toldCache struct {
	mu   sync.Mutex
	last map[types.UID]string
}

// mostTold bounds the memory; forgetting costs one repeated event per object.
const mostTold = 10000

// news tells whether the message differs from the object's last one, and remembers it.
func (c *toldCache) news(uid types.UID, message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if said, ok := c.last[uid]; ok && said == message {
		return false
	}
	if c.last == nil || len(c.last) >= mostTold {
		c.last = map[types.UID]string{}
	}
	c.last[uid] = message
	return true
}
