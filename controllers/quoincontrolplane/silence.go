// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// memberPatience is how long an etcd voter must be silent until it counts as dead. It is longer than a restart of etcd with a
// usual database takes, and several readings.
const memberPatience = 30 * time.Second

// silenceCache remembers since when etcd members have not been healthy.
type silenceCache struct{ sinceCache[uint64] }

// note adds to the members of a control plane how long they have not been healthy. A reading that failed proves nothing
// about the members, so silence before it still counts; a member that was seen healthy begins anew.
func (c *silenceCache) note(uid types.UID, m *quorum.Membership, now time.Time) {
	if !m.Known {
		return
	}
	var silent []uint64
	for _, member := range m.Members {
		if !member.Healthy {
			silent = append(silent, member.ID)
		}
	}
	since := c.sinceCache.note(uid, now, silent)
	for i := range m.Members {
		if member := &m.Members[i]; !member.Healthy {
			member.Silent = now.Sub(since[member.ID])
		}
	}
}
