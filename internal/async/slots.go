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

// Slots shares slots between namespaces, as switches share a buffer between ports (the dynamic threshold of Choudhury
// and Hahne, 1998): whoever has more than a multiple of what is free waits. So what one namespace keeps busy for long
// leaves slots for the others however much that is, without any being kept for namespaces that ask for nothing. Safe
// for concurrent use.
type Slots struct {
	all int

	mu      sync.Mutex
	taken   int
	by      map[string]int
	waiting []*waiter
}

// waiter is one that waits. begins is closed when it has a slot.
type waiter struct {
	namespace string
	begins    chan struct{}
}

// NewSlots makes so many slots. One namespace has at most four fifths of them.
func NewSlots(all int) *Slots { return &Slots{all: all, by: map[string]int{}} }

// has reports whether a namespace that has so many slots gets another one where so many are free. The last free one is
// for a namespace without any.
func has(own, free int) bool {
	if own == 0 {
		return free > 0
	}
	return own < greed*(free-1)
}

// share is how many one namespace has where no other has any.
func (s *Slots) share() int {
	own := 0
	for has(own, s.all-own) {
		own++
	}
	return own
}

// take waits for a slot. Those of a namespace get theirs in the order in which they ask.
func (s *Slots) take(ctx context.Context, namespace string) error {
	mine := &waiter{namespace: namespace, begins: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, mine)
	s.next()
	begins := !slices.Contains(s.waiting, mine)
	s.mu.Unlock()
	if begins {
		return nil
	}
	select {
	case <-mine.begins:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, mine); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
		return ctx.Err()
	}
	// It got one at the same time.
	s.give(namespace)
	return ctx.Err()
}

// Try takes a slot, where one may be had at once. Whoever has one gives it back by Leave.
func (s *Slots) Try(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taking(namespace)
}

// taking takes a slot for a namespace that may have one.
func (s *Slots) taking(namespace string) bool {
	if !has(s.by[namespace], s.all-s.taken) {
		return false
	}
	s.taken++
	s.by[namespace]++
	return true
}

// Leave gives a slot back.
func (s *Slots) Leave(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(namespace)
}

func (s *Slots) give(namespace string) {
	s.taken--
	if s.by[namespace]--; s.by[namespace] == 0 {
		delete(s.by, namespace)
	}
	s.next()
}

// next gives slots to those who may have one, in their order.
func (s *Slots) next() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		if !s.taking(w.namespace) {
			return false
		}
		close(w.begins)
		return true
	})
}
