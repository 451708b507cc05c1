// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

const (
	shortCall = time.Minute
	longCall  = 5 * time.Minute
)

// outcome of call: pending means that the handler returns result now.
type outcome struct {
	pending bool
	result  result
}

var ready = outcome{}

func pending(r result) outcome { return outcome{pending: true, result: r} }

// onHost is one conversation with a host.
type onHost[T any] = func(context.Context, *infrav1.QuoinHost) (T, error)

// with is a conversation about an order.
func with[O, T any](order O, ask func(context.Context, *infrav1.QuoinHost, O) (T, error)) onHost[T] {
	return func(ctx context.Context, host *infrav1.QuoinHost) (T, error) { return ask(ctx, host, order) }
}

// call has one conversation with the host beside the workers. Its failure is put into the conditions and tried again
// with growing distance; until then call says pending.
func call[T any](ctx context.Context, r *reconciliation, op milestone, timeout time.Duration,
	fn onHost[T]) (T, outcome) {
	var none T
	if wait := r.backOff(); wait > 0 {
		return none, pending(after(wait))
	}
	host := r.host.DeepCopy() // the call outlives this reconcile
	timeout = max(timeout, r.timings().Call)
	value, done, err := async.Do(r.controller.Calls, r.key(), op.String(), timeout, func(ctx context.Context) (T, error) {
		begin := time.Now()
		value, err := fn(ctx, host)
		observeCall(op.String(), time.Since(begin), err)
		return value, r.controller.redacted(ctx, host, err)
	})
	if !done {
		return none, pending(r.awaitSlot())
	}
	r.pace().unmark(awaitsSlot)
	if err != nil {
		return none, pending(r.failed(ctx, err))
	}
	r.succeeded()
	r.pace().mark(op)
	return value, ready
}

// awaitSlot has a host say what its call waits for, once that took a while: most wait for a moment, and need no request
// for it.
func (r *reconciliation) awaitSlot() result {
	why, waits := r.controller.Calls.Waits(r.key())
	switch {
	case !waits:
		r.pace().unmark(awaitsSlot)
		return onEvent()
	case !r.pace().marked(awaitsSlot):
		r.pace().mark(awaitsSlot)
	case r.pace().remaining(awaitsSlot, r.timings().Push) == 0:
		r.crowded = why
	}
	return after(r.timings().Push)
}

// command is a call that gives an order, and returns nothing.
func command[O any](
	ctx context.Context, r *reconciliation, op milestone, timeout time.Duration, order O,
	give func(context.Context, *infrav1.QuoinHost, O) error,
) outcome {
	_, o := call(ctx, r, op, timeout, func(ctx context.Context, host *infrav1.QuoinHost) (struct{}, error) {
		return struct{}{}, give(ctx, host, order)
	})
	return o
}

func (r *reconciliation) key() client.ObjectKey { return client.ObjectKeyFromObject(r.host) }

func (r *reconciliation) pace() pacing { return r.controller.pace.of(r.key(), r.now) }
