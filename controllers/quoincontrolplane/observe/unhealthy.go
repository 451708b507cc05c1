// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// noteUnhealthy adds to the members of a control plane how long they have not been healthy. A reading that failed
// proves nothing about the members, so silence before it still counts; a member that was seen healthy begins anew.
func noteUnhealthy(h *history.History, plane types.UID, m *quorum.Membership, now time.Time) {
	if !m.Known {
		return
	}
	var unhealthy []uint64
	for _, member := range m.Members {
		if !member.Healthy {
			unhealthy = append(unhealthy, member.ID)
		}
	}
	since := h.Unhealthy.Note(plane, now, unhealthy)
	for i := range m.Members {
		if member := &m.Members[i]; !member.Healthy {
			member.Silent = now.Sub(since[member.ID])
		}
	}
}

// debounceDrains makes Machines of which a skipped drain is not to be believed yet such that are drained, and reports
// whether there is any.
func debounceDrains(
	h *history.History, plane types.UID, machines []controlplane.Machine, now time.Time, grace time.Duration,
) (inGrace bool) {
	var undrained []string
	for _, machine := range machines {
		if machine.Undrained {
			undrained = append(undrained, machine.Name)
		}
	}
	since := h.Undrained.Note(plane, now, undrained)
	for i := range machines {
		if machine := &machines[i]; machine.Undrained && now.Sub(since[machine.Name]) < grace {
			machine.Undrained, machine.AtTermination, inGrace = false, false, true
		}
	}
	return inGrace
}
