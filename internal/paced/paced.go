// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package paced keeps what follows from many events apart from each of them.
package paced

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// After enqueues what an event maps to after the wait. A queue keeps the earliest time of each request, so all events
// of the wait have it reconciled once, and it sees all of them.
func After(wait time.Duration, of handler.MapFunc) handler.EventHandler {
	mapped := handler.EnqueueRequestsFromMapFunc(of)
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { mapped.Create(ctx, e, later{q, wait}) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { mapped.Update(ctx, e, later{q, wait}) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { mapped.Delete(ctx, e, later{q, wait}) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) {
			mapped.Generic(ctx, e, later{q, wait})
		},
	}
}

// later is a queue that lets nothing in at once.
type later struct {
	queue
	wait time.Duration
}

// Add implements workqueue.TypedInterface.
func (l later) Add(request ctrl.Request) { l.AddAfter(request, l.wait) }
