// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// handlers is the state machine: what is done in which state. Which state it is follows from nextState.
var handlers = map[infrav1.HostState]func(*reconciliation, context.Context) (result, error){
	infrav1.HostStateRegistering:  (*reconciliation).registering,
	infrav1.HostStateInspecting:   (*reconciliation).inspecting,
	infrav1.HostStateAvailable:    (*reconciliation).available,
	infrav1.HostStateClaimed:      (*reconciliation).claimed,
	infrav1.HostStateProvisioning: (*reconciliation).provisioning,
	infrav1.HostStateProvisioned:  (*reconciliation).provisioned,
	infrav1.HostStateCleaning:     (*reconciliation).cleaning,
	infrav1.HostStateQuarantined:  (*reconciliation).quarantined,
}

// nextState is the state a host is in once its claim is taken into account.
//
// It is what makes a claim, a deletion, and a status that a move has dropped all lead to the right place:
// an empty status means Registering, from where the journal on the host tells how far its claim came.
func nextState(state infrav1.HostState, s claimStatus, pinned, ownerlessCleaning bool) infrav1.HostState {
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
			if !ownerlessCleaning {
				// The claim was removed at the end of a release, and the status could not follow.
				return infrav1.HostStateInspecting
			}
		}
	case state == infrav1.HostStateAvailable:
		return infrav1.HostStateClaimed
	}
	return state
}

// enter changes the state, and tells so.
func (r *reconciliation) enter(state infrav1.HostState) {
	from := r.host.Status.State
	if from == state {
		return
	}
	usurper := usurped(r.host)
	r.host.Status.CleaningFailsSince = nil
	r.host.Status.State = state
	if usurper != nil && state == infrav1.HostStateCleaning {
		// Should the host fall silent now, it is still not ours to power off.
		kind, _ := subject(state)
		r.setFalse(kind, usurper.Reason, usurper.Message)
	}
	// What failed in one state says nothing about the next: a deletion need not wait for the distance of a failed start.
	r.forgetFailures()
	if from != "" {
		r.event("Normal", string(state), "the host went from %s to %s", from, state)
	}
	transitions.WithLabelValues(string(from), string(state)).Inc()
}

// moveTo enters a state whose handler runs in the next reconcile, which the change of the status brings about.
func (r *reconciliation) moveTo(state infrav1.HostState) result {
	r.enter(state)
	return after(r.timings().Next)
}

// claimStands says whether the state is one in which the host serves its claim: a missing consumer then holds
// everything up.
func (r *reconciliation) claimStands() bool {
	switch r.host.Status.State {
	case infrav1.HostStateClaimed, infrav1.HostStateProvisioning, infrav1.HostStateProvisioned:
		return true
	}
	return false
}
