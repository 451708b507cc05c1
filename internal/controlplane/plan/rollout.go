// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// replace rolls outdated Machines, one at a time, in the order that the strategy says: by a surge of one, where a new
// one joins, works and votes before an old one leaves; or the other way round.
func replace(s facts) *controlplane.Step {
	active, outdated := len(s.scheduled()), s.outdated()
	if outdated == 0 {
		return nil
	}
	leaving := s.pick()
	switch {
	case active > s.Replicas:
		if step := holdAddons(s, leaving); step != nil {
			return step
		}
		return remove(s, leaving, controlplane.Rollout, controlplane.ReasonReplaced, s.placeTaken())
	case active < s.Replicas:
		// Never held up by what a rollout waits for: until it votes, less can fail.
		return join(s, controlplane.ReasonTakesPlace,
			fmt.Sprintf("%d of %d Machines exist: making one more, in place of one that left", active, s.Replicas))
	}
	if step := beforeRollout(s); step != nil {
		return step
	}
	if s.memberState(leaving) == quorum.MemberDead {
		// A user marked it, and its member does not work: nothing gets worse without it, and a surge would have to reckon
		// with a dead voter.
		return leaveFirst(s, leaving)
	}
	return s.strategy().replace(s, leaving)
}

// strategy is an order in which an outdated Machine and its replacement come and go.
type strategy interface {
	// fit refuses a spec that cannot be rolled in this order; nil when it can.
	fit(s facts) *controlplane.Step
	// replace is what comes next for the Machine that leaves, while there are as many as are wanted.
	replace(s facts, leaving controlplane.Machine) *controlplane.Step
	// leavesFirst reports whether a Machine may always go before its replacement votes, if a quorum is left.
	leavesFirst() bool
}

// strategy is the one that the user wants.
func (s facts) strategy() strategy {
	switch s.Strategy {
	case controlplane.Surge:
		return surge{}
	case controlplane.RemoveFirst:
		return removeFirst{}
	}
	return auto{}
}

// mendedByReplacement names the Machine that a rollout replaces next, if what is wrong with it needs no waiting for:
// its etcd member works, or a user marked it to go. A member that is silent for a while comes back sooner than a new
// one joins.
func (s facts) mendedByReplacement() string {
	leaving := s.pick()
	if leaving.Node == "" || s.memberShortcoming(leaving) != "" &&
		(!leaving.Preferred || s.memberState(leaving) != quorum.MemberDead) {
		return ""
	}
	return leaving.Name
}

// dropOutdated deletes an outdated Machine that never joined, beside another one that stays or is kept: nothing has to
// be waited for.
func dropOutdated(s facts) *controlplane.Step {
	active := s.active()
	beside := len(active) > 1 || slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
		return machine.Deleting && machine.Hooked() && machine.Node != ""
	})
	for _, machine := range active {
		if !machine.UpToDate && beside && s.neverJoined(machine) {
			return s.changeOf(machine, controlplane.DeleteMachine, controlplane.ReasonReplaced,
				"Machine %s is outdated and never joined", machine.Name)
		}
	}
	return nil
}
