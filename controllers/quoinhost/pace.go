// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pace remembers, while the process lives, when an exchange last succeeded, so that the many events of a host do not
// each start one. What must outlive the process is in the status. The zero value is ready.
type pace struct {
	// haste divides what remaining waits; 1 when 0.
	haste int

	mu   sync.Mutex
	done map[types.NamespacedName]map[string]time.Time
}

// mark notes that op succeeded now.
func (p *pace) mark(key types.NamespacedName, op string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = map[types.NamespacedName]map[string]time.Time{}
	}
	if p.done[key] == nil {
		p.done[key] = map[string]time.Time{}
	}
	p.done[key][op] = now
}

// marked says whether op ever succeeded in this process.
func (p *pace) marked(key types.NamespacedName, op string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.done[key][op]
	return ok
}

// last is when op succeeded; zero when this process does not know.
func (p *pace) last(key types.NamespacedName, op string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done[key][op]
}

// since is how long ago op succeeded; longer than any wait when this process does not know. Haste is taken into account.
func (p *pace) since(key types.NamespacedName, op string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.done[key][op]
	if !ok {
		return math.MaxInt64
	}
	return now.Sub(at) * time.Duration(max(p.haste, 1))
}

// remaining is the time until op is due again, when it runs once in every.
func (p *pace) remaining(key types.NamespacedName, op string, every time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.done[key][op]
	if !ok {
		return 0
	}
	return max(0, at.Add(every/time.Duration(max(p.haste, 1))).Sub(now))
}

// unmark makes op due.
func (p *pace) unmark(key types.NamespacedName, op string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.done[key], op)
}

// forget drops everything about key.
func (p *pace) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.done, key)
}
