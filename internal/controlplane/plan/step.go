// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

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
