// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// call runs a simple command.
func (s *shell) call(cmd *syntax.CallExpr, redirs []*syntax.Redirect) {
	tail := s.tail
	s.tail, s.subst = false, 0
	args, ok := s.fields(cmd.Args)
	if !ok {
		return
	}
	if s.xtrace && len(args) > 0 {
		_, _ = s.p.Stderr.Write([]byte("+ " + strings.Join(args, " ") + "\n"))
	}
	if len(args) == 0 {
		if !s.assign(cmd.Assigns, false) {
			return
		}
		s.status = s.subst
		undo, ok := s.redirect(s.p, redirs, true)
		undo()
		if !ok {
			s.status = 2
		}
		return
	}
	name := args[0]
	if body := s.funcs[name]; body != nil {
		s.callFunction(body, args, cmd.Assigns, redirs)
		return
	}
	if name == "exec" {
		s.exec(args[1:], cmd.Assigns, redirs)
		return
	}
	builtin, special := builtins[name], specials[name]
	if builtin == nil {
		s.external(args, cmd.Assigns, redirs, tail)
		return
	}
	undo, ok := s.redirect(s.p, redirs, true)
	defer undo()
	if !ok {
		s.status = 2
		if special {
			s.flow = exiting
		}
		return
	}
	restore := func() {}
	if len(cmd.Assigns) > 0 {
		if !special {
			restore = s.keep(cmd.Assigns)
		}
		if !s.assign(cmd.Assigns, false) {
			return
		}
	}
	status := builtin(s, args)
	if s.flow == onward || name == "exit" || name == "return" {
		s.status = status
	}
	restore()
}

// keep remembers variables and returns how to bring them back.
func (s *shell) keep(assigns []*syntax.Assign) func() {
	old := map[string]expand.Variable{}
	for _, a := range assigns {
		old[a.Name.Value] = s.vars[a.Name.Value]
	}
	return func() {
		for name, v := range old {
			_ = s.Set(name, expand.Variable{})
			if v.IsSet() {
				_ = s.Set(name, v)
			}
		}
	}
}

func (s *shell) assign(assigns []*syntax.Assign, export bool) bool {
	for _, a := range assigns {
		value, ok := s.literal(a.Value)
		if !ok {
			return false
		}
		v := expand.Variable{Set: true, Kind: expand.String, Str: value, Exported: export}
		if err := s.Set(a.Name.Value, v); err != nil {
			s.fatal("%v", err)
			return false
		}
	}
	return true
}

func (s *shell) callFunction(body *syntax.Stmt, args []string, assigns []*syntax.Assign, redirs []*syntax.Redirect) {
	undo, ok := s.redirect(s.p, redirs, true)
	defer undo()
	if !ok {
		s.status = 2
		return
	}
	restore := func() {}
	if len(assigns) > 0 {
		restore = s.keep(assigns)
		if !s.assign(assigns, true) {
			return
		}
	}
	if s.calls++; s.calls > 1000 {
		s.fatal("%s calls itself without end", args[0])
		return
	}
	oldArgs, oldLoops := s.args, s.loops
	s.args, s.loops = args[1:], 0
	s.locals = append(s.locals, nil)
	s.status = 0
	s.stmt(body)
	for name, v := range s.locals[len(s.locals)-1] {
		_ = s.Set(name, expand.Variable{})
		if v.IsSet() {
			_ = s.Set(name, v)
		}
	}
	s.locals = s.locals[:len(s.locals)-1]
	s.args, s.loops = oldArgs, oldLoops
	s.calls--
	if s.flow == returning {
		s.flow = onward
	}
	restore()
}

// exec replaces the shell, or changes its own descriptors for good.
func (s *shell) exec(args []string, assigns []*syntax.Assign, redirs []*syntax.Redirect) {
	if _, ok := s.redirect(s.p, redirs, false); !ok {
		s.status, s.flow = 2, exiting
		return
	}
	if !s.assign(assigns, len(args) > 0) {
		return
	}
	if len(args) == 0 {
		s.status = 0
		return
	}
	s.p.env = s.environ()
	s.flow, s.replace = exiting, true
	s.status = s.p.exec(args, s.name)
}

// external runs a command that is a file. At the tail of a shell it takes that shell's process.
func (s *shell) external(args []string, assigns []*syntax.Assign, redirs []*syntax.Redirect, tail bool) {
	env := s.environ()
	if len(assigns) > 0 {
		env = env[:len(env):len(env)]
		for _, a := range assigns {
			value, ok := s.literal(a.Value)
			if !ok {
				return
			}
			env = append(env, a.Name.Value+"="+value)
		}
	}
	if tail && len(s.traps) == 0 {
		if _, ok := s.redirect(s.p, redirs, false); !ok {
			s.status = 2
			return
		}
		s.p.env = env
		s.flow, s.replace = exiting, true
		s.status = s.p.exec(args, s.name)
		return
	}
	s.p.enter()
	child := s.p.Machine.newProcess(s.p, args)
	s.p.leave()
	child.env = env
	if _, ok := s.redirect(child, redirs, false); !ok {
		s.p.Machine.mu.Lock()
		child.finish(2, false)
		s.p.Machine.mu.Unlock()
		child.reap()
		s.status = 2
		return
	}
	s.status = child.run(func() int { return child.exec(args, s.name) })
	child.reap()
	s.p.check()
}

// find looks a command up in the PATH of an environment.
func (p *Process) find(name string) (string, []byte, int) {
	p.enter()
	defer p.leave()
	try := func(path string) ([]byte, int) {
		at, err := p.Machine.get(&p.cred, path, follow)
		switch {
		case err != nil:
			return nil, 127
		case at.n.isDir() || !p.cred.may(at.n, execBit):
			return nil, 126
		}
		return at.n.data, 0
	}
	if strings.Contains(name, "/") {
		image, code := try(name)
		return name, image, code
	}
	path := p.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		if image, code := try(dir + "/" + name); code == 0 {
			return dir + "/" + name, image, 0
		}
	}
	return "", nil, 127
}

// exec turns the process into a command and returns how that ended.
func (p *Process) exec(args []string, shellName string) int {
	m := p.Machine
	path, image, code := p.find(args[0])
	if code != 0 {
		what := "not found"
		if code == 126 {
			what = "Permission denied"
		} else {
			m.note("command " + args[0])
		}
		_, _ = p.Stderr.Write([]byte(shellName + ": " + args[0] + ": " + what + "\n"))
		return code
	}
	m.mu.Lock()
	hooks := m.onProc
	p.Args, p.Image, p.comm = args, image, comm(args[0])
	p.caught = nil
	m.mu.Unlock()
	for _, hook := range hooks {
		hook(Event{Machine: m, PID: p.PID, Args: args})
	}
	p.check()
	if name := programOf(image); name != "" {
		program := m.program(name)
		if program == nil {
			m.note("program " + name)
			return p.unknown("%s needs a Program of that name", args[0])
		}
		return program(p.Context(), p)
	}
	// A script, with its interpreter or without.
	script := []string{"/bin/sh", path}
	if first, _, _ := bytes.Cut(image, []byte("\n")); bytes.HasPrefix(first, []byte("#!")) {
		script = append(strings.Fields(string(first[2:])), path)
	} else if bytes.IndexByte(first, 0) >= 0 {
		_, _ = p.Stderr.Write([]byte(shellName + ": " + args[0] + ": Exec format error\n"))
		return 126
	}
	if base := baseName(script[0]); base == "sh" || base == "dash" || base == "bash" {
		script = append(script, args[1:]...)
		p.Args = script
		return shProgram(p.Context(), p)
	}
	return p.exec(append(script, args[1:]...), shellName)
}

// Exec turns the process into another command, which is looked up in PATH, and returns how that ended.
func (p *Process) Exec(args ...string) int { return p.exec(args, p.comm) }

// Run runs a command as a child and waits for its end.
func (p *Process) Run(args ...string) int {
	child := p.child(args)
	code := child.run(func() int { return child.exec(args, p.comm) })
	child.reap()
	p.check()
	return code
}

func (p *Process) child(args []string) *Process {
	p.enter()
	defer p.leave()
	return p.Machine.newProcess(p, args)
}

// Output runs a command as a child and returns what it printed to its standard output.
func (p *Process) Output(args ...string) (string, int) {
	child := p.child(args)
	out := &capture{}
	p.enter()
	child.setFD(1, &file{refs: 1, sink: out})
	p.leave()
	code := child.run(func() int { return child.exec(args, p.comm) })
	child.reap()
	p.check()
	out.mu.Lock()
	defer out.mu.Unlock()
	return out.buf.String(), code
}

// note remembers what the simulation lacks.
func (m *Machine) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.unknown) < 100 {
		m.unknown = append(m.unknown, what)
	}
}

// unknown is the loud end of what nobody taught this package.
func (p *Process) unknown(format string, args ...any) int {
	line := strings.Join(p.Args, " ")
	p.Machine.note(line)
	p.Fail("test/sim/machine does not simulate this: "+format+": %s", append(args, line)...)
	return 127
}
