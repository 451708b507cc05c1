// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// reconciliation is one reconcile of one host.
type reconciliation struct {
	controller *Reconciler
	host       *infrav1.QuoinHost
	claim      claim
	now        time.Time
	// paused says that nothing new may start: the host or its Cluster is paused, or the host is held for a move.
	paused bool
	// noted is the plan that the status named before this reconcile; empty when there was none.
	noted string
	// retried says that a person asked for an attempt now, and word is what the annotation said.
	retried bool
	word    string
	// alike are the other hosts that have the hostname, the machine-id or the product UUID of this one.
	alike []infrav1.QuoinHost
	// sharesIdentity names another host whose BMC may be meant; see hostpower.SharesIdentity.
	sharesIdentity string
	// orders is the plan whose order is to be written down before it is started.
	orders string
	// baseline is what an inspection found on a free host, to be written down; nil when there was none.
	baseline *string
	// failure is what the call of this reconcile failed with; empty when none did.
	failure string
	// crowded is what the call of this reconcile has waited for; empty when it did not.
	crowded string
	// lifted says that a quarantine ends, and running that something answers at the host's address.
	lifted, running bool
}

// result says when the host is looked at again.
type result struct{ requeueAfter time.Duration }

// longest bounds the time between two looks, so that a lost event delays and never stops anything.
const longest = 10 * time.Minute

// onEvent waits for an event: the end of a call, a change of an object.
func onEvent() result { return result{requeueAfter: longest} }

// after looks again after a while, or at the next event.
func after(d time.Duration) result {
	return result{requeueAfter: min(max(d, time.Millisecond), longest)}
}

// patch changes spec or metadata, optimistically: of two that change the host, one has to look again.
func (r *reconciliation) patch(ctx context.Context, action string, change func(*infrav1.QuoinHost)) error {
	changed, before := r.host.DeepCopy(), client.MergeFromWithOptions(r.host.DeepCopy(),
		client.MergeFromWithOptimisticLock{})
	change(changed)
	if err := r.controller.Client.Patch(ctx, changed, before); err != nil {
		return fmt.Errorf("%s QuoinHost %s: %w", action, r.key(), err)
	}
	return nil
}

// annotate is the command by which a person gives the word.
func annotate(host *infrav1.QuoinHost, annotation, value string) string {
	return fmt.Sprintf("kubectl -n %s annotate quoinhost %s %s=%s", host.Namespace, host.Name, annotation, value)
}

func (r *reconciliation) event(kind, reason, format string, args ...any) {
	if r.controller.Recorder != nil {
		r.controller.Recorder.Eventf(r.host, nil, kind, reason, reason, format, args...)
	}
}
