// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// unblock lets remediation go before Machines that are being deleted and kept. What they wait for may be a member that
// nobody but remediation takes away, and a leaver that nobody can help must not keep others from help. Only what casts
// no vote goes: that leaves no gap which the departure of a kept Machine could make larger, and a kept one stays as
// long as its own verdict says so. Nothing goes while a departure makes progress, for it ends by itself.
func unblock(s facts, kept []*controlplane.Step) *controlplane.Step {
	if slices.ContainsFunc(kept, func(step *controlplane.Step) bool {
		return step.Reason != controlplane.ReasonQuorum && step.Reason != controlplane.ReasonNoSpareHost &&
			step.Reason != controlplane.ReasonOneAtATime &&
			step.Reason != controlplane.ReasonMemberWithoutMachine
	}) {
		return nil
	}
	if s.first(reportQuorumLoss, requireReachability) != nil {
		return nil
	}
	if step := dropOrphanedMembers(s); step != nil && !step.Waiting() {
		return step
	}
	step := remediate(s)
	if step == nil {
		return nil
	}
	switch step.Kind {
	case controlplane.RemoveEtcdMember:
		return step
	case controlplane.DeleteMachine:
		if member := s.memberNamed(step.Machine); member == nil || member.Learner || s.dead(member) {
			return step
		}
	}
	return nil
}
