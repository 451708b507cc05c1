// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// quarantined waits for a person.
func (r *reconciliation) quarantined(ctx context.Context) (result, error) {
	switch {
	case r.retried:
		return r.resetAgain(ctx)
	case r.releaseUnclean():
		return after(0), nil
	case r.said(infrav1.VerifyOnlyAnnotation):
		return r.verifyOnly(ctx)
	}
	return r.stayQuarantined(ctx)
}

// resetAgain takes a host out of its quarantine, through a reset and its verification.
func (r *reconciliation) resetAgain(ctx context.Context) (result, error) {
	if ok, o := r.mayReset(ctx); o.pending {
		return o.result, nil
	} else if !ok {
		return onEvent(), nil
	}
	r.lifted = true
	// From here on its silence counts anew, and nothing says any more that it does not run.
	r.host.Status.UnreachableSince = nil
	conditions.Delete(r.host, infrav1.HostFencedCondition)
	delete(r.host.Annotations, infrav1.ReleaseUncleanAnnotation)
	delete(r.host.Annotations, infrav1.VerifyOnlyAnnotation)
	// Written down before it starts, so that a manager which dies in between takes the same plan up.
	r.record(r.nextReset(), run.Status{Phase: run.NotStarted})
	return r.moveTo(infrav1.HostStateCleaning), nil
}

// stayQuarantined keeps a quarantined host where it is. The claim of one that was given up ends, and whether a dead one
// comes back is looked at.
func (r *reconciliation) stayQuarantined(ctx context.Context) (result, error) {
	if !r.host.GivenUp() {
		if o := r.isolate(ctx); o.pending {
			return o.result, nil
		}
		if r.host.ReleasedUnclean() {
			return r.abandoned(ctx)
		}
		return onEvent(), nil
	}
	res, err := r.abandoned(ctx)
	if err != nil || !hasReason(r.host, infrav1.HostCleanCondition, infrav1.HostDeadReason) {
		return res, err
	}
	return after(min(res.requeueAfter, r.awaitReturn(ctx).requeueAfter)), nil
}

// quarantine keeps everybody away from a host until a person has looked.
func (r *reconciliation) quarantine(reason, message string) (result, error) {
	message = text.Shorten(message, maxCause) + waysOut(r.host, r.machineWaits())
	r.setFalse(infrav1.HostCleanCondition, reason, message)
	r.event("Warning", reason, "%s", message)
	return r.moveTo(infrav1.HostStateQuarantined), nil
}

// What must outlive the status lies in spec: that a host is quarantined and why, and that we turned its power off. It
// is derived from the status at the end of each reconcile and written before it, so a manager that dies in between
// finds the stricter of the two. The status is derived from it where there is none, after a move or a restore of the
// objects.

// restoreQuarantine puts a host back that its spec says is quarantined.
func (r *reconciliation) restoreQuarantine() {
	q := r.host.Spec.Quarantine
	if q == nil || r.host.Status.State == infrav1.HostStateQuarantined {
		return
	}
	r.enter(infrav1.HostStateQuarantined)
	r.setFalse(infrav1.HostCleanCondition, q.Reason, q.Message)
	if r.host.Status.Operation == nil && q.Operation != "" {
		r.host.Status.Operation = &infrav1.HostOperation{ID: q.Operation}
	}
	if r.host.Spec.PoweredOff != nil && r.host.Status.Power == nil {
		// As it was left; without a time, so that it is read again before anything rests on it.
		r.host.Status.Power = &infrav1.HostPower{State: powerOff}
	}
	if !r.host.GivenUp() {
		return
	}
	if q.By == infrav1.WordGiverPerson {
		r.condition(infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, abandonedWord)
	}
	if r.host.Spec.ConsumerRef != nil {
		r.setFalse(infrav1.HostProvisionedCondition, q.Reason, q.Message)
	}
}

// quarantineNow is the quarantine that the status comes to; nil when there is none.
func (r *reconciliation) quarantineNow() *infrav1.HostQuarantine {
	q, clean := r.host.Spec.Quarantine, conditions.Get(r.host, infrav1.HostCleanCondition)
	switch {
	case r.lifted:
		return nil
	case r.host.Status.State != infrav1.HostStateQuarantined, clean == nil || clean.Status != metav1.ConditionFalse:
		return q
	}
	now := &infrav1.HostQuarantine{Reason: clean.Reason, Message: clean.Message, Since: metav1.NewTime(r.now),
		By: infrav1.WordGiverController}
	if clean.Reason == infrav1.HostAbandonedReason || clean.Reason == infrav1.HostReleasedUncleanReason {
		now.By = infrav1.WordGiverPerson
	}
	if q != nil {
		now.Operation = q.Operation
	}
	if r.host.Status.Operation != nil {
		now.Operation = r.host.Status.Operation.ID
	}
	if q != nil && q.Reason == now.Reason && q.Message == now.Message {
		now.Since = q.Since
	}
	return now
}

// poweredOffNow is whether we turned the host off, as far as is known now; nil when we did not, or when it runs.
func (r *reconciliation) poweredOffNow() *infrav1.HostPoweredOff {
	off, state := r.host.Spec.PoweredOff, stateOf(r.host.Status.Power)
	fenced := conditions.Get(r.host, infrav1.HostFencedCondition)
	switch {
	case r.running, state != "" && state != powerOff:
		return nil
	case off == nil && state == powerOff && fenced != nil && fenced.Status == metav1.ConditionTrue &&
		fenced.Message != abandonedWord:
		return &infrav1.HostPoweredOff{Since: metav1.NewTime(r.now), By: infrav1.WordGiverController, Message: fenced.Message}
	}
	return off
}

// keepWords writes both into spec, and what an inspection found on a free host.
func (r *reconciliation) keepWords(ctx context.Context) error {
	if r.paused || isDetached(r.host) {
		return nil
	}
	before, after := r.host.DeepCopy(), r.host.DeepCopy()
	after.Spec.Quarantine, after.Spec.PoweredOff = r.quarantineNow(), r.poweredOffNow()
	if r.baseline != nil {
		after.Spec.Baseline = *r.baseline
	}
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	r.host.Spec.Quarantine, r.host.Spec.PoweredOff = after.Spec.Quarantine, after.Spec.PoweredOff
	r.host.Spec.Baseline = after.Spec.Baseline
	if err := client.IgnoreNotFound(r.controller.Client.Patch(ctx, after, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("writing down the spec of QuoinHost %s: %w", r.key(), err)
	}
	return nil
}

// isolate writes the quarantine into the owner record of the host, where objects that are older than it find it.
// Nothing waits for it, and what goes wrong changes nothing about why the host is quarantined. One that was given up is
// left alone, and the record of somebody else's host is theirs.
func (r *reconciliation) isolate(ctx context.Context) outcome {
	q := r.host.Spec.Quarantine
	if q == nil || r.host.GivenUp() || usurps(q.Reason) {
		return ready
	}
	op, failed := callIsolate(q.Reason), milestone{"failed to isolate", q.Reason}
	if r.pace().marked(op) || r.pace().remaining(failed, r.timings().Isolate) > 0 {
		return ready
	}
	host, ours := r.host.DeepCopy(), r.ownerRecord()
	why := owner.Quarantine{Reason: q.Reason, Message: cause(q.Message), Since: stamp(q.Since.Time)}
	if q.Reason == infrav1.HostReleasedUncleanReason {
		// A word is about the claim of these objects; to older ones it says no more than what the host is like.
		why.Reason = infrav1.HostNotCleanReason
	}
	_, done, err := async.Do(r.controller.Calls, r.key(), op.String(), shortCall, func(ctx context.Context) (struct{},
		error) {
		begin := time.Now()
		err := r.controller.Provisioner.Isolate(ctx, host, ours, why)
		observeCall("isolate", time.Since(begin), err)
		return struct{}{}, r.controller.redacted(ctx, host, err)
	})
	switch {
	case !done:
		return pending(onEvent())
	case err != nil:
		r.pace().mark(failed)
		ctrl.LoggerFrom(ctx).Info("The quarantine could not be written to the host; it is tried again", "reason", err.Error())
	default:
		r.pace().mark(op)
	}
	return ready
}

// quarantinedBy reports whether the owner record on the host says that it is quarantined, which the objects have
// forgotten, and puts the host back there.
func (r *reconciliation) quarantinedBy(record *owner.Record) bool {
	if record == nil || record.Quarantine.Reason == "" || owner.Check(r.ownerRecord(), *record) != nil {
		return false
	}
	message := remembered(record, r.host, r.machineWaits())
	r.setFalse(infrav1.HostCleanCondition, record.Quarantine.Reason, message)
	r.event("Warning", record.Quarantine.Reason, "%s", message)
	r.enter(infrav1.HostStateQuarantined)
	return true
}

// remembered is what the owner record says of its quarantine, as a sentence.
func remembered(record *owner.Record, host *infrav1.QuoinHost, machineWaits bool) string {
	return fmt.Sprintf("the host says that it was quarantined at %s: %s. These objects are older than that",
		record.Quarantine.Since, text.Shorten(record.Quarantine.Message, maxCause)) + waysOut(host, machineWaits)
}

// stillOff reads the power of a host that we turned off and of which the status is lost: off, it is as fenced as it
// was, and is neither cycled nor turned on. pending says that the answer is not there yet.
func (r *reconciliation) stillOff() (res result, pending bool) {
	off := r.host.Spec.PoweredOff
	if off == nil || r.host.Fenced() {
		return result{}, false
	}
	state, known, pending := r.readPower()
	if pending {
		return onEvent(), true
	}
	if known && state == powerOff {
		r.fenced(fmt.Sprintf("we powered the host off at %s, and its BMC confirms that it is off", stamp(off.Since.Time)))
	}
	return result{}, false
}
