// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history is what a process remembers of control planes between reconciles. What a restart forgets costs a
// repeated read, write or event, or makes somebody wait once more; nothing that matters lives here alone.
package history

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// History of all control planes of a process, each by its UID. Safe for concurrent use; its zero value is empty.
type History struct {
	mu   sync.Mutex
	past map[types.UID]Past
	// Expiry paces the reading of certificates' expiry from hosts that did not answer.
	Expiry Backoff
	// PreCreation paces the pre-creation of Machines, by the Machine beside which it failed.
	PreCreation Backoff
	// DNSBudget paces what is done about the budget of CoreDNS, of no Machine.
	DNSBudget Backoff
	// Applied are the digests of what was applied last.
	Applied Digests
	// Events are the last ones that were recorded.
	Events Deduplicator
}

// Past of one control plane is what one observation of it hands to the next. It is a value.
type Past struct {
	// Unhealthy says since when etcd members, by their ids, are not healthy and come no further.
	Unhealthy Since[Standstill]
	// Recalled: Unhealthy began with what another process wrote down.
	Recalled bool
	// NoQuorum says since when no quorum of etcd's voters has agreed to anything.
	NoQuorum Since[struct{}]
	// NoneSeen says since when no reading of etcd has shown a quorum, those that failed included.
	NoneSeen Since[struct{}]
	// Undrained says since when the drains of Machines, by their names, look skipped.
	Undrained Since[string]
	// Ahead says since when times that were written down, as seconds of Unix, are seen to lie ahead of the clock, which
	// was set back.
	Ahead Since[int64]
	// PreCreation are the attempts that failed to make a Machine beside one of these.
	PreCreation Attempts
	// Snapshot is the last request for a snapshot of etcd that was seen waiting, until its answer is old.
	Snapshot Request
}

// Request for something that takes its time.
type Request struct {
	// Made is when it was made, and Answered when it was first seen answered; zero before.
	Made, Answered time.Time
}

// Standstill is an etcd member, and how far it has come.
type Standstill struct{ Member, Progress uint64 }

// Past of a control plane.
func (h *History) Past(controlPlane types.UID) Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := h.past[controlPlane]
	past.PreCreation = h.PreCreation.Of(controlPlane)
	return past
}

// Remember has a control plane's past be this one. Of the attempts those at other Machines are forgotten.
func (h *History) Remember(controlPlane types.UID, past Past) {
	h.PreCreation.Keep(controlPlane, past.PreCreation.Machines())
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.past, controlPlane)
	if len(past.Unhealthy.since)+len(past.NoQuorum.since)+len(past.NoneSeen.since)+len(past.Undrained.since)+
		len(past.Ahead.since) == 0 && past.Snapshot == (Request{}) && !past.Recalled {
		return
	}
	if h.past == nil {
		h.past = map[types.UID]Past{}
	}
	h.past[controlPlane] = past
}

// Forget drops what is remembered of a control plane that is gone.
func (h *History) Forget(controlPlane types.UID) {
	h.mu.Lock()
	delete(h.past, controlPlane)
	h.mu.Unlock()
	h.Expiry.Keep(controlPlane, nil)
	h.PreCreation.Keep(controlPlane, nil)
	h.DNSBudget.Keep(controlPlane, nil)
	h.Applied.forget(controlPlane)
	h.Events.forget(controlPlane)
}
