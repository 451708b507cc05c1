// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// removedFirst are the terms of a departure before the replacement: what is left must be a quorum.
func (s facts) removedFirst() quorum.Terms {
	return quorum.ToLeaveFirst(s.Replicas, s.DeadMemberTimeout)
}

// removeFirst lets the old member go first; its replacement takes the host that becomes free.
type removeFirst struct{}

func (removeFirst) fit(s facts) *controlplane.Step {
	if s.Replicas >= controlplane.FewestToRemoveFirst {
		return nil
	}
	return s.refusal(s.during(controlplane.Rollout), controlplane.ReasonTooFewToRemove,
		"%d of %d Machines are outdated, but strategy RemoveFirst needs %d replicas or more, and spec.replicas is %d: "+
			"set spec.rollout.strategy to Surge or Auto", s.outdated(), s.Replicas, controlplane.FewestToRemoveFirst, s.Replicas)
}

func (removeFirst) leavesFirst() bool { return true }

func (removeFirst) replace(s facts, leaving controlplane.Machine) *controlplane.Step {
	outdated := fmt.Sprintf("%d of %d Machines are outdated", s.outdated(), len(s.scheduled()))
	return cmp.Or(s.keepWhoseHostIsLost(leaving, outdated), leaveFirst(s, leaving))
}

// keepWhoseHostIsLost keeps a Machine that would leave first when its replacement could have neither its host nor
// another: etcd would be without that member until somebody registers one. meanwhile begins the sentence.
func (s facts) keepWhoseHostIsLost(leaving controlplane.Machine, meanwhile string) *controlplane.Step {
	if leaving.Returns || s.Spare.Free > 0 || s.Spare.Returning > 0 {
		return nil
	}
	why := ""
	if leaving.NoReturn != "" {
		why = " (" + leaving.NoReturn + ")"
	}
	help := s.missingHost(leaving)
	if s.Spare.Pending > 0 {
		help = s.pendingHost()
	}
	return s.waitFor(leaving, controlplane.ReasonNoSpareHost, "%s, and the host of Machine %s could not be claimed "+
		"again%s; %s", meanwhile, leaving.Name, why, help)
}

// leaveFirst lets an old Machine go, so that its replacement can have its host. Everything that the replacement needs
// is made ready before, and every other Machine works whole, because meanwhile less can fail.
func leaveFirst(s facts, leaving controlplane.Machine) *controlplane.Step {
	for _, machine := range s.scheduled() {
		if problem := s.shortcoming(machine); problem != "" && machine.Name != leaving.Name {
			return s.waitFor(machine, controlplane.ReasonMachineNotReady,
				"waiting for Machine %s, before Machine %s leaves without a replacement: %s", machine.Name, leaving.Name,
				s.explained(machine, problem))
		}
	}
	if step := beforeJoin(s); step != nil {
		return step
	}
	if step := holdAddons(s, leaving); step != nil {
		return step
	}
	step := remove(s, leaving, controlplane.Rollout, controlplane.ReasonRemoveFirst, s.removedFirst())
	if step.Kind == controlplane.DeleteMachine {
		step.Message = fmt.Sprintf("deleting Machine %s before its replacement is made: meanwhile %d Machines do the work "+
			"of %d", leaving.Name, len(s.scheduled())-1, s.Replicas)
	}
	return step
}
