// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"regexp"
	"strings"
	"sync"
)

// dialect is the syntax of a POSIX expression.
type dialect uint8

const (
	basic    dialect = 0
	extended dialect = 1
	fixed    dialect = 2
)

var expressions sync.Map // of string to *regexp.Regexp

// compileRegexp turns a POSIX expression into Go's. Matches are the leftmost and longest.
func compileRegexp(text string, d dialect, fold bool) (*regexp.Regexp, error) {
	key := string(rune('0'+d)) + map[bool]string{true: "i", false: "c"}[fold] + text
	if found, ok := expressions.Load(key); ok {
		return found.(*regexp.Regexp), nil
	}
	source := text
	switch d {
	case fixed:
		source = regexp.QuoteMeta(text)
	case basic, extended:
		source = translate(text, d)
	}
	prefix := "(?s)"
	if fold {
		prefix = "(?is)"
	}
	expr, err := regexp.Compile(prefix + source)
	if err != nil {
		return nil, err
	}
	expr.Longest()
	expressions.Store(key, expr)
	return expr, nil
}

// translate exchanges what basic expressions write with a backslash for what they write without, and keeps brackets as
// POSIX means them: no escapes inside.
func translate(text string, d dialect) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '[':
			end := bracketEnd(text, i)
			if end < 0 {
				b.WriteString(`\[`)
				continue
			}
			body := text[i+1 : end]
			b.WriteByte('[')
			if strings.HasPrefix(body, "^") {
				b.WriteByte('^')
				body = body[1:]
			}
			for j := 0; j < len(body); j++ {
				switch {
				case strings.HasPrefix(body[j:], "[:"):
					k := strings.Index(body[j:], ":]")
					b.WriteString(body[j : j+k+2])
					j += k + 1
				case body[j] == '\\' && d == extended && j+1 < len(body):
					// awk reads escapes inside brackets, and GNU tools warn; \/ and \" are what is met.
					j++
					b.WriteString(regexp.QuoteMeta(unescapeAwk(`\` + body[j:j+1])))
				case strings.IndexByte(`\[]^&~`, body[j]) >= 0:
					b.WriteString(`\` + body[j:j+1])
				default:
					b.WriteByte(body[j])
				}
			}
			b.WriteByte(']')
			i = end
		case c == '\\' && i+1 < len(text):
			i++
			n := text[i]
			switch {
			case d == basic && strings.IndexByte("(){}", n) >= 0, d == basic && strings.IndexByte("|+?", n) >= 0:
				b.WriteByte(n)
			case n == 'n':
				b.WriteByte('\n')
			case n == 't':
				b.WriteByte('\t')
			case n == '<' || n == '>' || n == 'b':
				b.WriteString(`\b`)
			case n == 's' || n == 'S' || n == 'w' || n == 'W':
				b.WriteByte('\\')
				b.WriteByte(n)
			default:
				b.WriteString(regexp.QuoteMeta(string(n)))
			}
		case d == basic && strings.IndexByte("(){}|+?", c) >= 0:
			b.WriteString(`\` + string(c))
		case d == basic && c == '*' && (i == 0 || strings.HasSuffix(text[:i], `\(`) || text[:i] == "^"):
			b.WriteString(`\*`)
		case d == basic && c == '^' && i > 0 && !strings.HasSuffix(text[:i], `\(`):
			b.WriteString(`\^`)
		case d == basic && c == '$' && i < len(text)-1 && !strings.HasPrefix(text[i+1:], `\)`):
			b.WriteString(`\$`)
		case d == extended && c == '{' && (i+1 >= len(text) || text[i+1] < '0' || text[i+1] > '9'):
			b.WriteString(`\{`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func bracketEnd(text string, start int) int {
	i := start + 1
	if i < len(text) && text[i] == '^' {
		i++
	}
	if i < len(text) && text[i] == ']' {
		i++
	}
	for ; i < len(text); i++ {
		if strings.HasPrefix(text[i:], "[:") {
			if k := strings.Index(text[i:], ":]"); k > 0 {
				i += k + 1
				continue
			}
		}
		if text[i] == ']' {
			return i
		}
	}
	return -1
}
