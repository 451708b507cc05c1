// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

var patterns sync.Map // of string to *regexp.Regexp

// matches says whether a shell pattern matches the whole text.
func matches(pat, text string) bool {
	if !pattern.HasMeta(pat, 0) && !strings.Contains(pat, `\`) {
		return pat == text
	}
	found, ok := patterns.Load(pat)
	if !ok {
		expr, err := pattern.Regexp(pat, pattern.EntireString)
		if err != nil {
			return pat == text
		}
		found, _ = patterns.LoadOrStore(pat, regexp.MustCompile(expr))
	}
	return found.(*regexp.Regexp).MatchString(text)
}

func (s *shell) fields(words []*syntax.Word) ([]string, bool) {
	fields, err := expand.Fields(&s.cfg, words...)
	if err != nil {
		s.expansionError(err)
		return nil, false
	}
	return fields, s.flow == onward
}

func (s *shell) literal(word *syntax.Word) (string, bool) {
	if word == nil {
		return "", true
	}
	if lit := word.Lit(); lit != "" && !strings.ContainsAny(lit, `\~`) {
		return lit, true
	}
	text, err := expand.Literal(&s.cfg, word)
	if err != nil {
		s.expansionError(err)
		return "", false
	}
	return text, s.flow == onward
}

func (s *shell) expansionError(err error) {
	if s.flow != onward {
		return
	}
	var unset expand.UnsetParameterError
	if errors.As(err, &unset) {
		name := ""
		if unset.Node != nil && unset.Node.Param != nil {
			name = unset.Node.Param.Value
		}
		message := unset.Message
		if message == "unbound variable" {
			message = "parameter not set"
		}
		s.fatal("%s: %s", name, message)
		return
	}
	s.fatal("%v", err)
}

// capture collects what a command substitution prints.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(b)
}

// substitute runs $(...) and waits until nobody holds its output any more.
func (s *shell) substitute(w io.Writer, cs *syntax.CmdSubst) error {
	c := s.fork()
	c.tested = 0
	out := &capture{}
	f := &file{refs: 1, sink: out, closed: make(chan struct{})}
	s.p.enter()
	c.p.setFD(1, f)
	s.p.leave()
	if len(cs.Stmts) == 1 && !cs.Stmts[0].Background && !cs.Stmts[0].Negated {
		c.tail = tailed(cs.Stmts[0].Cmd)
	}
	code := c.p.run(func() int {
		c.stmts(cs.Stmts)
		return c.end()
	})
	c.p.reap()
	select {
	case <-f.closed:
	case <-s.p.ended:
	}
	s.p.check()
	s.status, s.subst = code, code
	out.mu.Lock()
	defer out.mu.Unlock()
	_, err := w.Write(bytes.ReplaceAll(out.buf.Bytes(), []byte{0}, nil))
	return err
}
