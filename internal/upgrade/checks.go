// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	// fresh is how old a preflight may be that passed when the upgrade begins.
	fresh = 10 * time.Minute
	// preflightAgain and healthAgain are after how long a check that blocked is made again.
	preflightAgain, healthAgain = 5 * time.Minute, 30 * time.Second
	// keptChecks of each sort stay for people to compare.
	keptChecks = 3
)

// The sorts of checks, as their names have them.
const (
	Preflight = "preflight"
	Health    = "health"
)

// lookAtTheEnd are the checks that judge the Cluster as it is, and not its next version.
var lookAtTheEnd = []string{"ControlPlane", "Etcd", "Network", "Nodes"}

// healthSkip leaves out the checks that ask whether an upgrade may begin.
func healthSkip(all []string, skip []quoinv1.SkippedCheck) []quoinv1.SkippedCheck {
	skip = slices.Clone(skip)
	for _, name := range all {
		named := slices.ContainsFunc(skip, func(s quoinv1.SkippedCheck) bool { return s.Name == name })
		if !named && !slices.Contains(lookAtTheEnd, name) {
			skip = append(skip, quoinv1.SkippedCheck{Name: name,
				Reason: "it asks whether an upgrade may begin, and this one ends"})
		}
	}
	return skip
}

// ended says how the Cluster was at the end (S0-53): by the check that let the upgrade end, else by what it asks to
// skip.
func (t *deliberation) ended() string {
	skip, left := t.spec.Skip, []string(nil)
	if last := t.last(true); last != nil {
		skip = last.Skip
	}
	for _, name := range lookAtTheEnd {
		if slices.ContainsFunc(skip, func(s quoinv1.SkippedCheck) bool { return s.Name == name }) {
			left = append(left, name)
		}
	}
	skipped := strings.Join(left, ", ")
	switch len(left) {
	case 0:
		return "the Cluster was healthy at " + t.spec.Version
	case len(lookAtTheEnd):
		return fmt.Sprintf("the Cluster runs %s, and nobody looked whether it is healthy: spec.skip had %s left out",
			t.spec.Version, skipped)
	}
	return fmt.Sprintf("the Cluster was healthy at %s as far as was looked: spec.skip had %s left out", t.spec.Version,
		skipped)
}

// AllChecks are the names that spec.skip may have.
var AllChecks = []string{"Artifacts", "Backup", "Certificates", "Connectivity", "ControlPlane", "DeprecatedAPIs",
	"Disruption", "Etcd", "Management", "Network", "Nodes", "Supply", "VersionPath", "Volumes", "Webhooks"}

// last check of a sort, and nil when there is none.
func (t *deliberation) last(health bool) *Check {
	for i := range slices.Backward(t.Checks) {
		if t.Checks[i].Health == health {
			return &t.Checks[i]
		}
	}
	return nil
}

// preflight waits for a PreflightCheck that passes (S0-50). What was begun is not asked again: in the middle of a
// rollout it could only block.
func (t *deliberation) preflight(step *quoinv1.UpgradeStep) bool {
	last := t.last(false)
	t.start(step)
	switch {
	case t.begun():
		return true
	case last == nil || last.Moved || !slices.Equal(last.Skip, t.spec.Skip) || !slices.Equal(last.Via, t.spec.Via) ||
		last.Workers != t.spec.Workers:
		t.makeCheck(step, false, t.spec.Skip)
	case last.Completed.IsZero():
		t.runs(step, fmt.Sprintf("PreflightCheck %s is looking", last.Name))
	case last.Blocks:
		t.blocked(step, last, preflightAgain, quoinv1.BlockedReason, t.spec.Skip)
	case t.approved() && t.now.Sub(t.Steps.Shift(last.Completed)) > fresh:
		t.makeCheck(step, false, t.spec.Skip)
	default:
		return true
	}
	return false
}

// health has the Cluster looked at until all is well (S0-52, S0-53).
func (t *deliberation) health(step *quoinv1.UpgradeStep) bool {
	last, skip := t.last(true), healthSkip(AllChecks, t.spec.Skip)
	switch {
	case last != nil && last.Completed.IsZero(): // also one whose making was the last that a process did
		t.start(step)
		t.Status.PreflightCheck = last.Name
		t.runs(step, fmt.Sprintf("PreflightCheck %s is looking", last.Name))
	case last == nil || step.StartTime.IsZero() || last.Name != t.Status.PreflightCheck || !slices.Equal(last.Skip, skip):
		t.start(step)
		t.makeCheck(step, true, skip)
	case last.Blocks:
		t.blocked(step, last, healthAgain, quoinv1.UnhealthyReason, skip)
	default:
		return true
	}
	return false
}

// blocked tells what a check found, and has it made again after a while.
func (t *deliberation) blocked(
	step *quoinv1.UpgradeStep, last *Check, after time.Duration, reason string, skip []quoinv1.SkippedCheck,
) {
	left := t.Steps.Shift(last.Completed).Add(after).Sub(t.now)
	if left <= 0 {
		t.makeCheck(step, last.Health, skip)
		return
	}
	t.again(left)
	t.holds(step, reason, fmt.Sprintf("PreflightCheck %s blocks: %s. It is made again every %s", last.Name, last.Summary,
		after))
}

// makeCheck makes a further check, and deletes the oldest first when there are many.
func (t *deliberation) makeCheck(step *quoinv1.UpgradeStep, health bool, skip []quoinv1.SkippedCheck) {
	sort := map[bool]string{false: Preflight, true: Health}[health]
	attempt, same := t.Attempts[sort]+1, []Check(nil)
	for _, check := range t.Checks {
		if check.Health == health {
			attempt, same = max(attempt, check.Attempt+1), append(same, check)
		}
	}
	if len(same) >= keptChecks {
		t.do(Change{Kind: DeleteCheck, Check: same[0]})
	} else {
		name := fmt.Sprintf("%s-%s-%d", t.upgrade.Name, sort, attempt)
		t.do(Change{Kind: MakeCheck, Check: Check{Name: name, Health: health, Attempt: attempt, Skip: skip,
			Via: t.spec.Via, Workers: t.spec.Workers}})
		t.Status.PreflightCheck = name
	}
	t.runs(step, "a PreflightCheck is made")
}
