// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// memberPatience is how long an etcd voter must be silent until it counts as dead. It is longer than a restart of etcd with a
// usual database takes, and several readings.
const memberPatience = 30 * time.Second

// silenceCache remembers since when etcd members have not been healthy. Safe for concurrent use; its zero value is empty.
// What a restart forgets only makes departures wait once more.
type silenceCache struct {
	mu    sync.Mutex
	since map[types.UID]map[uint64]time.Time
}

// note adds to the members of a control plane how long they have not been healthy. A reading that failed proves nothing
// about the members, so silence before it still counts; a member that was seen healthy begins anew.
func (c *silenceCache) note(uid types.UID, m *quorum.Membership, now time.Time) {
	if !m.Known {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.since[uid], map[uint64]time.Time{}
	for i := range m.Members {
		member := &m.Members[i]
		if member.Healthy {
			continue
		}
		first, seen := before[member.ID]
		if !seen {
			first = now
		}
		after[member.ID] = first
		member.Silent = now.Sub(first)
	}
	if c.since == nil {
		c.since = map[types.UID]map[uint64]time.Time{}
	}
	delete(c.since, uid)
	if len(after) > 0 {
		c.since[uid] = after
	}
}

// forget drops what is remembered of a control plane that is going.
func (c *silenceCache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, uid)
}
