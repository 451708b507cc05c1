// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

func init() { add("sed", sedCommand) }

// sedStep is one command with its addresses.
type sedStep struct {
	from, to *sedAddress
	not      bool
	verb     byte
	expr     *regexp.Regexp
	with     string
	nth      int
	global   bool
	print    bool
	text     string
	block    []*sedStep
	inside   bool
}

type sedAddress struct {
	line int
	last bool
	expr *regexp.Regexp
}

type sedParser struct {
	text string
	at   int
	d    dialect
}

func sedCommand(_ context.Context, p *Process) int {
	o, args, bad := parseFlags(sedArgs(p.Args[1:]), "ne:Ersi", map[string]string{"quiet": "n", "silent": "n", "expression": "e:", "regexp-extended": "E", "in-place": "i"}, true)
	if bad != "" {
		return p.unknown("the flag %s", bad)
	}
	script := strings.Join(o["e"], "\n")
	if !o.on("e") {
		if len(args) == 0 {
			return p.Fail("no script")
		}
		script, args = args[0], args[1:]
	}
	parser := &sedParser{text: script}
	if o.on("E") || o.on("r") {
		parser.d = extended
	}
	steps, err := parser.steps(false)
	if err != nil {
		return p.unknown("%v", err)
	}
	if o.on("i") {
		code := 0
		for _, name := range args {
			content, err := p.ReadFile(name)
			if err == nil {
				var st Stat
				if st, err = p.Stat(name); err == nil {
					out, _ := sedRun(steps, string(content), o.on("n"))
					err = p.sedReplace(st, out)
				}
			}
			if err != nil {
				code = p.Fail("can't read %s: %s", name, errText(err))
			}
		}
		return code
	}
	var all strings.Builder
	code := p.each(args, func(_ string, content []byte) bool {
		all.Write(content)
		return true
	})
	if code != 0 {
		code = 2
	}
	out, quit := sedRun(steps, all.String(), o.on("n"))
	if c := p.say(out); c != 0 {
		return 4
	}
	if quit != 0 {
		return quit
	}
	return code
}

// sedReplace is how -i writes: a new file beside, which takes the name.
func (p *Process) sedReplace(st Stat, out string) error {
	part := dirName(st.Path) + "/sedXXXXXX"
	f, err := p.open(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, st.Mode.Perm())
	if err != nil {
		return err
	}
	if _, err := f.write(p, []byte(out)); err != nil {
		return err
	}
	p.enter()
	defer p.leave()
	m := p.Machine
	_ = m.chown(&p.cred, part, st.UID, st.GID, 0)
	_ = m.chmod(&p.cred, part, st.Mode)
	return m.rename(&p.cred, part, st.Path)
}

// sedArgs gives -i, which takes a suffix only when that is glued to it, a form of its own.
func sedArgs(args []string) []string { return args }

func (s *sedParser) space() {
	for s.at < len(s.text) && strings.IndexByte(" \t", s.text[s.at]) >= 0 {
		s.at++
	}
}

func (s *sedParser) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *sedParser) steps(inside bool) ([]*sedStep, error) {
	var list []*sedStep
	for {
		for s.at < len(s.text) && strings.IndexByte(" \t\n;", s.text[s.at]) >= 0 {
			s.at++
		}
		switch {
		case s.at >= len(s.text):
			if inside {
				return nil, fmt.Errorf("sed: expected }")
			}
			return list, nil
		case s.peek() == '}' && inside:
			s.at++
			return list, nil
		case s.peek() == '#':
			for s.at < len(s.text) && s.peek() != '\n' {
				s.at++
			}
			continue
		}
		step, err := s.step()
		if err != nil {
			return nil, err
		}
		list = append(list, step)
	}
}

func (s *sedParser) step() (*sedStep, error) {
	step := &sedStep{nth: 1}
	var err error
	if step.from, err = s.address(); err != nil {
		return nil, err
	}
	s.space()
	if step.from != nil && s.peek() == ',' {
		s.at++
		s.space()
		if step.to, err = s.address(); err != nil {
			return nil, err
		}
		s.space()
	}
	for s.peek() == '!' {
		step.not = true
		s.at++
		s.space()
	}
	step.verb = s.peek()
	s.at++
	switch step.verb {
	case 'p', 'd', '=', 'n', 'N', 'G', 'h', 'H', 'g', 'x', 'D', 'P':
		if strings.IndexByte("pd=n", step.verb) < 0 {
			return nil, fmt.Errorf("sed: command %c is not simulated", step.verb)
		}
	case 'q':
		s.space()
		i := s.at
		for s.peek() >= '0' && s.peek() <= '9' {
			s.at++
		}
		step.nth, _ = strconv.Atoi(s.text[i:s.at])
	case '{':
		step.block, err = s.steps(true)
	case 'a', 'i', 'c':
		s.space()
		if s.peek() == '\\' {
			s.at++
			if s.peek() == '\n' {
				s.at++
			}
		}
		s.space()
		rest := s.text[s.at:]
		if i := strings.IndexByte(rest, '\n'); i >= 0 {
			rest = rest[:i]
		}
		step.text = rest
		s.at += len(rest)
	case 's':
		err = s.substitution(step)
	default:
		err = fmt.Errorf("sed: command %q is not simulated", step.verb)
	}
	return step, err
}

func (s *sedParser) address() (*sedAddress, error) {
	switch c := s.peek(); {
	case c >= '0' && c <= '9':
		i := s.at
		for s.peek() >= '0' && s.peek() <= '9' {
			s.at++
		}
		n, _ := strconv.Atoi(s.text[i:s.at])
		return &sedAddress{line: n}, nil
	case c == '$':
		s.at++
		return &sedAddress{last: true}, nil
	case c == '/' || c == '\\':
		if c == '\\' {
			s.at++
		}
		text, err := s.delimited()
		if err != nil {
			return nil, err
		}
		expr, err := compileRegexp(text, s.d, false)
		return &sedAddress{expr: expr}, err
	}
	return nil, nil
}

// delimited reads from one delimiter to the next. Brackets keep what is in them.
func (s *sedParser) delimited() (string, error) {
	d := s.text[s.at]
	s.at++
	return s.until(d, true)
}

func (s *sedParser) until(d byte, brackets bool) (string, error) {
	var b strings.Builder
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == d:
			s.at++
			return b.String(), nil
		case c == '\\' && s.at+1 < len(s.text):
			if s.text[s.at+1] != d {
				b.WriteByte('\\')
			}
			b.WriteByte(s.text[s.at+1])
			s.at += 2
			continue
		case c == '[' && brackets:
			if end := bracketEnd(s.text, s.at); end > 0 {
				b.WriteString(s.text[s.at : end+1])
				s.at = end + 1
				continue
			}
		}
		b.WriteByte(c)
		s.at++
	}
	return "", fmt.Errorf("sed: unterminated %c", d)
}

func (s *sedParser) substitution(step *sedStep) error {
	d := s.text[s.at]
	text, err := s.delimited()
	if err != nil {
		return err
	}
	if step.with, err = s.until(d, false); err != nil {
		return err
	}
	fold := false
	for {
		switch c := s.peek(); {
		case c == 'g':
			step.global = true
		case c == 'p':
			step.print = true
		case c == 'I' || c == 'i':
			fold = true
		case c >= '1' && c <= '9':
			step.nth = int(c - '0')
		default:
			step.expr, err = compileRegexp(text, s.d, fold)
			return err
		}
		s.at++
	}
}
