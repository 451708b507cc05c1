// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"
	"strings"
)

// sedRun runs the steps over the text and says with which code they quit.
func sedRun(steps []*sedStep, text string, quiet bool) (string, int) {
	var out strings.Builder
	all := lines(text)
	ends := strings.HasSuffix(text, "\n")
	for i := 0; i < len(all); i++ {
		line, behind := all[i], ""
		n, last := i+1, i == len(all)-1
		end := "\n"
		if last && !ends {
			end = ""
		}
		deleted, quit, code := false, false, 0
		var run func([]*sedStep) bool
		run = func(list []*sedStep) bool {
			for _, s := range list {
				if s.selects(line, n, last) == s.not {
					continue
				}
				switch s.verb {
				case 'p':
					out.WriteString(line + "\n")
				case '=':
					out.WriteString(strconv.Itoa(n) + "\n")
				case 'd':
					deleted = true
					return false
				case 'q':
					quit, code = true, s.nth
					return false
				case 'n':
					if !quiet {
						out.WriteString(line + end)
					}
					if last {
						deleted, quit = true, true
						return false
					}
					i++
					line, n, last = all[i], i+1, i == len(all)-1
				case 'a':
					behind += s.text + "\n"
				case 'i':
					out.WriteString(s.text + "\n")
				case 'c':
					out.WriteString(s.text + "\n")
					deleted = true
					return false
				case '{':
					if !run(s.block) {
						return false
					}
				case 's':
					done, changed := s.replace(line)
					line = done
					if changed && s.print {
						out.WriteString(line + "\n")
					}
				}
			}
			return true
		}
		run(steps)
		if !deleted && !quiet {
			out.WriteString(line + end)
		}
		out.WriteString(behind)
		if quit {
			return out.String(), code
		}
	}
	// The ranges begin anew with the next input.
	for _, s := range steps {
		s.inside = false
	}
	return out.String(), 0
}

func (a *sedAddress) is(line string, n int, last bool) bool {
	switch {
	case a.expr != nil:
		return a.expr.MatchString(line)
	case a.last:
		return last
	}
	return a.line == n
}

func (s *sedStep) selects(line string, n int, last bool) bool {
	switch {
	case s.from == nil:
		return true
	case s.to == nil:
		return s.from.is(line, n, last)
	case s.inside:
		s.inside = !s.to.is(line, n, last) && (s.to.line == 0 || n < s.to.line)
		return true
	case s.from.is(line, n, last):
		s.inside = s.to.line == 0 || s.to.line > n
		return true
	}
	return false
}

func (s *sedStep) replace(line string) (string, bool) {
	var out strings.Builder
	last, count, changed := 0, 0, false
	for _, at := range s.expr.FindAllStringSubmatchIndex(line, -1) {
		if count++; count < s.nth {
			continue
		}
		changed = true
		out.WriteString(line[last:at[0]])
		for i := 0; i < len(s.with); i++ {
			c := s.with[i]
			switch {
			case c == '\\' && i+1 < len(s.with):
				i++
				switch n := s.with[i]; {
				case n >= '0' && n <= '9':
					k := int(n-'0') * 2
					if k+1 < len(at) && at[k] >= 0 {
						out.WriteString(line[at[k]:at[k+1]])
					}
				case n == 'n':
					out.WriteByte('\n')
				case n == 't':
					out.WriteByte('\t')
				default:
					out.WriteByte(n)
				}
			case c == '&':
				out.WriteString(line[at[0]:at[1]])
			default:
				out.WriteByte(c)
			}
		}
		last = at[1]
		if !s.global {
			break
		}
	}
	out.WriteString(line[last:])
	return out.String(), changed
}
