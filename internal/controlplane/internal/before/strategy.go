// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package before

import (
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// fewestToRemoveFirst is the number of Machines from which on one may leave before its replacement comes: of three, two
// still are a quorum.
const fewestToRemoveFirst = 3

// replace rolls outdated Machines, one at a time, in the order that the strategy says: by a surge of one, where a new one
// joins, works and votes before an old one leaves; or the other way round.
func replace(s Snapshot) *Step {
	active, outdated := len(s.placed()), s.outdated()
	if outdated == 0 {
		return nil
	}
	leaver := s.pick()
	switch {
	case active > s.Replicas:
		if step := holdAddons(s, leaver); step != nil {
			return step
		}
		return remove(s, leaver, ReasonReplaced, s.placeTaken(leaver))
	case active < s.Replicas:
		// Never held up: until it votes, less can fail.
		return join(s, ReasonTakesPlace, fmt.Sprintf("%d of %d Machines exist: making one more, in place of one that left", active, s.Replicas))
	}
	if s.Strategy == RemoveFirst && s.Replicas < fewestToRemoveFirst {
		return &Step{Kind: Refuse, Reason: ReasonTooFewToRemove, Message: fmt.Sprintf("%d of %d Machines are outdated, but strategy "+
			"RemoveFirst needs %d replicas or more, and spec.replicas is %d: set spec.rollout.strategy to Surge or Auto",
			outdated, active, fewestToRemoveFirst, s.Replicas)}
	}
	if step := backUp(s); step != nil {
		return step
	}
	if s.castsNoVote(leaver) {
		// A user marked it, and its member does not work: nothing gets worse without it, and a surge would have to reckon with
		// a dead voter.
		return removeFirst(s, leaver)
	}
	switch {
	case s.Strategy == RemoveFirst:
		return removeFirst(s, leaver)
	case s.Spare.Free == 0 && s.Spare.Returning == 0 && s.Spare.Coming > 0:
		return wait(ReasonNoSpareHost, "%d of %d Machines are outdated; %s", outdated, active, s.coming()).about(leaver)
	case s.Spare.Free > 0 || s.Spare.Returning > 0:
		return join(s, ReasonSurge, fmt.Sprintf("%d of %d Machines are outdated: making a new one first", outdated, active))
	case s.Strategy == Surge:
		return wait(ReasonNoSpareHost, "%d of %d Machines are outdated, and strategy Surge makes a new one before an old one goes; %s",
			outdated, active, s.missing(leaver)).about(leaver)
	case s.Replicas < fewestToRemoveFirst:
		return wait(ReasonNoSpareHost, "%d of %d Machines are outdated, and with fewer than %d none can go before a new one came; %s",
			outdated, active, fewestToRemoveFirst, s.missing(leaver)).about(leaver)
	}
	if s.StackedEtcd {
		if verdict := s.mayDepart(leaver, s.removedFirst()); !verdict.Allowed {
			return wait(ReasonNoSpareHost, "%d of %d Machines are outdated, and Machine %s cannot go before a new one came: %s; %s",
				outdated, active, leaver.Name, verdict.Message, s.missing(leaver)).about(leaver)
		}
	}
	return removeFirst(s, leaver)
}

// removedFirst are the terms of a departure before the replacement: what is left must be a quorum.
func (s Snapshot) removedFirst() quorum.Terms {
	return quorum.Terms{Desired: s.Replicas, Lowered: true, DeadMemberTimeout: s.Patience}
}

// removeFirst lets an old Machine go, so that its replacement can have its host. Everything that the replacement needs is
// made ready before, and every other Machine works whole, because meanwhile less can fail.
func removeFirst(s Snapshot, leaver Machine) *Step {
	for _, machine := range s.placed() {
		if problem := s.shortcoming(machine); problem != "" && machine.Name != leaver.Name {
			return wait(ReasonMachineNotReady, "waiting for Machine %s, before Machine %s leaves without a replacement: %s",
				machine.Name, leaver.Name, problem).about(machine)
		}
	}
	if step := readyJoin(s); step != nil {
		return step
	}
	if step := holdAddons(s, leaver); step != nil {
		return step
	}
	step := remove(s, leaver, ReasonRemoveFirst, s.removedFirst())
	if step.Kind == DeleteMachine {
		step.Message = fmt.Sprintf("deleting Machine %s before its replacement is made: meanwhile %d Machines do the work of %d",
			leaver.Name, len(s.placed())-1, s.Replicas)
	}
	return step
}

// backUp sees to it that etcd can be restored before anything is replaced.
func backUp(s Snapshot) *Step {
	if !s.StackedEtcd || !s.Backup.Wanted || s.Backup.Recent {
		return nil
	}
	if !s.Backup.Requested {
		return &Step{Kind: RequestBackup, Reason: ReasonBackup,
			Message: fmt.Sprintf("asking for a snapshot of etcd before the next Machine is replaced: %s", s.Backup.Last)}
	}
	return wait(ReasonBackup, "waiting for a snapshot of etcd before the next Machine is replaced: %s", s.Backup.Last)
}
