// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// available asks a free host from time to time whether it is there, because a claim should not meet a dead one.
func (r *reconciliation) available(ctx context.Context) (result, error) {
	if r.retried && len(r.alike) > 0 {
		return r.moveTo(infrav1.HostStateInspecting), nil
	}
	if res, handled, err := r.staging(ctx); err != nil || handled {
		return res, err
	}
	return r.probe(ctx), nil
}

// probe asks for the boot ID. A free host that rebooted may have changed, and is inspected again, as is one of which an
// earlier version wrote down less than would be compared now; a provisioned one
// stays what it is, because its bootstrap data must not run a second time, but that it is another one is named.
func (r *reconciliation) probe(ctx context.Context) result {
	if wait := r.pace().remaining(callProbe, r.timings().Probe); wait > 0 {
		return after(wait)
	}
	probed, o := call(ctx, r, callProbe, shortCall, r.controller.Provisioner.Probe)
	if o.pending {
		return o.result
	}
	facts := r.host.Status.Facts
	same := facts != nil && facts.BootID == probed.BootID
	if r.host.Status.State == infrav1.HostStateAvailable {
		if same && !taken(probed.Owner, r.host) && !inspect.Outdated(r.host.Spec.Baseline) {
			return after(r.timings().Probe)
		}
		return r.moveTo(infrav1.HostStateInspecting)
	}
	if !same && facts != nil {
		r.event("Normal", "Rebooted", "the host rebooted")
		r.noteReboot(probed)
	}
	if r.quarantinedBy(probed.Owner) {
		return after(0)
	}
	if r.compare(probed.Owner) && probed.Owner != nil && !probed.Owner.Released() &&
		probed.Owner.Generation < hostaccess.Generation(r.host) {
		// The manager that adopted the claim did not live to tell the host.
		r.pace().mark(adopted)
		return after(0)
	}
	return after(r.timings().Probe)
}

// taken says whether somebody else has, or had, a host that is free to us.
func taken(record *owner.Record, host *infrav1.QuoinHost) bool {
	return record != nil && (!record.Released() || record.Generation > hostaccess.Generation(host) ||
		record.Quarantine.Reason != "")
}
