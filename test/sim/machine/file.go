// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io"
	"os"
	"strings"
	"syscall"
)

// file is an open file description: what descriptors of several processes may share, with one offset and one lock. The
// machine's mu guards it.
type file struct {
	refs int
	n    *node
	path string
	// flags of open.
	flags    int
	off      int
	volatile bool
	// snapshot is what a file of /proc said when it was opened.
	snapshot []byte
	pipe     *pipe
	// source and sink lead out of the machine.
	source *source
	sink   io.Writer
	null   bool
	plan   string
	// closed is closed with the last descriptor.
	closed chan struct{}
}

// stream is a descriptor of a process as a reader and writer.
type stream struct {
	p  *Process
	fd int
}

func (s stream) Read(b []byte) (int, error) {
	f := s.p.fd(s.fd)
	if f == nil {
		return 0, syscall.EBADF
	}
	return f.read(s.p, b)
}

func (s stream) Write(b []byte) (int, error) {
	f := s.p.fd(s.fd)
	if f == nil {
		return 0, syscall.EBADF
	}
	return f.write(s.p, b)
}

func (p *Process) fd(fd int) *file {
	p.enter()
	defer p.leave()
	return p.fdLocked(fd)
}

func (p *Process) fdLocked(fd int) *file {
	if fd < 0 || fd >= len(p.fds) {
		return nil
	}
	return p.fds[fd]
}

// setFD puts an open file at a descriptor, which takes over the reference; mu is held.
func (p *Process) setFD(fd int, f *file) {
	for len(p.fds) <= fd {
		p.fds = append(p.fds, nil)
	}
	old := p.fds[fd]
	p.fds[fd] = f
	if old != nil {
		old.drop(p.Machine)
	}
}

func (p *Process) closeFD(fd int) {
	if fd < len(p.fds) && p.fds[fd] != nil {
		f := p.fds[fd]
		p.fds[fd] = nil
		f.drop(p.Machine)
	}
}

// release drops a reference that no descriptor has; mu is held.
func (f *file) release() { f.drop(nil) }

func (f *file) drop(m *Machine) {
	f.refs--
	if f.refs > 0 {
		return
	}
	if f.closed != nil {
		close(f.closed)
	}
	if f.pipe != nil {
		if f.flags&os.O_WRONLY != 0 {
			f.pipe.writers--
		} else {
			f.pipe.readers--
		}
		f.pipe.changed()
	}
	if m != nil && f.n != nil {
		m.unlock(f)
	}
}

// open opens a path for the process.
func (p *Process) open(path string, flags int, perm os.FileMode) (*file, error) {
	p.enter()
	defer p.leave()
	m := p.Machine
	how := follow
	writes := flags&(os.O_WRONLY|os.O_RDWR) != 0
	if writes {
		how |= own
	}
	at, err := m.look(&p.cred, path, how)
	if err != nil {
		return nil, err
	}
	if at.n == nil {
		if flags&os.O_CREATE == 0 {
			return nil, syscall.ENOENT
		}
		if strings.HasSuffix(path, "/") {
			return nil, syscall.EISDIR
		}
		if at.n, err = m.create(&p.cred, at, perm&^p.cred.umask); err != nil {
			return nil, err
		}
	} else {
		bits := os.FileMode(readBit)
		if writes {
			bits = writeBit
		}
		switch {
		case flags&os.O_EXCL != 0:
			return nil, syscall.EEXIST
		case at.n.isDir() && writes:
			return nil, syscall.EISDIR
		case !p.cred.may(at.n, bits):
			return nil, syscall.EACCES
		}
	}
	f := &file{refs: 1, n: at.n, path: at.path, flags: flags, volatile: at.volatile}
	switch {
	case at.n.mode&os.ModeCharDevice != 0 && baseName(at.path) == "null":
		f.null = true
	case at.n.dyn != nil && at.n.dyn.read != nil:
		if flags&os.O_TRUNC == 0 {
			f.snapshot = []byte(at.n.dyn.read(m, p))
		}
	case flags&os.O_TRUNC != 0:
		at.n.data, at.n.ours = nil, true
	}
	if rest, ok := strings.CutPrefix(at.path, "/var/lib/quoin/runs/"); ok && flags&os.O_APPEND != 0 {
		if plan, ok := strings.CutSuffix(rest, "/journal"); ok {
			f.plan = plan
		}
	}
	return f, nil
}

// read reads what is there, and waits only for a pipe or the outside.
func (f *file) read(p *Process, b []byte) (int, error) {
	switch {
	case f.pipe != nil:
		return f.pipe.read(p, b)
	case f.source != nil:
		return f.source.read(p, b)
	}
	p.enter()
	defer p.leave()
	if f.null || f.n == nil {
		return 0, io.EOF
	}
	if f.n.isDir() {
		return 0, syscall.EISDIR
	}
	data := f.n.data
	if f.n.dyn != nil {
		data = f.snapshot
	}
	if f.off >= len(data) {
		return 0, io.EOF
	}
	n := copy(b, data[f.off:])
	f.off += n
	return n, nil
}

// write writes all of b or says why not.
func (f *file) write(p *Process, b []byte) (int, error) {
	switch {
	case f.pipe != nil:
		return f.pipe.write(p, b)
	case f.sink != nil:
		p.check()
		n, err := f.sink.Write(b)
		if err != nil {
			p.signal("PIPE")
			p.check()
		}
		return n, err
	case f.plan != "":
		p.Machine.journal(f.plan, string(b))
	}
	p.enter()
	defer p.leave()
	m := p.Machine
	if f.null {
		return len(b), nil
	}
	if f.n == nil || f.flags&(os.O_WRONLY|os.O_RDWR) == 0 {
		return 0, syscall.EBADF
	}
	if f.n.dyn != nil {
		if f.n.dyn.write == nil {
			return 0, syscall.EPERM
		}
		if err := f.n.dyn.write(m, string(b)); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	n := f.n
	if f.flags&os.O_APPEND != 0 {
		f.off = len(n.data)
	}
	end := f.off + len(b)
	if end > len(n.data) {
		if err := m.spare(place{volatile: f.volatile}); err != nil {
			return 0, err
		}
	}
	if !n.ours {
		n.data, n.ours = append(make([]byte, 0, max(end, len(n.data))), n.data...), true
	}
	for len(n.data) < f.off {
		n.data = append(n.data, 0)
	}
	if end > len(n.data) {
		n.data = append(n.data[:f.off], b...)
	} else {
		copy(n.data[f.off:], b)
	}
	f.off = end
	n.mtime = m.o.Clock().Add(m.offset).UnixNano()
	return len(b), nil
}

// journal tells the hooks what a plan's runner is about to write down.
func (m *Machine) journal(plan, line string) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return
	}
	m.mu.Lock()
	hooks := m.onJrnl
	m.mu.Unlock()
	for _, hook := range hooks {
		hook(m, plan, words[2], words[3])
	}
}
