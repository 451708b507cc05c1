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

// pooled is one host's slot. dialing serializes that, within each caller's context; conn and callers are guarded by
// Pool.mu, failure by dialing.
type pooled struct {
	dialing chan struct{}
	conn    *Conn
	// callers of Get that hold the slot: it stays as long as there are any.
	callers int
	failure failure
}

// failure is the last dial that did not succeed.
type failure struct {
	at     time.Time
	target string
	err    error
}

// NewPool makes an empty pool.
func NewPool(o PoolOptions) *Pool {
	p := &Pool{options: o.withDefaults(), stop: make(chan struct{}), hosts: map[string]*pooled{}}
	go p.closeIdle()
	return p
}

var errPoolClosed = errors.New("the SSH connection pool is closed")

// Get returns the connection for key (for example the host's UID). It dials when there is none, when the old one broke,
// when it leads elsewhere, or when what the host presented is not accepted any more.
//
// When the credentials changed, a new login is tried. If it succeeds, it replaces the old connection, which is closed
// as soon as nothing runs over it. If it fails because the host does not answer, the old connection stays, provided
// that its key is still among the credentials. A connection whose key was taken away is closed at once, whatever runs
// over it. A host that took another key than the first one is asked again from time to time, for the first may have
// come to it since.
func (p *Pool) Get(ctx context.Context, key string, target Target) (*Conn, error) {
	arrived := time.Now()
	slot, err := p.slot(key)
	if err != nil {
		return nil, err
	}
	defer p.leave(slot)
	select {
	case slot.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, unreachable(ctx, target, ctx.Err())
	}
	defer func() { <-slot.dialing }()

	p.mu.Lock()
	old := slot.conn
	p.mu.Unlock()
	keep := old != nil && !old.broken() && old.place == target.place() &&
		target.judge(old.hostKey, time.Now()) == nil && old.mayGoOn(target)
	switch {
	case keep && old.credentials == target.credentials() && !old.fellBack(target, p.options.PreferredKey):
		old.touch()
		return old, nil
	case !keep && old != nil:
		_ = old.Close()
	}
	identity := target.place() + target.credentials()
	if !keep && slot.failure.target == identity && slot.failure.at.After(arrived) {
		// Who waited while somebody else tried in vain does not try once more: a bastion that hangs has many in its queue.
		return nil, slot.failure.err
	}
	conn, err := p.dial(ctx, target)
	switch {
	case err == nil:
		if keep {
			old.retire()
		}
		return p.put(key, slot, conn, target)
	case keep && IsTransient(err) && !old.broken():
		old.touch()
		return old, nil
	}
	if ctx.Err() == nil {
		slot.failure = failure{at: time.Now(), target: identity, err: err}
	}
	if keep {
		_ = old.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slot.conn = nil
	return nil, err
}

func (p *Pool) put(key string, slot *pooled, conn *Conn, target Target) (*Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.hosts[key] != slot {
		// Closed or forgotten while we dialed: nobody would ever close this connection.
		_ = conn.Close()
		return nil, &UnreachableError{Endpoint: target.Endpoint(), Err: errPoolClosed}
	}
	slot.conn = conn
	return conn, nil
}

// dial connects, through the bastion's own pooled connection if there is a bastion: many hosts share it.
func (p *Pool) dial(ctx context.Context, target Target) (*Conn, error) {
	if target.Bastion == nil {
		return dialDirect(ctx, target, p.options)
	}
	bastion := target.bastion()
	via, err := p.Get(ctx, target.bastionKey(), bastion)
	if err != nil {
		return nil, bastionError(target, err)
	}
	conn, err := dialThrough(ctx, target, via, p.options)
	if err == nil {
		conn.via = via
	}
	return conn, err
}

func (p *Pool) slot(key string) (*pooled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolClosed
	}
	slot := p.hosts[key]
	if slot == nil {
		slot = &pooled{dialing: make(chan struct{}, 1)}
		p.hosts[key] = slot
	}
	slot.callers++
	return slot, nil
}

func (p *Pool) leave(slot *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot.callers--
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
	ticker := p.options.Clock.NewTicker(p.options.IdleTimeout / 4)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C():
		}
		p.mu.Lock()
		for key, slot := range p.hosts {
			if slot.conn == nil {
				if slot.callers == 0 {
					delete(p.hosts, key)
				}
				continue
			}
			if since, idle := slot.conn.idleSince(); slot.conn.broken() || idle &&
				p.options.Clock.Since(since) > p.options.IdleTimeout {
				_ = slot.conn.Close()
				slot.conn = nil
			}
		}
		p.mu.Unlock()
	}
}
