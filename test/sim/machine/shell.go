// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// shell is one POSIX shell: /bin/sh as dash has it. A subshell is a shell with a process of its own.
type shell struct {
	p *Process
	// pid is $$: that of the shell which is no subshell.
	pid        int
	name       string
	args       []string
	vars       map[string]expand.Variable
	funcs      map[string]*syntax.Stmt
	sharedVars bool
	sharedFunc bool
	traps      map[string]string
	jobs       map[int]*Process
	locals     []map[string]expand.Variable
	status     int
	background int
	errexit    bool
	nounset    bool
	noglob     bool
	xtrace     bool
	noclobber  bool
	// tested counts the contexts around in which a failure is looked at, so that errexit rests.
	tested int
	loops  int
	calls  int
	flow   flow
	levels int
	// tail says that this shell has nothing to do but the one command, which may take its process.
	tail    bool
	subst   int
	env     []string
	cfg     expand.Config
	replace bool
}

// flow is why the statements that follow do not run.
type flow uint8

const (
	onward flow = iota
	breaking
	continuing
	returning
	exiting
)

// newShell makes the shell of a process from its environment.
func newShell(p *Process) *shell {
	s := &shell{p: p, pid: p.PID, name: "sh", vars: make(map[string]expand.Variable, len(p.env)+8)}
	for _, pair := range p.env {
		name, value, _ := strings.Cut(pair, "=")
		s.vars[name] = expand.Variable{Set: true, Exported: true, Kind: expand.String, Str: value}
	}
	s.vars["IFS"] = expand.Variable{Set: true, Kind: expand.String, Str: " \t\n"}
	s.vars["PWD"] = expand.Variable{Set: true, Exported: true, Kind: expand.String, Str: p.cred.dir}
	s.env = p.env
	s.configure()
	return s
}

func (s *shell) configure() {
	s.cfg = expand.Config{Env: s, CmdSubst: s.substitute, NoUnset: s.nounset}
	if !s.noglob {
		s.cfg.ReadDir2 = s.readDir
	}
}

// fork makes the shell of a subshell.
func (s *shell) fork() *shell {
	m := s.p.Machine
	s.p.enter()
	p := m.newProcess(s.p, s.p.Args)
	p.comm = s.p.comm
	s.p.leave()
	c := *s
	c.p, c.traps, c.jobs, c.locals, c.flow, c.loops, c.tail = p, nil, nil, nil, onward, 0, false
	s.sharedVars, c.sharedVars, s.sharedFunc, c.sharedFunc = true, true, true, true
	c.configure()
	return &c
}

// Get implements expand.Environ.
func (s *shell) Get(name string) expand.Variable {
	text := func(value string) expand.Variable {
		return expand.Variable{Set: true, Kind: expand.String, Str: value}
	}
	switch name {
	case "#":
		return text(strconv.Itoa(len(s.args)))
	case "@", "*":
		list := s.args
		if list == nil {
			list = []string{}
		}
		return expand.Variable{Set: true, Kind: expand.Indexed, List: list}
	case "?":
		return text(strconv.Itoa(s.status))
	case "$":
		return text(strconv.Itoa(s.pid))
	case "!":
		if s.background == 0 {
			return expand.Variable{}
		}
		return text(strconv.Itoa(s.background))
	case "-":
		return text(map[bool]string{true: "e"}[s.errexit] + map[bool]string{true: "u"}[s.nounset])
	case "PPID":
		return text(strconv.Itoa(s.p.ppid))
	case "0":
		return text(s.name)
	}
	if name != "" && name[0] >= '1' && name[0] <= '9' {
		i, err := strconv.Atoi(name)
		if err != nil || i > len(s.args) {
			return expand.Variable{}
		}
		return text(s.args[i-1])
	}
	return s.vars[name]
}

// Each implements expand.Environ.
func (s *shell) Each(yield func(string, expand.Variable) bool) {
	for name, v := range s.vars {
		if !yield(name, v) {
			return
		}
	}
}

// Set implements expand.WriteEnviron.
func (s *shell) Set(name string, v expand.Variable) error {
	old, had := s.vars[name]
	if old.ReadOnly {
		return fmt.Errorf("%s: is read only", name)
	}
	if s.sharedVars {
		vars := make(map[string]expand.Variable, len(s.vars)+1)
		for k, v := range s.vars {
			vars[k] = v
		}
		s.vars, s.sharedVars = vars, false
	}
	if !v.IsSet() && !v.Exported && !v.ReadOnly {
		delete(s.vars, name)
	} else {
		if had && old.Exported {
			v.Exported = true
		}
		v.Local = false
		s.vars[name] = v
	}
	if v.Exported || old.Exported {
		s.env = nil
	}
	return nil
}

func (s *shell) setText(name, value string) {
	if err := s.Set(name, expand.Variable{Set: true, Kind: expand.String, Str: value}); err != nil {
		s.fatal("%v", err)
	}
}

// environ is what a command inherits.
func (s *shell) environ() []string {
	if s.env == nil {
		env := make([]string, 0, 16)
		for _, name := range sortedKeys(s.vars) {
			if v := s.vars[name]; v.Exported && v.IsSet() {
				env = append(env, name+"="+v.String())
			}
		}
		s.env = env
	}
	return s.env
}

func (s *shell) readDir(path string) ([]fs.DirEntry, error) {
	m := s.p.Machine
	s.p.enter()
	defer s.p.leave()
	at, err := m.get(&s.p.cred, path, follow)
	if err != nil {
		return nil, err
	}
	if !at.n.isDir() {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: errors.New("not a directory")}
	}
	if !s.p.cred.may(at.n, readBit) {
		return nil, fs.ErrPermission
	}
	names := at.n.names(m)
	list := make([]fs.DirEntry, 0, len(names))
	for _, name := range names {
		if child := at.n.child(m, name); child != nil {
			list = append(list, dirEntry{name, child.mode})
		}
	}
	return list, nil
}

type dirEntry struct {
	name string
	mode os.FileMode
}

// Name implements fs.DirEntry.
func (e dirEntry) Name() string { return e.name }

// IsDir implements fs.DirEntry.
func (e dirEntry) IsDir() bool { return e.mode.IsDir() }

// Type implements fs.DirEntry.
func (e dirEntry) Type() fs.FileMode { return e.mode.Type() }

// Info implements fs.DirEntry.
func (e dirEntry) Info() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

var (
	scripts     sync.Map // of uint64 to *syntax.File or error
	scriptSeed  = maphash.MakeSeed()
	scriptCount int
	scriptMu    sync.Mutex
)

// parse reads a script once for all machines. The cache starts over when it has grown large: texts that carry a host's own
// data come once and never again.
func parse(text string) (*syntax.File, error) {
	key := maphash.String(scriptSeed, text)
	if found, ok := scripts.Load(key); ok {
		if file, ok := found.(*syntax.File); ok {
			return file, nil
		}
		return nil, found.(error)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), "")
	scriptMu.Lock()
	if scriptCount++; scriptCount > 4096 {
		scripts.Clear()
		scriptCount = 0
	}
	scriptMu.Unlock()
	if err != nil {
		scripts.Store(key, err)
		return nil, err
	}
	scripts.Store(key, file)
	return file, nil
}

// runText runs a script to its end, EXIT trap included, and returns the code.
func (s *shell) runText(text string) int {
	file, err := parse(text)
	if err != nil {
		s.complain("Syntax error: %v", err)
		return 2
	}
	s.stmts(file.Stmts)
	return s.end()
}

// end is what happens when a shell has nothing more to do.
func (s *shell) end() int {
	if text, ok := s.traps["EXIT"]; ok && !s.replace {
		delete(s.traps, "EXIT")
		code := s.status
		s.flow, s.loops = onward, 0
		s.eval(text)
		if s.flow != exiting {
			s.status = code
		}
	}
	return s.status
}

func (s *shell) eval(text string) {
	file, err := parse(text)
	if err != nil {
		s.complain("Syntax error: %v", err)
		s.status, s.flow = 2, exiting
		return
	}
	s.stmts(file.Stmts)
}

func (s *shell) complain(format string, args ...any) {
	fmt.Fprintf(s.p.Stderr, "%s: %s\n", s.name, fmt.Sprintf(format, args...))
}

// fatal ends the shell with a sentence.
func (s *shell) fatal(format string, args ...any) {
	s.complain(format, args...)
	s.status, s.flow = 2, exiting
}
