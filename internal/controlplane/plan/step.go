// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// haveReplaced is what a person can do about a Machine that will never work.
const haveReplaced = "have it replaced: annotate it with cluster.x-k8s.io/remediate-machine"

// refusedBy is why the quorum forbids something, and what a person can do about that.
func refusedBy(verdict quorum.Verdict) string { return verdict.Message + ". " + verdict.WayOut }

// wait is a step that waits for something else to happen.
func (s facts) wait(operation controlplane.Operation, reason, format string, args ...any) *controlplane.Step {
	after := controlplane.RecheckBusy
	switch {
	case s.DrainInGrace:
		after = controlplane.RecheckDrain
	case s.awaitsMember():
		after = controlplane.RecheckMember
	}
	return &controlplane.Step{Kind: controlplane.Wait, Operation: operation, RecheckAfter: after, Reason: reason,
		Message: fmt.Sprintf(format, args...)}
}

// waitFor is a step that waits for the Machine.
func (s facts) waitFor(machine controlplane.Machine, reason, format string, args ...any) *controlplane.Step {
	return s.wait(s.operationOf(machine), reason, format, args...).WithMachine(machine.Name)
}

// refusal is a step that waits for another spec.
func (s facts) refusal(operation controlplane.Operation, reason, format string, args ...any) *controlplane.Step {
	step := s.wait(operation, reason, format, args...)
	step.Kind = controlplane.Refuse
	return step
}

// change is a step that changes something.
func change(kind controlplane.Kind, operation controlplane.Operation, reason, format string,
	args ...any) *controlplane.Step {
	return &controlplane.Step{Kind: kind, Operation: operation, RecheckAfter: controlplane.RecheckStep, Reason: reason,
		Message: fmt.Sprintf(format, args...)}
}

// changeOf is a step that changes something of the Machine.
func (s facts) changeOf(machine controlplane.Machine, kind controlplane.Kind, reason, format string,
	args ...any) *controlplane.Step {
	return change(kind, s.operationOf(machine), reason, format, args...).WithMachine(machine.Name)
}

// depart is a step of the departure of the Machine.
func (s facts) depart(machine controlplane.Machine, kind controlplane.Kind, reason, format string,
	args ...any) *controlplane.Step {
	step := s.changeOf(machine, kind, reason, format, args...)
	step.MayProceed = true
	return step
}

// list joins names for a sentence and keeps it short.
func list(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", ..."
}

// ongoing is what a step is part of that is about no Machine, or about one that joins, whatever its name.
func (s facts) ongoing() controlplane.Operation { return s.during(s.upkeep()) }

// during is the operation, unless there is no cluster yet, or a Machine leaves meanwhile.
func (s facts) during(operation controlplane.Operation) controlplane.Operation {
	if !s.Initialized || s.Unanswered {
		return controlplane.Initialize
	}
	for _, machine := range s.Machines {
		if machine.Deleting {
			return s.departureOf(machine)
		}
	}
	return operation
}

// operationOf is what a step is part of that is about the Machine.
func (s facts) operationOf(machine controlplane.Machine) controlplane.Operation {
	switch {
	case s.Deleting || s.ClusterDeleting:
		return controlplane.Delete
	case !s.Initialized:
		return controlplane.Initialize
	case machine.Deleting:
		return s.departureOf(machine)
	}
	return s.upkeep()
}

// upkeep says what the Machines that stay lack.
func (s facts) upkeep() controlplane.Operation {
	if s.outdated() > 0 || len(s.active()) != s.Replicas || s.joining() != "" {
		return s.refill()
	}
	return controlplane.Repair
}

// refill says why a Machine is missing: what took one away goes on until its replacement is there.
func (s facts) refill() controlplane.Operation {
	if s.outdated() > 0 {
		return controlplane.Rollout
	}
	switch s.InFlight.Operation {
	case controlplane.Rollout, controlplane.Remediate, controlplane.Depart:
		if len(s.active()) >= s.Replicas-1 {
			return s.InFlight.Operation
		}
	}
	return controlplane.ScaleUp
}

// departureOf says why a Machine leaves. What was said when it was deleted holds; where nothing was, an outdated
// Machine leaves for a rollout, and another because somebody deleted it.
func (s facts) departureOf(machine controlplane.Machine) controlplane.Operation {
	if s.InFlight.Machine == machine.Name {
		switch s.InFlight.Operation {
		case controlplane.ScaleDown, controlplane.Rollout, controlplane.Remediate, controlplane.Depart:
			return s.InFlight.Operation
		}
	}
	if !machine.UpToDate {
		return controlplane.Rollout
	}
	return controlplane.Depart
}
