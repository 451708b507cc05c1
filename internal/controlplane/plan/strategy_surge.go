// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// surge lets the replacement vote before the old member goes, and waits for a host as long as it takes.
type surge struct{}

func (surge) fit(facts) *controlplane.Step { return nil }

func (surge) leavesFirst() bool { return false }

func (surge) replace(s facts, leaving controlplane.Machine) *controlplane.Step {
	if step := joinFirst(s, leaving); step != nil {
		return step
	}
	return s.waitFor(leaving, controlplane.ReasonNoSpareHost,
		"%d of %d Machines are outdated, and strategy Surge makes a new one before an old one goes; %s",
		s.outdated(), s.Replicas, s.missingHost(leaving))
}

// joinFirst makes a new Machine before the old one leaves, or waits for its host; nil when there will be none.
func joinFirst(s facts, leaving controlplane.Machine) *controlplane.Step {
	switch {
	case s.Spare.Free > 0 || s.Spare.Returning > 0:
		return join(s, controlplane.ReasonSurge,
			fmt.Sprintf("%d of %d Machines are outdated: making a new one first", s.outdated(), s.Replicas))
	case s.Spare.Pending > 0:
		return s.waitFor(leaving, controlplane.ReasonNoSpareHost, "%d of %d Machines are outdated; %s", s.outdated(),
			s.Replicas, s.pendingHost())
	}
	return nil
}
