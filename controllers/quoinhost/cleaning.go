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
)

const (
	// maxResets is how often a reset is tried before a person is asked.
	maxResets = 3
	// maxVerifications is how often a reset is read back before a person is asked.
	maxVerifications = 5
)

// scrubPlan begins the IDs of the plans that clean hosts which nobody has, at a person's word.
const scrubPlan = "scrub-"

// scrubbing says that the operation on the host cleans it without a claim.
func (t *turn) scrubbing() bool {
	return t.host.Status.Operation != nil && strings.HasPrefix(t.host.Status.Operation.ID, scrubPlan)
}

// cleaning resets the host and proves that nothing is left. Then it waits for the claim's Machine, and with it the Node, to
// go: a host that is used again before that would answer to the old Node.
func (t *turn) cleaning() (result, error) {
	if t.host.Released() {
		return t.letGo()
	}
	if o := t.wake(); o.pending {
		return o.result, nil
	}
	id := t.resetID()
	status, o := t.follow(id)
	if o.pending {
		return o.result, nil
	}
	order := t.cleanOrder(id)
	switch status.Phase {
	case run.NotStarted:
		if t.maintained("the reset") {
			return onEvent(), nil
		}
		t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostCleaningReason, "the reset is about to start")
		if o := start(t, id, func(ctx context.Context, host *infrav1.QuoinHost) error {
			return t.r.Exchanges.Clean(ctx, host, order)
		}); o.pending {
			return o.result, nil
		}
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostCleaningReason, "the host is being reset")
		return t.started(id)
	case run.Succeeded:
		return t.verify(order)
	case run.Failed, run.Interrupted:
		message := fmt.Sprintf("the reset failed: %s", status.Message)
		t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostStepFailedReason, message)
		t.event("Warning", infrav1.HostStepFailedReason, "%s", message)
		if attemptOf(id, t.resetPlan()) >= maxResets {
			return t.quarantine(infrav1.HostStepFailedReason, message)
		}
		t.record(nextAttempt(id, t.resetPlan()), run.Status{Phase: run.NotStarted})
		return t.tryLater(), nil
	}
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostCleaningReason, "reset: "+status.Message)
	return t.poll(id), nil
}

// verify reads back what the reset left: once, or again after a boot.
func (t *turn) verify(order CleanOrder) (result, error) {
	stage := t.host.Status.Operation.Step
	if stage == stageVerified || strings.HasPrefix(stage, stageReboot) {
		return t.rebootAfterReset(order, stage)
	}
	order.AfterReboot = stage == stageRebooted
	order.RebootFollows = ptr.Deref(t.host.Spec.Cleaning.Reboot, false) && !order.AfterReboot
	findings, o := exchange(t, "verify "+order.ID, shortExchange, func(ctx context.Context, host *infrav1.QuoinHost) ([]reset.Finding, error) {
		return t.r.Exchanges.Verify(ctx, host, order)
	})
	if o.pending {
		return o.result, nil
	}
	if len(findings) > 0 {
		var lines []string
		for _, f := range findings {
			lines = append(lines, f.What+" ("+f.Fix+")")
		}
		return t.notClean("after the reset: " + strings.Join(lines, "; "))
	}
	if order.RebootFollows {
		t.host.Status.Operation.Step = stageVerified
		return after(0), nil
	}
	return t.clean()
}

// clean is the end of a reset that was verified.
func (t *turn) clean() (result, error) {
	t.host.Status.Version = ""
	t.host.Status.AddonVersions = nil
	conditions.Delete(t.host, infrav1.HostAPIServerStoppedCondition)
	if t.claim.standing == unclaimed {
		t.condition(infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostCleanReason, "")
		return t.moveTo(infrav1.HostStateInspecting)
	}
	t.event("Normal", "HostClean", "the reset was verified: nothing of the claim %s is left", t.host.Spec.ConsumerRef.Claim)
	t.condition(infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason, "clean; the host is released when its Machine is gone")
	return after(0), nil
}

// notClean looks again before it asks a person: a process that is on its way out, a mount that is let go of lazily, or a
// neighbour's entry for the virtual address is gone a moment later. The count is a part of the operation, so that a manager
// that restarts goes on with it.
func (t *turn) notClean(found string) (result, error) {
	operation := t.host.Status.Operation
	seen := ptr.Deref(operation.Verifications, 0) + 1
	operation.Verifications = &seen
	if seen >= maxVerifications {
		return t.quarantine(infrav1.HostNotCleanReason, found)
	}
	wait := t.r.hurry(distance(seen, t.r.jitter()))
	t.host.Status.NextAttempt = &metav1.Time{Time: t.now.Add(wait)}
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostCleaningReason,
		fmt.Sprintf("%s; looking again (%d of %d)", found, seen, maxVerifications-1))
	return after(wait), nil
}

// letGo ends the claim of a clean host, as soon as nothing can refer to its Node any more.
func (t *turn) letGo() (result, error) {
	gone, waitsFor, err := t.r.consumerGone(t.ctx, t.host)
	if err != nil {
		return result{}, err
	}
	if !gone {
		t.condition(infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason,
			fmt.Sprintf("clean; the host is released when %s is gone", waitsFor))
		// The deletion of either is an event; a lost one must not keep a good host away for long.
		return after(probeEvery / 6), nil
	}
	if err := t.endClaim(); err != nil {
		return result{}, err
	}
	t.event("Normal", "HostReleased", "the host is free again")
	return t.moveTo(infrav1.HostStateInspecting)
}

// quarantine keeps everybody away from a host until a person has looked.
func (t *turn) quarantine(reason, message string) (result, error) {
	message += fmt.Sprintf(". Look at the host, then have it reset and verified again: kubectl -n %s annotate quoinhost %s %s=",
		t.host.Namespace, t.host.Name, infrav1.RetryAnnotation)
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, reason, message)
	t.event("Warning", reason, "%s", message)
	return t.moveTo(infrav1.HostStateQuarantined)
}

// quarantined waits for a person.
func (t *turn) quarantined() (result, error) {
	if !t.retried {
		return t.aside()
	}
	if ok, o := t.mayReset(); o.pending {
		return o.result, nil
	} else if !ok {
		return onEvent(), nil
	}
	t.lifted = true
	// From here on its silence counts anew, and nothing says any more that it does not run.
	t.host.Status.UnreachableSince = nil
	conditions.Delete(t.host, infrav1.HostFencedCondition)
	id := fmt.Sprintf("%s%d", scrubPlan, t.now.Unix())
	if t.claim.standing != unclaimed {
		id = nextAttempt(t.resetID(), t.resetPlan())
	}
	// Written down before it starts, so that a manager which dies in between takes the same plan up.
	t.record(id, run.Status{Phase: run.NotStarted})
	return t.moveTo(infrav1.HostStateCleaning)
}

// aside keeps a quarantined host where it is. The claim of one that was given up ends, and whether a dead one comes back
// is looked at.
func (t *turn) aside() (result, error) {
	if !t.host.GivenUp() {
		if o := t.isolate(); o.pending {
			return o.result, nil
		}
		return onEvent(), nil
	}
	r, err := t.abandoned()
	if err != nil || !hasReason(t.host, infrav1.HostCleanCondition, infrav1.HostDeadReason) {
		return r, err
	}
	return after(min(r.requeueAfter, t.awaitReturn().requeueAfter)), nil
}

// resetPlan is the plan of the host's cleaning, whatever the attempt.
func (t *turn) resetPlan() string {
	if ref := t.host.Spec.ConsumerRef; ref != nil {
		return infrav1.ResetOperation(ref.Claim)
	}
	id := t.host.Status.Operation.ID
	if i := strings.Index(id[len(scrubPlan):], "-"); i > 0 {
		return id[:len(scrubPlan)+i]
	}
	return id
}

func (t *turn) resetID() string {
	if t.host.Spec.ConsumerRef == nil && !t.scrubbing() {
		return scrubPlan + "1"
	}
	return t.attempt(t.resetPlan())
}

// cleanOrder names the owner whose claim ended; without a claim the exchange looks at the host's own record.
func (t *turn) cleanOrder(id string) CleanOrder {
	order := CleanOrder{ID: id, Owner: t.ownerRecord(), VirtualAddresses: t.virtualAddresses(), ControlPlanePort: portOf(t.claim.quoinCluster)}
	for _, disk := range t.host.Spec.Disks {
		switch disk.Role {
		case infrav1.DiskRoleWipe:
			order.WipeDisks = append(order.WipeDisks, disk.ID)
		case infrav1.DiskRoleData:
			order.DataDisks = append(order.DataDisks, disk.ID)
		}
	}
	return order
}
