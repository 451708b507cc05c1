// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// turn is one reconcile of one host.
type turn struct {
	ctx   context.Context //nolint:containedctx // a turn lives exactly as long as its reconcile
	r     *Reconciler
	host  *infrav1.QuoinHost
	claim claim
	now   time.Time
	// paused says that nothing new may start: the host or its Cluster is paused, or the host is held for a move.
	paused bool
	// noted is the plan that the status named before this turn; empty when there was none.
	noted string
	// retried says that a person asked for an attempt now, and word is what the annotation said.
	retried bool
	word    string
	// alike are the other hosts that have the hostname, the machine-id or the product UUID of this one.
	alike []infrav1.QuoinHost
	// orders is the plan whose order is to be written down before it is started.
	orders string
	// lifted says that a quarantine ends, and running that something answers at the host's address.
	lifted, running bool
}

// result says when the host is looked at again.
type result struct{ requeueAfter time.Duration }

// longest bounds the time between two looks, so that a lost event delays and never stops anything.
const longest = 10 * time.Minute

// onEvent waits for an event: the end of an exchange, a change of an object.
func onEvent() result { return result{requeueAfter: longest} }

// after looks again after a while, or at the next event.
func after(d time.Duration) result {
	return result{requeueAfter: min(max(d, time.Millisecond), longest)}
}

// handlers is the state machine: what is done in which state. Which state it is follows from settle.
var handlers map[infrav1.HostState]func(*turn) (result, error)

func init() { // not a literal: the handlers lead back to the table by way of step
	handlers = map[infrav1.HostState]func(*turn) (result, error){
		infrav1.HostStateRegistering:  (*turn).registering,
		infrav1.HostStateInspecting:   (*turn).inspecting,
		infrav1.HostStateAvailable:    (*turn).available,
		infrav1.HostStateClaimed:      (*turn).claimed,
		infrav1.HostStateProvisioning: (*turn).provisioning,
		infrav1.HostStateProvisioned:  (*turn).provisioned,
		infrav1.HostStateCleaning:     (*turn).cleaning,
		infrav1.HostStateQuarantined:  (*turn).quarantined,
	}
}

// settle is the state a host is in once its claim is taken into account.
//
// It is what makes a claim, a deletion, and a status that a move has dropped all lead to the right place:
// an empty status means Registering, from where the journal on the host tells how far its claim came.
func settle(state infrav1.HostState, s standing, pinned, scrubbing bool) infrav1.HostState {
	switch {
	case state == infrav1.HostStateQuarantined:
		// Only a person leads out of here.
		return state
	case state == "" || !pinned:
		// Nothing may be done to a host whose key nobody has recorded.
		return infrav1.HostStateRegistering
	case s == leaving:
		return infrav1.HostStateCleaning
	case s == unclaimed:
		switch state {
		case infrav1.HostStateClaimed, infrav1.HostStateProvisioning, infrav1.HostStateProvisioned:
			// Somebody removed the claim by hand: inspection finds what is left and quarantines the host.
			return infrav1.HostStateInspecting
		case infrav1.HostStateCleaning:
			if !scrubbing {
				// The claim was removed at the end of a release, and the status could not follow.
				return infrav1.HostStateInspecting
			}
		}
	case state == infrav1.HostStateAvailable:
		return infrav1.HostStateClaimed
	}
	return state
}

// step takes the host one step further.
func (t *turn) step() (result, error) {
	if isDetached(t.host) {
		return t.detached()
	}
	t.attach()
	if t.paused {
		return t.watchOnly()
	}
	t.notQuiet()
	t.takeRetry()
	t.forgetQuestion()
	t.forgetMaintenance()
	if _, ok := t.host.Annotations[infrav1.AbandonAnnotation]; ok {
		return t.abandon()
	}
	t.restoreQuarantine()
	t.acceptHostKey()
	if !t.offered() {
		return t.refuseClaim()
	}
	t.forgetRefusal()
	t.enter(settle(t.host.Status.State, t.claim.standing, trusted(t.host), t.scrubbing()))
	if t.claim.standing == missing && t.claimStands() {
		return t.consumerMissing()
	}
	if raised, err := t.adopt(); err != nil || raised {
		t.keepRetry()
		return after(0), err
	}
	if t.claim.standing == held && t.claimStands() && t.r.pace.marked(t.key(), adopted) {
		if o := t.takeOver(); o.pending {
			return o.result, nil
		}
	}
	t.notePool()
	if r, handled, err := t.dead(); err != nil || handled {
		return r, err
	}
	if r, handled, err := t.raiseAtWord(); err != nil || handled {
		t.keepRetry()
		return r, err
	}
	return handlers[t.host.Status.State](t)
}

// enter changes the state, and tells so.
func (t *turn) enter(state infrav1.HostState) {
	from := t.host.Status.State
	if from == state {
		return
	}
	usurper := usurped(t.host)
	t.host.Status.State = state
	if usurper != nil && state == infrav1.HostStateCleaning {
		// Should the host fall silent now, it is still not ours to power off.
		kind, _ := subject(state)
		t.condition(kind, metav1.ConditionFalse, usurper.Reason, usurper.Message)
	}
	// What failed in one state says nothing about the next: a deletion need not wait for the distance of a failed start.
	t.forgetFailures()
	if from != "" {
		t.event("Normal", string(state), "the host went from %s to %s", from, state)
	}
	transitions.WithLabelValues(string(from), string(state)).Inc()
}

// moveTo enters a state whose handler runs in the next reconcile, which the change of the status brings about.
func (t *turn) moveTo(state infrav1.HostState) (result, error) {
	t.enter(state)
	return after(time.Second), nil
}

// claimStands says whether the state is one in which the host serves its claim: a missing consumer then holds everything up.
func (t *turn) claimStands() bool {
	switch t.host.Status.State {
	case infrav1.HostStateClaimed, infrav1.HostStateProvisioning, infrav1.HostStateProvisioned:
		return true
	}
	return false
}

func (t *turn) event(kind, reason, format string, args ...any) {
	if t.r.Recorder != nil {
		t.r.Recorder.Eventf(t.host, nil, kind, reason, reason, "%s", clip(fmt.Sprintf(format, args...), maxNote))
	}
}
