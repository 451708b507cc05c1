// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// auto surges while a matching host is free, else removes first where the quorum allows it, else waits.
type auto struct{}

func (auto) fit(facts) *controlplane.Step { return nil }

func (auto) leavesFirst() bool { return false }

func (auto) replace(s facts, leaving controlplane.Machine) *controlplane.Step {
	if step := joinFirst(s, leaving); step != nil {
		return step
	}
	if s.Replicas < controlplane.FewestToRemoveFirst {
		return s.waitFor(leaving, controlplane.ReasonNoSpareHost,
			"%d of %d Machines are outdated, and with fewer than %d none can go before a new one came; %s",
			s.outdated(), s.Replicas, controlplane.FewestToRemoveFirst, s.missingHost(leaving))
	}
	if verdict := s.mayDepart(leaving, s.removedFirst()); s.StackedEtcd && !verdict.Allowed {
		return s.waitFor(leaving, controlplane.ReasonNoSpareHost,
			"%d of %d Machines are outdated, and Machine %s cannot go before a new one came: %s; %s",
			s.outdated(), s.Replicas, leaving.Name, verdict.Message, s.missingHost(leaving))
	}
	return removeFirst{}.replace(s, leaving)
}
