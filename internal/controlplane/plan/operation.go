// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"

// ongoing is what a step is part of that is about no Machine, or about one that joins, whatever its name.
func (s facts) ongoing() controlplane.Operation { return s.during(s.upkeep()) }

// during is the operation, unless there is no cluster yet, or a Machine leaves meanwhile.
func (s facts) during(operation controlplane.Operation) controlplane.Operation {
	if !s.Initialized {
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
