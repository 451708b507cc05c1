// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package async runs slow calls, such as SSH exchanges, beside the reconcilers' workers: the first reconcile starts the call,
// its end requeues the object, and the next reconcile takes the result.
package async

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Options tune Calls.
type Options struct {
	// MaxConcurrent bounds running calls over all keys; 0 means 64. More calls wait their turn.
	MaxConcurrent int
}

// Calls holds at most one call per key, running or finished but not yet taken. Safe for concurrent use.
type Calls struct{}

// New makes an empty registry.
func New(o Options) *Calls { panic("not yet") }

// Events fires once for each ended call, with an object that carries only the key's namespace and name. Give it to
// source.Channel with handler.EnqueueRequestForObject.
func (c *Calls) Events() <-chan event.GenericEvent { panic("not yet") }

// Do returns the result of op for key, once, with done true; or starts fn in a goroutine and returns done false.
//
// While another op of the key runs, Do returns done false and starts nothing; that op's end fires the event. A finished
// result of another op that nobody took is dropped. timeout bounds fn from its start; 0 means none.
func Do[T any](c *Calls, key types.NamespacedName, op string, timeout time.Duration, fn func(context.Context) (T, error)) (value T, done bool, err error) {
	panic("not yet")
}

// Running returns the op that runs (or waits its turn) for key, and since when.
func (c *Calls) Running(key types.NamespacedName) (op string, since time.Time, ok bool) {
	panic("not yet")
}

// Cancel cancels the key's call and drops its result. Its function may still be returning: until then no other starts.
func (c *Calls) Cancel(key types.NamespacedName) { panic("not yet") }

// Close cancels everything and waits for it.
func (c *Calls) Close() { panic("not yet") }
