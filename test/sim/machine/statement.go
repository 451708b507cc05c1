// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

func (s *shell) stmts(list []*syntax.Stmt) {
	for _, st := range list {
		s.stmt(st)
		if s.flow != onward {
			return
		}
	}
}

func (s *shell) stmt(st *syntax.Stmt) {
	s.p.check()
	s.attend()
	if s.flow != onward {
		return
	}
	if st.Background {
		s.inBackground(st)
		return
	}
	if st.Negated {
		s.tested++
		s.command(st)
		s.tested--
		if s.flow == onward {
			s.status = map[bool]int{true: 1}[s.status == 0]
		}
		return
	}
	s.command(st)
	if s.status == 0 || !s.errexit || s.tested > 0 || s.flow != onward {
		return
	}
	switch cmd := st.Cmd.(type) {
	case *syntax.CallExpr, *syntax.Subshell, *syntax.DeclClause, nil:
		s.flow = exiting
	case *syntax.BinaryCmd:
		if cmd.Op == syntax.Pipe {
			s.flow = exiting
		}
	}
}

// inBackground starts a statement and goes on.
func (s *shell) inBackground(st *syntax.Stmt) {
	c := s.fork()
	c.tested = 0
	inner := *st
	inner.Background = false
	c.tail = tailed(inner.Cmd)
	// Without job control, what runs in the background reads nothing and hears no interrupt.
	s.p.enter()
	c.p.setFD(0, &file{refs: 1, null: true})
	c.p.ignored = with(c.p.ignored, "INT", "QUIT")
	s.p.leave()
	s.background = c.p.PID
	if s.jobs == nil {
		s.jobs = map[int]*Process{}
	}
	s.jobs[c.p.PID] = c.p
	s.status = 0
	c.p.spawn(func() int {
		c.stmt(&inner)
		return c.end()
	})
}

// tailed says that a command may take the process of the subshell that has nothing else to do.
func tailed(cmd syntax.Command) bool {
	switch cmd.(type) {
	case *syntax.CallExpr, *syntax.Subshell:
		return true
	}
	return false
}

func with(set map[string]bool, names ...string) map[string]bool {
	out := make(map[string]bool, len(set)+len(names))
	for name := range set {
		out[name] = true
	}
	for _, name := range names {
		out[name] = true
	}
	return out
}

func (s *shell) command(st *syntax.Stmt) {
	if call, ok := st.Cmd.(*syntax.CallExpr); ok || st.Cmd == nil {
		if call == nil {
			call = &syntax.CallExpr{}
		}
		s.call(call, st.Redirs)
		return
	}
	if len(st.Redirs) > 0 {
		undo, ok := s.redirect(s.p, st.Redirs, true)
		defer undo()
		if !ok {
			s.status = 2
			return
		}
	}
	switch cmd := st.Cmd.(type) {
	case *syntax.Block:
		s.stmts(cmd.Stmts)
	case *syntax.Subshell:
		if s.tail {
			// It is in a process of its own already.
			s.tail = false
			s.stmts(cmd.Stmts)
			return
		}
		c := s.fork()
		s.status = c.p.run(func() int {
			c.stmts(cmd.Stmts)
			return c.end()
		})
		c.p.reap()
		s.p.check()
	case *syntax.BinaryCmd:
		s.binary(cmd)
	case *syntax.IfClause:
		s.branch(cmd)
	case *syntax.WhileClause:
		s.loop(cmd)
	case *syntax.ForClause:
		s.iterate(cmd)
	case *syntax.CaseClause:
		s.choose(cmd)
	case *syntax.FuncDecl:
		if s.sharedFunc || s.funcs == nil {
			funcs := make(map[string]*syntax.Stmt, len(s.funcs)+1)
			for k, v := range s.funcs {
				funcs[k] = v
			}
			s.funcs, s.sharedFunc = funcs, false
		}
		s.funcs[cmd.Name.Value] = cmd.Body
		s.status = 0
	case *syntax.DeclClause:
		s.declare(cmd)
	default:
		s.fatal("the simulated shell does not know %T", cmd)
	}
}

func (s *shell) binary(cmd *syntax.BinaryCmd) {
	if cmd.Op == syntax.Pipe {
		s.pipeline(cmd)
		return
	}
	s.tested++
	s.stmt(cmd.X)
	s.tested--
	if s.flow != onward || (s.status == 0) != (cmd.Op == syntax.AndStmt) {
		return
	}
	s.stmt(cmd.Y)
}

func (s *shell) pipeline(cmd *syntax.BinaryCmd) {
	var stages []*syntax.Stmt
	for at := cmd; ; {
		stages = append([]*syntax.Stmt{at.Y}, stages...)
		next, ok := at.X.Cmd.(*syntax.BinaryCmd)
		if !ok || next.Op != syntax.Pipe || len(at.X.Redirs) > 0 {
			stages = append([]*syntax.Stmt{at.X}, stages...)
			break
		}
		at = next
	}
	var input *file
	var started []*Process
	for i, st := range stages {
		c := s.fork()
		c.tail = tailed(st.Cmd)
		body := func() int {
			c.stmt(st)
			return c.end()
		}
		s.p.enter()
		if input != nil {
			c.p.setFD(0, input)
			input = nil
		}
		if i < len(stages)-1 {
			var out *file
			input, out = newPipe()
			c.p.setFD(1, out)
			s.p.leave()
			c.p.spawn(body)
			started = append(started, c.p)
			continue
		}
		s.p.leave()
		s.status = c.p.run(body)
		c.p.reap()
	}
	for _, p := range started {
		select {
		case <-p.ended:
		case <-s.p.ended:
		}
		p.reap()
	}
	s.p.check()
}

func (s *shell) condition(list []*syntax.Stmt) bool {
	s.tested++
	s.stmts(list)
	s.tested--
	return s.flow == onward && s.status == 0
}

func (s *shell) branch(cmd *syntax.IfClause) {
	for ; cmd != nil; cmd = cmd.Else {
		if len(cmd.Cond) == 0 {
			s.stmts(cmd.Then)
			return
		}
		if s.condition(cmd.Cond) {
			s.stmts(cmd.Then)
			return
		}
		if s.flow != onward {
			return
		}
	}
	s.status = 0
}

// turn looks at break and continue after one round of a loop, and says whether the loop goes on.
func (s *shell) turn() bool {
	switch s.flow {
	case breaking, continuing:
		if s.levels--; s.levels > 0 {
			return false
		}
		again := s.flow == continuing
		s.flow = onward
		return again
	}
	return s.flow == onward
}

func (s *shell) loop(cmd *syntax.WhileClause) {
	s.loops++
	defer func() { s.loops-- }()
	status := 0
	for {
		ok := s.condition(cmd.Cond)
		if s.flow != onward {
			if s.turn() {
				continue
			}
			break
		}
		if ok == cmd.Until {
			break
		}
		s.stmts(cmd.Do)
		status = s.status
		if !s.turn() {
			break
		}
	}
	if s.flow == onward {
		s.status = status
	}
}

func (s *shell) iterate(cmd *syntax.ForClause) {
	iter, ok := cmd.Loop.(*syntax.WordIter)
	if !ok {
		s.fatal("the simulated shell does not know %T", cmd.Loop)
		return
	}
	items := s.args
	if iter.InPos.IsValid() {
		if items, ok = s.fields(iter.Items); !ok {
			return
		}
	}
	s.loops++
	defer func() { s.loops-- }()
	s.status = 0
	for _, item := range items {
		s.setText(iter.Name.Value, item)
		s.stmts(cmd.Do)
		if !s.turn() {
			return
		}
	}
}

func (s *shell) choose(cmd *syntax.CaseClause) {
	word, ok := s.literal(cmd.Word)
	if !ok {
		return
	}
	s.status = 0
	for _, item := range cmd.Items {
		for _, p := range item.Patterns {
			pat, err := expand.Pattern(&s.cfg, p)
			if err != nil {
				s.expansionError(err)
				return
			}
			if matches(pat, word) {
				s.stmts(item.Stmts)
				return
			}
		}
	}
}
