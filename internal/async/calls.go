// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package async runs slow calls, such as SSH exchanges, beside the reconcilers' workers: the first reconcile starts the
// call, its end requeues the object, and the next reconcile takes the result.
package async

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Options tune Calls.
type Options struct {
	// MaxConcurrent bounds running calls over all keys; 0 means 640. More calls wait for a slot. A call mostly waits for
	// its host, and costs little meanwhile: the bound must exceed what may fall silent together, or silence holds up the
	// rest. One namespace has at most four fifths of it, 512 of 640, and less where others are busy too.
	MaxConcurrent int
}

// Calls holds at most one call per key, running or finished but not yet taken. Safe for concurrent use.
type Calls struct {
	ctx    context.Context //nolint:containedctx // the parent of every call, which outlives the reconcile that made it
	cancel context.CancelFunc
	slots  *Slots
	events chan event.GenericEvent
	done   sync.WaitGroup

	mu    sync.Mutex
	calls map[types.NamespacedName]*call
}

type call struct {
	op       string
	since    time.Time
	cancel   context.CancelFunc
	canceled bool
	// begun says that it has a slot.
	begun    bool
	finished bool
	value    any
	err      error
}

// New makes an empty registry.
func New(o Options) *Calls {
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = 640
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Calls{
		ctx: ctx, cancel: cancel, slots: NewSlots(o.MaxConcurrent),
		events: make(chan event.GenericEvent, 1024), calls: map[types.NamespacedName]*call{},
	}
}

// Events fires once for each ended call, with an object that carries only the key's namespace and name. Give it to
// source.Channel with handler.EnqueueRequestForObject.
func (c *Calls) Events() <-chan event.GenericEvent { return c.events }

// Do returns the result of op for key, once, with done true; or starts fn in a goroutine and returns done false.
//
// While another op of the key runs, Do returns done false and starts nothing; that op's end fires the event. A finished
// result of another op that nobody took is dropped: the reconciler has changed its mind since. timeout bounds fn from
// its start, not from its wait for a slot; 0 means none. A panic in fn becomes its error.
func Do[T any](
	c *Calls, key types.NamespacedName, op string, timeout time.Duration, fn func(context.Context) (T, error),
) (value T, done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.calls[key]; known != nil {
		if !known.finished {
			return value, false, nil
		}
		delete(c.calls, key)
		if known.op == op && !known.canceled {
			// A failed call has no value; an op whose type changed under its name has no usable one.
			value, _ = known.value.(T)
			return value, true, known.err
		}
	}
	if c.ctx.Err() != nil {
		return value, true, fmt.Errorf("%s: %w", op, c.ctx.Err())
	}
	ctx, cancel := context.WithCancel(c.ctx)
	// Here and not beside the worker, so that it is known at once who waits.
	begun := c.slots.Try(key.Namespace)
	started := &call{op: op, since: time.Now(), cancel: cancel, begun: begun}
	c.calls[key] = started
	c.done.Go(func() {
		var result any
		var err error
		if !begun {
			err = c.await(ctx, key.Namespace, started)
		}
		if err == nil {
			result, err = c.run(ctx, key.Namespace, op, timeout, func(ctx context.Context) (any, error) { return fn(ctx) })
		}
		c.finish(key, started, result, err)
	})
	return value, false, nil
}

// await waits for a slot.
func (c *Calls) await(ctx context.Context, namespace string, waits *call) error {
	if err := c.slots.take(ctx, namespace); err != nil {
		return fmt.Errorf("%s: %w", waits.op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waits.begun = true
	return nil
}

// run has a slot, which it gives back.
func (c *Calls) run(
	ctx context.Context, namespace, op string, timeout time.Duration, fn func(context.Context) (any, error),
) (value any, err error) {
	defer c.slots.Leave(namespace)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", op, ctx.Err())
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	defer func() {
		if r := recover(); r != nil {
			value, err = nil, fmt.Errorf("%s: panic: %v\n%s", op, r, debug.Stack())
		}
	}()
	return fn(ctx)
}

func (c *Calls) finish(key types.NamespacedName, ended *call, value any, err error) {
	ended.cancel()
	c.mu.Lock()
	if ended.canceled {
		delete(c.calls, key)
	} else {
		ended.finished, ended.value, ended.err = true, value, err
	}
	c.mu.Unlock()
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case c.events <- event.GenericEvent{Object: object}:
	case <-c.ctx.Done():
	}
}

// Running returns the op that runs (or waits its turn) for key, and since when.
func (c *Calls) Running(key types.NamespacedName) (op string, since time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.calls[key]
	if known == nil || known.finished {
		return "", time.Time{}, false
	}
	return known.op, known.since, true
}

// Waits reports whether the key's call has no slot yet, and says what it waits for.
func (c *Calls) Waits(key types.NamespacedName) (why string, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.calls[key]; known == nil || known.begun || known.finished {
		return "", false
	}
	return fmt.Sprintf("not connected to yet: the hosts of namespace %s have as many calls at once as there is room for, "+
		"at most %d of %d. Those that take connections and never answer hold theirs until their time is over: look with "+
		"kubectl -n %s get quoinhosts for those that are not Ready, and repair them, or delete their QuoinHosts",
		key.Namespace, c.slots.share(), c.slots.all, key.Namespace), true
}

// Cancel cancels the key's call and drops its result. Its function may still be returning: until then no other starts,
// and its end still fires the event.
func (c *Calls) Cancel(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.calls[key]
	if known == nil {
		return
	}
	if known.finished {
		delete(c.calls, key)
		return
	}
	known.canceled = true
	known.cancel()
}

// Start implements manager.Runnable: it closes the Calls at the end of ctx. Without it those of a manager that lost its
// leadership would go on beside those of the new leader.
func (c *Calls) Start(ctx context.Context) error {
	<-ctx.Done()
	c.Close()
	return nil
}

// Close cancels everything and waits for it.
func (c *Calls) Close() {
	// Under the lock, so that no Do starts a call after the wait began.
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.done.Wait()
}
