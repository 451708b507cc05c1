// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net"
	"sync"
	"syscall"
)

// Listener is a port of the machine. It is a net.Listener; it closes when its process ends.
type Listener struct {
	m      *Machine
	port   int
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen opens a port, which Machine.Dial reaches and /proc/net/tcp shows.
func (p *Process) Listen(port int) (*Listener, error) {
	p.enter()
	defer p.leave()
	m := p.Machine
	if m.ports[port] != nil {
		return nil, fmt.Errorf("listen tcp :%d: %w", port, syscall.EADDRINUSE)
	}
	if m.ports == nil {
		m.ports = map[int]*Listener{}
	}
	l := &Listener{m: m, port: port, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.ports[port] = l
	p.listeners = append(p.listeners, l)
	return l, nil
}

func (l *Listener) dial() (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial tcp 127.0.0.1:%d: %w", l.port, syscall.ECONNREFUSED)
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.closeLocked()
	return nil
}

func (l *Listener) closeLocked() {
	l.once.Do(func() {
		close(l.closed)
		if l.m.ports[l.port] == l {
			delete(l.m.ports, l.port)
		}
	})
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }
