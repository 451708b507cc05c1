// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// maxResets is how often a reset is tried before a person is asked.
	maxResets = 3
	// maxVerifications is how often a reset is read back before a person is asked.
	maxVerifications = 5
)

// ownerlessPlan begins the IDs of the plans that clean hosts which nobody has, at a person's word.
const ownerlessPlan = "scrub-"

// ownerlessCleaning says that the operation on the host cleans it without a claim.
func (r *reconciliation) ownerlessCleaning() bool {
	return r.host.Status.Operation != nil && strings.HasPrefix(r.host.Status.Operation.ID, ownerlessPlan)
}

// cleaning resets the host and proves that nothing is left. Then it waits for the claim's Machine, and with it the
// Node, to go: a host that is used again before that would answer to the old Node.
func (r *reconciliation) cleaning(ctx context.Context) (result, error) {
	if r.host.Released() {
		return r.release(ctx)
	}
	if o := r.wake(); o.pending {
		return o.result, nil
	}
	id := r.resetID()
	order := r.cleanOrder(id)
	if operation := r.host.Status.Operation; operation != nil && operation.Succeeded() && staged(operation.Step) {
		// It was verified once; where that was all that a person asked for, the host knows no plan of this name.
		return r.verify(ctx, order)
	}
	status, o := r.follow(ctx, id)
	if o.pending {
		return o.result, nil
	}
	switch status.Phase {
	case run.NotStarted:
		if r.maintenanceGate("the reset") {
			return onEvent(), nil
		}
		if r.host.Status.CleaningFailsSince == nil {
			// Else what the last attempt ended with stays until one succeeds.
			r.setFalse(infrav1.HostCleanCondition, infrav1.HostCleaningReason, "the reset is about to start")
		}
		if o := start(ctx, r, id, order, r.controller.Provisioner.Clean); o.pending {
			return o.result, nil
		}
		r.host.Status.CleaningFailsSince = nil
		r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostCleaningReason, "the host is being reset")
		return r.started(id)
	case run.Succeeded:
		return r.verify(ctx, order)
	case run.Failed, run.Interrupted:
		message := fmt.Sprintf("the reset failed: %s", status.Message)
		r.setFalse(infrav1.HostCleanCondition, infrav1.HostStepFailedReason, message)
		r.event("Warning", infrav1.HostStepFailedReason, "%s", message)
		if attemptOf(id, r.resetPlan()) >= maxResets {
			return r.quarantine(infrav1.HostStepFailedReason, message)
		}
		r.record(nextAttempt(id, r.resetPlan()), run.Status{Phase: run.NotStarted})
		return r.tryLater(), nil
	}
	r.host.Status.CleaningFailsSince = nil
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostCleaningReason, "reset: "+status.Message)
	return r.poll(), nil
}

// verify reads back what the reset left: once, or again after a boot.
func (r *reconciliation) verify(ctx context.Context, order CleanOrder) (result, error) {
	stage := r.host.Status.Operation.Step
	if stage == stageVerified || strings.HasPrefix(stage, stageReboot) {
		return r.rebootAfterReset(ctx, order, stage)
	}
	rebooted := stage == stageRebooted
	order.RebootFollows = ptr.Deref(r.host.Spec.Cleaning.Reboot, false) && !rebooted
	verified, o := call(ctx, r, callVerify(order.ID), shortCall, with(order, r.controller.Provisioner.Verify))
	if o.pending {
		return o.result, nil
	}
	r.host.Status.CleaningFailsSince = nil
	if len(verified.Findings) > 0 {
		when := "after the reset: "
		if rebooted {
			when = "after the reboot: "
		}
		return r.notClean(when + listed(verified.Findings))
	}
	if order.RebootFollows {
		r.host.Status.Operation.Step = stageVerified
		return after(0), nil
	}
	return r.clean(verified.Skipped)
}

// listed are the findings with what to do about each.
func listed(findings []reset.Finding) string {
	var lines []string
	for _, f := range findings {
		lines = append(lines, f.What+" ("+f.Fix+")")
	}
	return strings.Join(lines, "; ")
}

// clean is the end of a reset that was verified. What could not be looked for is named, for nobody takes it for clean.
func (r *reconciliation) clean(skipped []string) (result, error) {
	r.host.Status.Version = ""
	r.host.Status.AddonVersions = nil
	conditions.Delete(r.host, infrav1.HostAPIServerStoppedCondition)
	unseen := ""
	if len(skipped) > 0 {
		unseen = text.Shorten("; not looked for: "+strings.Join(skipped, "; "), maxCause)
	}
	if r.claim.status == unclaimed {
		r.event("Normal", "HostClean", "the reset was verified%s", unseen)
		r.setTrue(infrav1.HostCleanCondition, infrav1.HostCleanReason)
		return r.moveTo(infrav1.HostStateInspecting), nil
	}
	r.event("Normal", "HostClean", "the reset was verified: nothing of the claim %s is left%s",
		r.host.Spec.ConsumerRef.Claim, unseen)
	r.condition(infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason,
		"clean; the host is released when its Machine is gone"+unseen)
	return after(0), nil
}

// notClean looks again before it asks a person: a process that is on its way out, a mount that is let go of lazily, or
// a neighbour's entry for the virtual address is gone a moment later. The count is a part of the operation, so that a
// manager that restarts goes on with it.
func (r *reconciliation) notClean(found string) (result, error) {
	operation := r.host.Status.Operation
	seen := ptr.Deref(operation.Verifications, 0) + 1
	operation.Verifications = &seen
	if seen >= maxVerifications {
		return r.quarantine(infrav1.HostNotCleanReason, found)
	}
	wait := r.timings().distance(seen, r.controller.jitter())
	r.host.Status.NextAttempt = &metav1.Time{Time: r.now.Add(wait)}
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostCleaningReason,
		fmt.Sprintf("%s; looking again (%d of %d)", found, seen, maxVerifications-1))
	return after(wait), nil
}

// release ends the claim of a clean host, as soon as nothing can refer to its Node any more.
func (r *reconciliation) release(ctx context.Context) (result, error) {
	gone, waitsFor, err := r.controller.consumerGone(ctx, r.host)
	if err != nil {
		return result{}, err
	}
	if !gone {
		r.condition(infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason,
			fmt.Sprintf("clean; the host is released when %s is gone", waitsFor))
		// The deletion of either is an event; a lost one must not keep a good host away for long.
		return after(r.timings().Probe / 6), nil
	}
	if err := r.endClaim(ctx); err != nil {
		return result{}, err
	}
	r.event("Normal", "HostReleased", "the host is free again")
	return r.moveTo(infrav1.HostStateInspecting), nil
}

// resetPlan is the plan of the host's cleaning, whatever the attempt.
func (r *reconciliation) resetPlan() string {
	if ref := r.host.Spec.ConsumerRef; ref != nil {
		return infrav1.ResetOperation(ref.Claim)
	}
	id := r.host.Status.Operation.ID
	if i := strings.Index(id[len(ownerlessPlan):], "-"); i > 0 {
		return id[:len(ownerlessPlan)+i]
	}
	return id
}

// nextReset is the attempt that follows the last one.
func (r *reconciliation) nextReset() string {
	if r.claim.status == unclaimed {
		return fmt.Sprintf("%s%d", ownerlessPlan, r.now.Unix())
	}
	return nextAttempt(r.resetID(), r.resetPlan())
}

func (r *reconciliation) resetID() string {
	if r.host.Spec.ConsumerRef == nil && !r.ownerlessCleaning() {
		return ownerlessPlan + "1"
	}
	return r.attempt(r.resetPlan())
}

// ignoresChanges reports whether what came during a claim may stay on the host.
func ignoresChanges(host *infrav1.QuoinHost) bool {
	return ptr.Deref(host.Spec.Cleaning.IgnoreChanges, !host.Shared())
}

// cleanOrder names the owner whose claim ended; without a claim the call looks at the host's own record.
func (r *reconciliation) cleanOrder(id string) CleanOrder {
	order := CleanOrder{ID: id, Owner: r.ownerRecord(), VirtualAddresses: r.virtualAddresses(),
		ControlPlanePort: portOf(r.claim.quoinCluster), Baseline: r.host.Spec.Baseline,
		IgnoreChanges: ignoresChanges(r.host)}
	for _, disk := range r.host.Spec.Disks {
		switch disk.Role {
		case infrav1.DiskRoleWipe:
			order.WipeDisks = append(order.WipeDisks, disk.ID)
		case infrav1.DiskRoleData:
			order.DataDisks = append(order.DataDisks, disk.ID)
		}
	}
	return order
}

// Stages between the end of a reset and its last verification, kept as the operation's step so that a manager which
// dies at any point goes on there.
const (
	// stageVerified: the reset was read back, and the boot is about to be asked for.
	stageVerified = "verified"
	// stageReboot begins the stage in which the host is to leave the boot whose ID follows.
	stageReboot = "reboot "
	// stageRebooted: the host runs another boot, and is read back once more.
	stageRebooted = "rebooted"
)

func staged(step string) bool {
	return step == stageVerified || step == stageRebooted || strings.HasPrefix(step, stageReboot)
}

// rebootAfterReset boots a host that was reset, once, so that what only a boot brings back is found.
func (r *reconciliation) rebootAfterReset(ctx context.Context, order CleanOrder, stage string) (result, error) {
	if r.maintenanceGate("the reboot after the reset") {
		return onEvent(), nil
	}
	if r.host.Status.CleaningFailsSince == nil {
		r.setFalse(infrav1.HostCleanCondition, infrav1.HostCleaningReason, "the reset was verified; the host reboots, and "+
			"is verified once more")
	}
	before := strings.TrimPrefix(stage, stageReboot)
	if stage == stageVerified {
		before = ""
	}
	boot, o := call(ctx, r, callReboot(before), shortCall,
		func(ctx context.Context, host *infrav1.QuoinHost) (string, error) {
			return r.controller.Provisioner.Reboot(ctx, host, order, before)
		})
	switch {
	case o.pending:
		return o.result, nil
	case before == "":
		r.host.Status.CleaningFailsSince = nil
		r.host.Status.Operation.Step = stageReboot + boot
		return after(0), nil
	case boot == before:
		// It is going down, and still answers.
		r.cleaningFails()
		r.host.Status.NextAttempt = &metav1.Time{Time: r.now.Add(r.timings().RetryFirst)}
		return after(r.timings().RetryFirst), nil
	}
	r.host.Status.CleaningFailsSince = nil
	r.host.Status.Operation.Step = stageRebooted
	r.event("Normal", "Rebooted", "the host rebooted after its reset")
	return after(0), nil
}
