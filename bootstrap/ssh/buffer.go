// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"sync"
)

// headBuffer keeps the beginning of what is written, in pieces of OutputPiece. It takes room for each but the first.
type headBuffer struct {
	limit int
	// take and give are those of an OutputRoom; nil where nothing bounds more than limit.
	take func() error
	give func()
	// full is called when take refuses.
	full func(error)

	mu     sync.Mutex
	length int
	cut    bool
	pieces [][]byte
	// released: nothing is kept any more.
	released bool
}

func (b *headBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := p[:min(len(p), b.limit-b.length)]
	b.cut = b.cut || len(rest) < len(p)
	for len(rest) > 0 && b.fits() {
		last := len(b.pieces) - 1
		n := min(len(rest), OutputPiece-len(b.pieces[last]))
		b.pieces[last] = append(b.pieces[last], rest[:n]...)
		b.length, rest = b.length+n, rest[n:]
	}
	return len(p), nil
}

// fits reports whether the last piece has room, or else one more is begun.
func (b *headBuffer) fits() bool {
	switch {
	case b.released:
		return false
	case b.length < len(b.pieces)*OutputPiece:
		return true
	case len(b.pieces) > 0 && b.take != nil:
		if err := b.take(); err != nil {
			b.full(err)
			return false
		}
	}
	b.pieces = append(b.pieces, nil)
	return true
}

// release gives the room back. A host that does not let go of its command may still write.
func (b *headBuffer) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := 1; i < len(b.pieces) && b.give != nil; i++ {
		b.give()
	}
	b.pieces, b.released = nil, true
}

func (b *headBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.Join(b.pieces, nil))
}

func (b *headBuffer) truncated() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.cut }

// tailBuffer keeps the end of what is written.
type tailBuffer struct {
	limit int
	buf   []byte
	// cut says that there was more before.
	cut bool
}

// String is what is kept, without the rest of a line that was cut in two, which may be half a secret. Of a single line
// all stays: what it is cut for is its end.
func (b *tailBuffer) String() string {
	if i := bytes.IndexByte(b.buf, '\n'); b.cut && i >= 0 && i+1 < len(b.buf) {
		return string(b.buf[i+1:])
	}
	return string(b.buf)
}

func (b *tailBuffer) write(p []byte) {
	b.buf = append(b.buf, p...)
	if over := len(b.buf) - b.limit; over > 0 {
		b.buf, b.cut = append(b.buf[:0], b.buf[over:]...), true
	}
}

// startedBuffer keeps the end of the standard error. What came before the started mark is forgotten with it: a login
// shell or sudo said that ("unable to resolve host"), not the script.
type startedBuffer struct {
	// began is closed when the mark was seen.
	began chan struct{}

	mu   sync.Mutex
	seen bool
	tail tailBuffer
}

func newStartedBuffer() *startedBuffer {
	return &startedBuffer{began: make(chan struct{}), tail: tailBuffer{limit: MaxStderr}}
}

func (b *startedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail.write(p)
	if !b.seen {
		if i := bytes.Index(b.tail.buf, []byte(started)); i >= 0 {
			b.seen = true
			close(b.began)
			b.tail.buf, b.tail.cut = append(b.tail.buf[:0], b.tail.buf[i+len(started):]...), false
		}
	}
	return len(p), nil
}

func (b *startedBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.tail.String() }
func (b *startedBuffer) begun() bool    { b.mu.Lock(); defer b.mu.Unlock(); return b.seen }
