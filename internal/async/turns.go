// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async

import (
	"context"
	"slices"
	"sync"
)

// greed is how many times what is free one namespace may have: with 4, all but a fifth of what the others leave.
const greed = 4

// turns shares slots between namespaces, as switches share a buffer between ports (the dynamic threshold of Choudhury
// and Hahne, 1998): whoever has more than a multiple of what is free waits. So what one namespace keeps busy for long
// leaves slots for the others however much that is, without any being kept for namespaces that ask for nothing.
type turns struct {
	slots int

	mu      sync.Mutex
	taken   int
	by      map[string]int
	waiting []*turn
}

// turn is one that waits. begins is closed when it has a slot.
type turn struct {
	namespace string
	begins    chan struct{}
}

func newTurns(slots int) *turns { return &turns{slots: slots, by: map[string]int{}} }

// has reports whether a namespace that has so many slots gets another one where so many are free. The last free one is
// for a namespace without any.
func has(own, free int) bool {
	if own == 0 {
		return free > 0
	}
	return own < greed*(free-1)
}

// take waits for a slot. Those of a namespace get theirs in the order in which they ask.
func (t *turns) take(ctx context.Context, namespace string) error {
	mine := &turn{namespace: namespace, begins: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, mine)
	t.next()
	begins := !slices.Contains(t.waiting, mine)
	t.mu.Unlock()
	if begins {
		return nil
	}
	select {
	case <-mine.begins:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, mine); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
		return ctx.Err()
	}
	// It got one at the same time.
	t.give(namespace)
	return ctx.Err()
}

// leave gives a slot back.
func (t *turns) leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(namespace)
}

func (t *turns) give(namespace string) {
	t.taken--
	if t.by[namespace]--; t.by[namespace] == 0 {
		delete(t.by, namespace)
	}
	t.next()
}

// next gives slots to those who may have one, in their order.
func (t *turns) next() {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool {
		if !has(t.by[w.namespace], t.slots-t.taken) {
			return false
		}
		t.taken++
		t.by[w.namespace]++
		close(w.begins)
		return true
	})
}
