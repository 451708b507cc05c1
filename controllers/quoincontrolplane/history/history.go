// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history is what a process remembers of control planes between reconciles. What a restart forgets costs a
// repeated read, write or event, or makes somebody wait once more; nothing that matters lives here alone.
package history

import (
	"k8s.io/apimachinery/pkg/types"
)

// History of all control planes of a process, each by its UID. Safe for concurrent use; its zero value is empty.
type History struct {
	// Unhealthy says since when etcd members, by their ids, are not healthy and come no further.
	Unhealthy Since[Standstill]
	// Undrained says since when the drains of Machines, by their names, look skipped.
	Undrained Since[string]
	// Expiry paces the reading of certificates' expiry from hosts that did not answer.
	Expiry Backoff
	// PreCreation paces the pre-creation of Machines, by the Machine beside which it failed.
	PreCreation Backoff
	// Applied are the digests of what was applied last.
	Applied Digests
	// Events are the last ones that were recorded.
	Events Deduplicator
}

// Standstill is an etcd member, and how far it has come.
type Standstill struct{ Member, Progress uint64 }

// Forget drops what is remembered of a control plane that is gone.
func (h *History) Forget(controlPlane types.UID) {
	h.Unhealthy.forget(controlPlane)
	h.Undrained.forget(controlPlane)
	h.Expiry.Keep(controlPlane, nil)
	h.PreCreation.Keep(controlPlane, nil)
	h.Applied.forget(controlPlane)
	h.Events.forget(controlPlane)
}
