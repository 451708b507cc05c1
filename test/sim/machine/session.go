// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"io"
	"sync"
)

// Session is what sshd is asked to run.
type Session struct {
	// Command is given to the login shell: /bin/sh -c Command.
	Command string
	// Stdin is read only as far as the command reads it; nil is empty.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// User of the session; empty means root. The user must be in /etc/passwd.
	User string
	// Env is added to the environment.
	Env []string
}

// Exec is a command that runs in a session.
type Exec struct {
	p    *Process
	line *line
}

// line is the session's connection: when it is cut, the command reads the end of its input, and writing is a broken pipe.
type line struct {
	mu  sync.Mutex
	cut bool
}

// settle waits for a writer that has begun, and says whether the line was cut.
func (l *line) settle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

type lineWriter struct {
	line *line
	w    io.Writer
}

func (l lineWriter) Write(b []byte) (int, error) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	if l.line.cut {
		return 0, io.ErrClosedPipe
	}
	if l.w == nil {
		return len(b), nil
	}
	return l.w.Write(b)
}

// Start begins a command as sshd does. ErrDown when the machine is off.
func (m *Machine) Start(s Session) (*Exec, error) {
	m.mu.Lock()
	if !m.powered {
		m.mu.Unlock()
		return nil, ErrDown
	}
	e := &Exec{line: &line{}}
	p := m.newProcess(nil, []string{"sh", "-c", s.Command})
	e.p = p
	if s.User != "" && s.User != "root" {
		p.cred.uid, p.cred.gid = m.userID(s.User)
	}
	home := m.home(s.User)
	p.cred.dir = home
	if s.User == "" {
		s.User = "root"
	}
	p.env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "USER=" + s.User,
		"LOGNAME=" + s.User, "SHELL=/bin/sh"}, s.Env...)
	src := &source{r: s.Stdin}
	p.setFD(0, &file{refs: 1, source: src})
	p.setFD(1, &file{refs: 1, sink: lineWriter{e.line, s.Stdout}})
	p.setFD(2, &file{refs: 1, sink: lineWriter{e.line, s.Stderr}})
	hooks := m.onProc
	m.mu.Unlock()
	for _, hook := range hooks {
		hook(Event{Machine: m, PID: p.PID, Args: p.Args})
	}
	p.spawn(func() int { return newShell(p).runText(s.Command) })
	return e, nil
}

// Wait waits for the end of the command itself, not of what it left in the background. ErrDown when the machine went down
// meanwhile; the context's error when that ended first: the session is cut then, and the command goes on.
func (e *Exec) Wait(ctx context.Context) (int, error) {
	select {
	case <-e.p.ended:
	case <-ctx.Done():
		e.Cut()
		return 0, ctx.Err()
	}
	m := e.p.Machine
	m.mu.Lock()
	down := e.p.killed && e.p.code == downCode
	m.mu.Unlock()
	// What the command wrote last is written.
	_ = e.line.settle()
	if down {
		return 0, ErrDown
	}
	return e.p.code, nil
}

// Cut ends the session's connection, not the command.
func (e *Exec) Cut() {
	e.line.mu.Lock()
	e.line.cut = true
	e.line.mu.Unlock()
}

// Signal sends a signal (KILL, TERM, HUP) to the process group of the command, as sshd does when a client asks for it.
func (e *Exec) Signal(name string) { e.p.Machine.signalGroup(e.p.pgid, name) }

// Run starts a command and waits for its end.
func (m *Machine) Run(ctx context.Context, s Session) (int, error) {
	e, err := m.Start(s)
	if err != nil {
		return 0, err
	}
	return e.Wait(ctx)
}

// Daemon starts a program that belongs to no unit, as a container does: it outlives the process that started it. The args
// are what the process table shows. It returns the number of the new process.
func (p *Process) Daemon(program Program, args ...string) int {
	p.enter()
	m := p.Machine
	child := m.newProcess(nil, args)
	child.env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for fd := range 3 {
		child.setFD(fd, &file{refs: 1, null: true})
	}
	hooks := m.onProc
	p.leave()
	child.spawn(func() int {
		for _, hook := range hooks {
			hook(Event{Machine: m, PID: child.PID, Args: args})
		}
		return program(child.Context(), child)
	})
	return child.PID
}

// Alive says whether the process of that number runs.
func (m *Machine) Alive(pid int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.procs[pid]
	return p != nil && !p.over
}
