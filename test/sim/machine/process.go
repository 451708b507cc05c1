// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// Process is one entry of the process table, and what a Program sees of its machine. Every method that touches the machine
// ends the process's goroutine at once when the process was killed, so that the dead change nothing.
type Process struct {
	Machine *Machine
	PID     int
	// Args are the command and its arguments.
	Args []string
	// Image is the content of the executable file, see Executable.
	Image []byte

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	ppid, pgid, sid int
	comm            string
	env             []string
	cred            cred
	fds             []*file
	ignored         map[string]bool
	caught          map[string]bool
	pending         []string
	wake            chan struct{}
	unit            *unit
	listeners       []*Listener

	// ended is closed when the process is over, as the table sees it; its goroutine may still unwind.
	ended  chan struct{}
	over   bool
	killed bool
	code   int
	zombie bool
}

// gone unwinds the goroutine of a process that was killed.
type gone struct{ p *Process }

// enter takes the machine's lock, or ends the goroutine when the process is dead.
func (p *Process) enter() {
	p.Machine.mu.Lock()
	if p.over {
		p.Machine.mu.Unlock()
		panic(gone{p})
	}
}

func (p *Process) leave() { p.Machine.mu.Unlock() }

// check ends the goroutine when the process is dead.
func (p *Process) check() {
	p.enter()
	p.leave()
}

// newProcess forks: mu is held.
func (m *Machine) newProcess(parent *Process, args []string) *Process {
	m.nextPID++
	p := &Process{Machine: m, PID: m.nextPID, Args: args, ended: make(chan struct{}), cred: *rootCred}
	if len(args) > 0 {
		p.comm = comm(args[0])
	}
	p.pgid, p.sid, p.ppid = p.PID, p.PID, 1
	if parent != nil {
		p.ppid, p.pgid, p.sid = parent.PID, parent.pgid, parent.sid
		p.cred, p.env, p.unit = parent.cred, parent.env, parent.unit
		if len(parent.ignored) > 0 {
			p.ignored = parent.ignored
		}
		p.fds = make([]*file, len(parent.fds))
		copy(p.fds, parent.fds)
		for _, f := range p.fds {
			if f != nil {
				f.refs++
			}
		}
	}
	p.bind()
	m.procs[p.PID] = p
	return p
}

// bind makes the standard streams follow the descriptors.
func (p *Process) bind() {
	p.Stdin, p.Stdout, p.Stderr = stream{p, 0}, stream{p, 1}, stream{p, 2}
}

func comm(arg string) string {
	name := baseName(arg)
	if len(name) > 15 {
		name = name[:15]
	}
	return name
}

// finish takes a process out of the table; mu is held. The first end counts.
func (p *Process) finish(code int, killed bool) {
	if p.over {
		return
	}
	p.over, p.killed, p.code = true, killed, code
	m := p.Machine
	for fd := range p.fds {
		p.closeFD(fd)
	}
	p.fds = nil
	for _, l := range p.listeners {
		l.closeLocked()
	}
	parent := m.procs[p.ppid]
	if parent != nil && !parent.over {
		p.zombie = true
	} else {
		delete(m.procs, p.PID)
	}
	// What it left behind belongs to init now; its dead are collected there.
	for pid, q := range m.procs {
		if q.ppid == p.PID {
			q.ppid = 1
			if q.zombie {
				delete(m.procs, pid)
			}
		}
	}
	close(p.ended)
}

// reap forgets a child that ended.
func (p *Process) reap() {
	m := p.Machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.over {
		delete(m.procs, p.PID)
	}
}

// run calls body as the process and ends it with the code that body returns. It may be called in the goroutine of the
// parent, which waits for it, or in one of its own.
func (p *Process) run(body func() int) (code int) {
	defer func() {
		if r := recover(); r != nil {
			if g, ok := r.(gone); !ok || g.p != p {
				// The parent died meanwhile, or this is a mistake of ours.
				p.Machine.mu.Lock()
				p.finish(137, true)
				p.Machine.mu.Unlock()
				panic(r)
			}
			code = p.code
		}
	}()
	code = body()
	p.Machine.mu.Lock()
	p.finish(code, false)
	code = p.code
	p.Machine.mu.Unlock()
	return code
}

// spawn is run in a goroutine of its own.
func (p *Process) spawn(body func() int) {
	go func() {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(gone); !ok {
					panic(r)
				}
			}
		}()
		p.run(body)
	}()
}

// Context is done when the process is killed or the machine goes down.
func (p *Process) Context() context.Context { return processContext{p} }

type processContext struct{ p *Process }

// Deadline implements context.Context.
func (processContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c processContext) Done() <-chan struct{} { return c.p.ended }

// Value implements context.Context.
func (processContext) Value(any) any { return nil }

// Err implements context.Context.
func (c processContext) Err() error {
	select {
	case <-c.p.ended:
		return context.Canceled
	default:
		return nil
	}
}

// Getenv returns a variable of the environment.
func (p *Process) Getenv(name string) string {
	for i := len(p.env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(p.env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// Environ returns the environment as name=value.
func (p *Process) Environ() []string { return append([]string(nil), p.env...) }

// Dir is the working directory.
func (p *Process) Dir() string { return p.cred.dir }

// UID is on whose behalf the process runs.
func (p *Process) UID() int { return p.cred.uid }

// Printf writes to the standard output.
func (p *Process) Printf(format string, args ...any) { fmt.Fprintf(p.Stdout, format, args...) }

// Fail writes a sentence, after the name of the command, to the standard error, and returns 1.
func (p *Process) Fail(format string, args ...any) int {
	fmt.Fprintf(p.Stderr, "%s: %s\n", p.comm, fmt.Sprintf(format, args...))
	return 1
}

// Sleep waits by the machine's own time. It returns false when a signal that the process catches came first.
func (p *Process) Sleep(d time.Duration) bool {
	timer := time.NewTimer(time.Duration(float64(d) / p.Machine.o.Speed))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ended:
		panic(gone{p})
	}
}

// ReadFile reads a file of the machine as the process.
func (p *Process) ReadFile(path string) ([]byte, error) {
	p.enter()
	defer p.leave()
	at, err := p.Machine.get(&p.cred, path, follow)
	switch {
	case err != nil:
	case at.n.isDir():
		err = syscall.EISDIR
	case !p.cred.may(at.n, readBit):
		err = syscall.EACCES
	}
	if err != nil {
		return nil, pathErr("open", path, err)
	}
	return append([]byte(nil), p.Machine.content(at.n, p)...), nil
}

// WriteFile writes a file of the machine as the process. The directory must exist.
func (p *Process) WriteFile(path string, content []byte, perm os.FileMode) error {
	f, err := p.open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err == nil {
		_, err = f.write(p, content)
		p.enter()
		f.release()
		p.leave()
	}
	return pathErr("write", path, err)
}

// MkdirAll makes a directory and its parents.
func (p *Process) MkdirAll(path string, perm os.FileMode) error {
	p.enter()
	defer p.leave()
	return pathErr("mkdir", path, p.Machine.mkdirAll(&p.cred, path, perm))
}

// Remove takes away a file or directory with everything below it.
func (p *Process) Remove(path string) error {
	p.enter()
	defer p.leave()
	return pathErr("remove", path, p.Machine.removeAll(&p.cred, path))
}

// ReadDir returns the sorted names in a directory.
func (p *Process) ReadDir(path string) ([]string, error) {
	p.enter()
	defer p.leave()
	at, err := p.Machine.get(&p.cred, path, follow)
	switch {
	case err != nil:
	case !at.n.isDir():
		err = syscall.ENOTDIR
	case !p.cred.may(at.n, readBit):
		err = syscall.EACCES
	}
	if err != nil {
		return nil, pathErr("open", path, err)
	}
	return at.n.names(p.Machine), nil
}

// Stat follows links.
func (p *Process) Stat(path string) (Stat, error) { return p.stat(path, follow) }

// Lstat does not.
func (p *Process) Lstat(path string) (Stat, error) { return p.stat(path, 0) }

func (p *Process) stat(path string, how lookup) (Stat, error) {
	p.enter()
	defer p.leave()
	at, err := p.Machine.get(&p.cred, path, how)
	if err != nil {
		return Stat{}, pathErr("stat", path, err)
	}
	return statOf(at), nil
}
