// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owner keeps the record on a host that says which machine it serves. A controller with an older generation, for
// example one left behind by a pivot, may read and nothing more.
package owner

import (
	"context"
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Record is /var/lib/quoin/owner.json.
type Record struct {
	// Namespace and Host name the QuoinHost.
	Namespace string `json:"namespace"`
	Host      string `json:"host"`
	// Machine is the QuoinMachine's name.
	Machine string `json:"machine"`
	// UID identifies the claim; it must be stable over a pivot (a pivot changes object UIDs).
	UID string `json:"uid"`
	// Generation grows with each new claim of the host.
	Generation int64 `json:"generation"`
}

// HeldError says that somebody else owns the host.
type HeldError struct{ Holder Record }

func (e *HeldError) Error() string {
	return fmt.Sprintf("the host is owned by machine %s/%s (claim %s, generation %d); it is taken again only after that machine was deleted and the host cleaned",
		e.Holder.Namespace, e.Holder.Machine, e.Holder.UID, e.Holder.Generation)
}

// StaleError says that our knowledge is older than the host's: another management plane took over.
type StaleError struct{ Ours, Holder Record }

func (e *StaleError) Error() string {
	return fmt.Sprintf("the host serves generation %d of its claim, ours is %d: another management plane took over, so this one must not change the host",
		e.Holder.Generation, e.Ours.Generation)
}

// Acquire writes the record atomically. It succeeds when there is none, or when the present one has the same UID and no newer
// generation; else *HeldError or *StaleError.
func Acquire(ctx context.Context, host ssh.Host, record Record) error { panic("not yet") }

// Read returns the record, or nil when the host has none.
func Read(ctx context.Context, host ssh.Host) (*Record, error) { panic("not yet") }

// Release removes the record when it is ours (same UID, no newer generation). No record is fine; else *HeldError or *StaleError.
func Release(ctx context.Context, host ssh.Host, record Record) error { panic("not yet") }
