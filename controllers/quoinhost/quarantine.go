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
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

// What must outlive the status lies in spec: that a host is quarantined and why, and that we turned its power off. It is
// derived from the status at the end of each reconcile and written before it, so a manager that dies in between finds the
// stricter of the two. The status is derived from it where there is none, after a move or a restore of the objects.

// restoreQuarantine puts a host back that its spec says is quarantined.
func (t *turn) restoreQuarantine() {
	q := t.host.Spec.Quarantine
	if q == nil || t.host.Status.State == infrav1.HostStateQuarantined {
		return
	}
	t.enter(infrav1.HostStateQuarantined)
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, q.Reason, q.Message)
	if t.host.Status.Operation == nil && q.Operation != "" {
		t.host.Status.Operation = &infrav1.HostOperation{ID: q.Operation}
	}
	if t.host.Spec.PoweredOff != nil && t.host.Status.Power == nil {
		// As it was left; without a time, so that it is read again before anything rests on it.
		t.host.Status.Power = &infrav1.HostPower{State: powerOff}
	}
	if !t.host.GivenUp() {
		return
	}
	if q.By == infrav1.WordGiverPerson {
		t.condition(infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, abandonedWord)
	}
	if t.host.Spec.ConsumerRef != nil {
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, q.Reason, q.Message)
	}
}

// quarantineNow is the quarantine that the status comes to; nil when there is none.
func (t *turn) quarantineNow() *infrav1.HostQuarantine {
	q, clean := t.host.Spec.Quarantine, conditions.Get(t.host, infrav1.HostCleanCondition)
	switch {
	case t.lifted:
		return nil
	case t.host.Status.State != infrav1.HostStateQuarantined, clean == nil || clean.Status != metav1.ConditionFalse:
		return q
	}
	now := &infrav1.HostQuarantine{Reason: clean.Reason, Message: clean.Message, Since: metav1.NewTime(t.now), By: infrav1.WordGiverController}
	if clean.Reason == infrav1.HostAbandonedReason {
		now.By = infrav1.WordGiverPerson
	}
	if q != nil {
		now.Operation = q.Operation
	}
	if t.host.Status.Operation != nil {
		now.Operation = t.host.Status.Operation.ID
	}
	if q != nil && q.Reason == now.Reason && q.Message == now.Message {
		now.Since = q.Since
	}
	return now
}

// poweredOffNow is whether we turned the host off, as far as is known now; nil when we did not, or when it runs.
func (t *turn) poweredOffNow() *infrav1.HostPoweredOff {
	off, state := t.host.Spec.PoweredOff, stateOf(t.host.Status.Power)
	fenced := conditions.Get(t.host, infrav1.HostFencedCondition)
	switch {
	case t.running, state != "" && state != powerOff:
		return nil
	case off == nil && state == powerOff && fenced != nil && fenced.Status == metav1.ConditionTrue && fenced.Message != abandonedWord:
		return &infrav1.HostPoweredOff{Since: metav1.NewTime(t.now), By: infrav1.WordGiverController, Message: fenced.Message}
	}
	return off
}

// keepWords writes both into spec.
func (t *turn) keepWords() error {
	if t.paused || isDetached(t.host) {
		return nil
	}
	before, after := t.host.DeepCopy(), t.host.DeepCopy()
	after.Spec.Quarantine, after.Spec.PoweredOff = t.quarantineNow(), t.poweredOffNow()
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	t.host.Spec.Quarantine, t.host.Spec.PoweredOff = after.Spec.Quarantine, after.Spec.PoweredOff
	if err := client.IgnoreNotFound(t.r.Client.Patch(t.ctx, after, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("writing the quarantine of QuoinHost %s down: %w", t.key(), err)
	}
	return nil
}

// isolateEvery is how often the quarantine is written to a host on which that failed.
const isolateEvery = 10 * time.Minute

// isolate writes the quarantine into the owner record of the host, where objects that are older than it find it. Nothing waits
// for it, and what goes wrong changes nothing about why the host is quarantined. One that was given up is left alone, and the
// record of somebody else's host is theirs.
func (t *turn) isolate() outcome {
	q := t.host.Spec.Quarantine
	if q == nil || t.host.GivenUp() || q.Reason == infrav1.HostStaleClaimReason || q.Reason == infrav1.HostOwnedByOtherReason {
		return ready
	}
	op := "isolate " + q.Reason
	if t.r.pace.marked(t.key(), op) || t.r.pace.remaining(t.key(), "failed to "+op, isolateEvery, t.now) > 0 {
		return ready
	}
	host, ours := t.host.DeepCopy(), t.ownerRecord()
	why := owner.Quarantine{Reason: q.Reason, Message: q.Message, Since: stamp(q.Since.Time)}
	_, done, err := async.Do(t.r.Calls, t.key(), op, shortExchange, func(ctx context.Context) (struct{}, error) {
		begin := time.Now()
		err := t.r.Exchanges.Isolate(ctx, host, ours, why)
		observeExchange("isolate", time.Since(begin), err)
		return struct{}{}, err
	})
	switch {
	case !done:
		return pending(onEvent())
	case err != nil:
		t.r.pace.mark(t.key(), "failed to "+op, t.now)
		ctrl.LoggerFrom(t.ctx).Info("The quarantine could not be written to the host; it is tried again", "reason", err.Error())
	default:
		t.r.pace.mark(t.key(), op, t.now)
	}
	return ready
}

// quarantinedBy reports whether the owner record on the host says that it is quarantined, which the objects have forgotten, and
// puts the host back there.
func (t *turn) quarantinedBy(record *owner.Record) bool {
	if record == nil || record.Quarantine.Reason == "" || owner.Check(t.ownerRecord(), *record) != nil {
		return false
	}
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, record.Quarantine.Reason, remembered(record, t.host))
	t.event("Warning", record.Quarantine.Reason, "%s", remembered(record, t.host))
	t.enter(infrav1.HostStateQuarantined)
	return true
}

// remembered is what the owner record says of its quarantine, as a sentence.
func remembered(record *owner.Record, host *infrav1.QuoinHost) string {
	return fmt.Sprintf("the host says that it was quarantined at %s: %s. These objects are older than that. To have it reset and verified: kubectl -n %s annotate quoinhost %s %s=",
		record.Quarantine.Since, record.Quarantine.Message, host.Namespace, host.Name, infrav1.RetryAnnotation)
}

// stillOff reads the power of a host that we turned off and of which the status is lost: off, it is as fenced as it was, and is
// neither cycled nor turned on. pending says that the answer is not there yet.
func (t *turn) stillOff() (r result, pending bool) {
	off := t.host.Spec.PoweredOff
	if off == nil || t.host.Fenced() {
		return result{}, false
	}
	state, known, pending := t.readPower()
	if pending {
		return onEvent(), true
	}
	if known && state == powerOff {
		t.fenced(fmt.Sprintf("we powered the host off at %s, and its BMC confirms that it is off", stamp(off.Since.Time)))
	}
	return result{}, false
}
