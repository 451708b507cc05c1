// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshd

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Line is how the network to a host misbehaves. The zero value behaves. Bytes are counted per connection, in both
// directions together, from the first one of the SSH greeting.
type Line struct {
	// Hang accepts connections and says nothing, on those that are open as well.
	Hang bool
	// HangAfter falls silent after so many bytes, when above 0.
	HangAfter int64
	// DropAfter cuts the connection after so many bytes, when above 0.
	DropAfter int64
	// Delay is waited before each packet that the host sends.
	Delay time.Duration
	// Times says how many connections this concerns; the line then behaves again. All when 0.
	Times int
}

// SetLine changes how the network behaves from now on, for the connections that are open as well.
func (s *Server) SetLine(line Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := line.Times
	s.line = line
	for c := range s.conns {
		if line.Times > 0 && left == 0 {
			break
		}
		if c.isClosed() {
			continue
		}
		left--
		c.set(line)
	}
	if line.Times > 0 {
		s.line.Times = left
		if left <= 0 {
			s.line = Line{}
		}
	}
}

// wire is one connection, as the server sees it.
type wire struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
	line   atomic.Pointer[behavior]
	moved  atomic.Int64
}

// behavior is a Line until it changes, which wakes those that hang.
type behavior struct {
	Line
	changed chan struct{}
}

// newWire takes the line's behavior, and counts it down. The server's lock is held.
func newWire(raw net.Conn, line *Line) *wire {
	w := &wire{Conn: raw, closed: make(chan struct{})}
	w.set(*line)
	if line.Times > 0 {
		if line.Times--; line.Times == 0 {
			*line = Line{}
		}
	}
	return w
}

func (w *wire) set(line Line) {
	if old := w.line.Swap(&behavior{Line: line, changed: make(chan struct{})}); old != nil {
		close(old.changed)
	}
}

// isClosed reports whether the connection was cut, and only waits for the end of who serves it.
func (w *wire) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// room waits while the line hangs, and says how many of n bytes may pass before it misbehaves.
func (w *wire) room(n int) (int, error) {
	for {
		line := w.line.Load()
		left := int64(n)
		if line.DropAfter > 0 {
			if left = min(left, line.DropAfter-w.moved.Load()); left <= 0 {
				_ = w.Close()
				return 0, io.ErrClosedPipe
			}
		}
		if line.HangAfter > 0 {
			left = min(left, max(0, line.HangAfter-w.moved.Load()))
		}
		if !line.Hang && left > 0 {
			return int(left), nil
		}
		select {
		case <-w.closed:
			return 0, io.ErrClosedPipe
		case <-line.changed:
		}
	}
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.room(len(p))
	if err != nil {
		return 0, err
	}
	n, err = w.Conn.Read(p[:n])
	w.moved.Add(int64(n))
	if line := w.line.Load(); line.Hang && err == nil {
		// Fell silent while this was on its way.
		if _, err := w.room(1); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	if delay := w.line.Load().Delay; delay > 0 {
		select {
		case <-w.closed:
		case <-time.After(delay):
		}
	}
	written := 0
	for written < len(p) {
		n, err := w.room(len(p) - written)
		if err != nil {
			return written, err
		}
		n, err = w.Conn.Write(p[written : written+n])
		written += n
		w.moved.Add(int64(n))
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
