// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// pipe is a bounded queue of bytes. The machine's mu guards it.
type pipe struct {
	buf              []byte
	readers, writers int
	wake             chan struct{}
}

const pipeRoom = 64 << 10

// newPipe gives both ends; mu is held.
func newPipe() (r, w *file) {
	p := &pipe{readers: 1, writers: 1}
	return &file{refs: 1, pipe: p, flags: os.O_RDONLY}, &file{refs: 1, pipe: p, flags: os.O_WRONLY}
}

// changed wakes who waits; mu is held.
func (q *pipe) changed() {
	if q.wake != nil {
		close(q.wake)
		q.wake = nil
	}
}

// sleep waits for a change; mu is held before, and not after.
func (q *pipe) sleep(p *Process) {
	if q.wake == nil {
		q.wake = make(chan struct{})
	}
	wake := q.wake
	p.leave()
	select {
	case <-wake:
	case <-p.ended:
	}
}

func (q *pipe) read(p *Process, b []byte) (int, error) {
	for {
		p.enter()
		if len(q.buf) > 0 {
			n := copy(b, q.buf)
			q.buf = q.buf[n:]
			if len(q.buf) == 0 {
				q.buf = nil
			}
			q.changed()
			p.leave()
			return n, nil
		}
		if q.writers <= 0 {
			p.leave()
			return 0, io.EOF
		}
		q.sleep(p)
	}
}

func (q *pipe) write(p *Process, b []byte) (int, error) {
	done := 0
	for {
		p.enter()
		if q.readers <= 0 {
			p.leave()
			p.signal("PIPE")
			p.check()
			return done, io.ErrClosedPipe
		}
		if room := pipeRoom - len(q.buf); room > 0 || len(b) == done {
			n := min(room, len(b)-done)
			q.buf = append(q.buf, b[done:done+n]...)
			done += n
			q.changed()
			if done == len(b) {
				p.leave()
				return done, nil
			}
		}
		q.sleep(p)
	}
}

// source is an input from outside the machine. Nothing is read before a process asks for it, nor more than it asks for.
type source struct {
	r  io.Reader
	mu sync.Mutex
	// left is what came for a reader that was killed meanwhile.
	left []byte
	err  error
	busy chan struct{}
}

func (s *source) read(p *Process, b []byte) (int, error) {
	p.check()
	if len(b) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	for {
		if len(s.left) > 0 {
			n := copy(b, s.left)
			s.left = s.left[n:]
			s.mu.Unlock()
			return n, nil
		}
		if s.r == nil || s.err != nil {
			s.mu.Unlock()
			return 0, io.EOF
		}
		if s.busy != nil {
			busy := s.busy
			s.mu.Unlock()
			select {
			case <-busy:
			case <-p.ended:
				panic(gone{p})
			}
			s.mu.Lock()
			continue
		}
		switch r := s.r.(type) {
		case *bytes.Reader, *strings.Reader, *bytes.Buffer:
			n, err := r.Read(b)
			s.err = err
			s.mu.Unlock()
			if n > 0 {
				return n, nil
			}
			return 0, io.EOF
		}
		s.busy = make(chan struct{})
		go func(room int) {
			own := make([]byte, room)
			n, err := s.r.Read(own)
			s.mu.Lock()
			s.left = append(s.left, own[:n]...)
			s.err = err
			close(s.busy)
			s.busy = nil
			s.mu.Unlock()
		}(min(len(b), 32<<10))
	}
}
