// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// redirect applies redirections to a process. The words are expanded by this shell. With undo, what was there comes back.
func (s *shell) redirect(p *Process, redirs []*syntax.Redirect, undoable bool) (undo func(), ok bool) {
	undo = func() {}
	if len(redirs) == 0 {
		return undo, true
	}
	type saved struct {
		fd int
		f  *file
	}
	var old []saved
	if undoable {
		undo = func() {
			p.enter()
			defer p.leave()
			for i := len(old) - 1; i >= 0; i-- {
				if old[i].f == nil {
					p.closeFD(old[i].fd)
				} else {
					p.setFD(old[i].fd, old[i].f)
				}
			}
		}
	}
	for _, r := range redirs {
		fd, closing, f, ok := s.target(p, r)
		if !ok {
			return undo, false
		}
		p.enter()
		if undoable {
			before := p.fdLocked(fd)
			if before != nil {
				before.refs++
			}
			old = append(old, saved{fd, before})
		}
		if closing {
			p.closeFD(fd)
		} else {
			p.setFD(fd, f)
		}
		p.leave()
	}
	return undo, true
}

// tabs at the beginning of a line are not part of a here-document with a dash.
var tabs = regexp.MustCompile(`\n\t+`)

// target opens what a redirection names.
func (s *shell) target(p *Process, r *syntax.Redirect) (fd int, closing bool, f *file, ok bool) {
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc:
	default:
		fd = 1
	}
	if r.N != nil {
		fd, _ = strconv.Atoi(r.N.Value)
	}
	if r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc {
		text, err := expand.Document(&s.cfg, r.Hdoc)
		if err != nil {
			s.expansionError(err)
			return 0, false, nil, false
		}
		if r.Op == syntax.DashHdoc {
			text = strings.TrimLeft(tabs.ReplaceAllString(text, "\n"), "\t")
		}
		return fd, false, &file{refs: 1, n: &node{data: []byte(text)}, flags: os.O_RDONLY}, true
	}
	word, ok := s.literal(r.Word)
	if !ok {
		return 0, false, nil, false
	}
	flags := os.O_RDONLY
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		if word == "-" {
			return fd, true, nil, true
		}
		from, err := strconv.Atoi(word)
		p.enter()
		defer p.leave()
		if err == nil {
			f = p.fdLocked(from)
		}
		if f == nil {
			p.Machine.mu.Unlock()
			s.complain("%s: Bad file descriptor", word)
			p.Machine.mu.Lock()
			return 0, false, nil, false
		}
		f.refs++
		return fd, false, f, true
	case syntax.RdrIn:
	case syntax.RdrInOut:
		flags = os.O_RDWR | os.O_CREATE
	case syntax.AppOut:
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	case syntax.RdrOut, syntax.RdrClob:
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	default:
		s.fatal("the simulated shell does not know the redirection %s", r.Op)
		return 0, false, nil, false
	}
	f, err := p.open(word, flags, 0o666)
	if err != nil {
		verb := "open"
		if flags&os.O_CREATE != 0 {
			verb = "create"
		}
		// The complaint goes where the descriptors of the command that failed lead.
		_, _ = p.Stderr.Write([]byte(s.name + ": cannot " + verb + " " + word + ": " + errText(err) + "\n"))
		return 0, false, nil, false
	}
	return fd, false, f, true
}
