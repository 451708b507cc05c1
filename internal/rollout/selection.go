// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// needsUpdate reports whether the Machine is at the present template and is to be replaced all the same. One that is
// outdated is replaced anyway, and one that waits has nothing to replace (S3-3, S3-5).
func (m Machine) needsUpdate() bool {
	return m.NeedsUpdate != "" && (m.stage() == counts || m.stage() == inFlight)
}

// replaceSelected deletes one Machine that a person selected; its MachineSet makes another one at the same template.
// Cluster API's planner knows no such selection, so that no surge precedes it, and as many are deleted as may be
// missing.
func (p *planner) replaceSelected(pool *rules) {
	if victim, _, _ := p.nextSelected(pool); victim != nil {
		p.result.Decisions = append(p.result.Decisions, Decision{Pool: pool.Name, Machine: victim.Name, Action: Delete,
			Reason: Selected, Message: victim.NeedsUpdate})
	}
}

// nextSelected is the selected Machine that is deleted now; without one it says why, unless none is selected. One
// that is not healthy is the first, or else the oldest.
func (p *planner) nextSelected(pool *rules) (victim *Machine, reason Reason, why string) {
	fresh := 0
	for i := range pool.Machines {
		m := &pool.Machines[i]
		switch {
		case m.needsUpdate() && (victim == nil || m.Unhealthy != "" && victim.Unhealthy == ""):
			victim = m
		case m.stage() == counts && m.NeedsUpdate == "":
			fresh++
		}
	}
	if victim == nil {
		return nil, "", ""
	}
	says := fmt.Sprintf("Machine %s is to be replaced (%s)", victim.Name, victim.NeedsUpdate)
	if slices.ContainsFunc(pool.Machines, func(m Machine) bool { return m.Outdated }) {
		return nil, RollingOut, says + " when the outdated ones are"
	}
	// What would hold one more Machine holds this as well, but for the limits, which follow.
	if reason, why := p.holds(pool, &room{}); reason != "" {
		return nil, reason, says + ": " + why
	}
	if reason, why := p.validatesFirst(pool, &room{}); reason != "" {
		return nil, reason, says + ": " + why
	}
	missing := min(pool.limits.Unavailable, max(0, pool.Replicas-pool.least))
	if p.policy.WhenNoSpare == quoinv1.RolloutWithoutSpareRemoveFirst {
		missing = max(missing, 1)
	}
	if missing == 0 {
		return nil, Limited, fmt.Sprintf("%s, and no Machine may be missing meanwhile: set maxUnavailable of "+
			"MachineDeployment %s to 1 or more, or spec.whenNoSpare to RemoveFirst", says, pool.Name)
	}
	if fresh == 0 {
		missing = 1 // none that was replaced shows yet that it works (S3-26)
	}
	have := pool.inService()
	if victim.Unhealthy == "" && !victim.Gated {
		have--
	}
	if have < pool.Replicas-missing || pool.Replicas == 0 {
		return nil, RollingOut, fmt.Sprintf("%s: %d of %d Machines are available, and %d may be missing", says,
			pool.inService(), pool.Replicas, missing)
	}
	return victim, RollingOut, says
}
