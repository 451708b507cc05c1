// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// drainDoubt is for how long a drain must look skipped until that is believed: Cluster API writes in one request where it has
// come to, and in the next one what it did there.
const drainDoubt = time.Second

// doubtCache remembers since when the drains of Machines look skipped. Safe for concurrent use; its zero value is empty. What
// a restart forgets only makes an eviction wait once more.
type doubtCache struct {
	mu    sync.Mutex
	since map[types.UID]map[string]time.Time
}

// settle makes Machines of which a skipped drain is not to be believed yet such that are drained, and tells whether there is
// any.
func (c *doubtCache) settle(uid types.UID, machines []controlplane.Machine, now time.Time, doubt time.Duration) (doubtful bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.since[uid], map[string]time.Time{}
	for i := range machines {
		machine := &machines[i]
		if !machine.Undrained {
			continue
		}
		first, seen := before[machine.Name]
		if !seen {
			first = now
		}
		after[machine.Name] = first
		if now.Sub(first) < doubt {
			machine.Undrained, machine.AtTermination, doubtful = false, false, true
		}
	}
	if c.since == nil {
		c.since = map[types.UID]map[string]time.Time{}
	}
	delete(c.since, uid)
	if len(after) > 0 {
		c.since[uid] = after
	}
	return doubtful
}
