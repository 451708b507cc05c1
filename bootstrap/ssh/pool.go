// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Pool keeps one connection per host. It is safe for concurrent use.
type Pool struct {
	options PoolOptions
	stop    chan struct{}

	mu     sync.Mutex
	closed bool
	hosts  map[string]*pooled
}

// pooled is one host's slot. turn serializes dialing, within each caller's context; conn is guarded by Pool.mu.
type pooled struct {
	turn chan struct{}
	conn *Conn
}

// NewPool makes an empty pool.
func NewPool(o PoolOptions) *Pool {
	p := &Pool{options: o.withDefaults(), stop: make(chan struct{}), hosts: map[string]*pooled{}}
	go p.closeIdle()
	return p
}

var errPoolClosed = errors.New("the SSH connection pool is closed")

// Get returns the connection for key (for example the host's UID). It dials when there is none, when the old one broke,
// when the target changed since, or when the key that the old one presented is not among the target's pinned keys.
func (p *Pool) Get(ctx context.Context, key string, target Target) (*Conn, error) {
	slot, err := p.slot(key)
	if err != nil {
		return nil, err
	}
	select {
	case slot.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, unreachable(ctx, target, ctx.Err())
	}
	defer func() { <-slot.turn }()

	p.mu.Lock()
	old := slot.conn
	p.mu.Unlock()
	if old != nil {
		if !old.broken() && old.identity == target.identity() && target.accepts(old.hostKey) {
			old.touch()
			return old, nil
		}
		_ = old.Close()
	}
	conn, err := Dial(ctx, target, p.options)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		slot.conn = nil
		return nil, err
	}
	if p.closed || p.hosts[key] != slot {
		// Closed or forgotten while we dialed: nobody would ever close this connection.
		_ = conn.Close()
		return nil, &UnreachableError{Endpoint: target.Endpoint(), Err: errPoolClosed}
	}
	slot.conn = conn
	return conn, nil
}

func (p *Pool) slot(key string) (*pooled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolClosed
	}
	slot := p.hosts[key]
	if slot == nil {
		slot = &pooled{turn: make(chan struct{}, 1)}
		p.hosts[key] = slot
	}
	return slot, nil
}

// Forget closes the connection for key, if any.
func (p *Pool) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.hosts[key]; slot != nil {
		delete(p.hosts, key)
		if slot.conn != nil {
			_ = slot.conn.Close()
		}
	}
}

// Close closes every connection; Get fails from then on.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	close(p.stop)
	for _, slot := range p.hosts {
		if slot.conn != nil {
			_ = slot.conn.Close()
		}
	}
}

func (p *Pool) closeIdle() {
	ticker := time.NewTicker(p.options.IdleTimeout / 4)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		for _, slot := range p.hosts {
			if slot.conn == nil {
				continue
			}
			if since, idle := slot.conn.idleSince(); slot.conn.broken() || idle && time.Since(since) > p.options.IdleTimeout {
				_ = slot.conn.Close()
				slot.conn = nil
			}
		}
		p.mu.Unlock()
	}
}
