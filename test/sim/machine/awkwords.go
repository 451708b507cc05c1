// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"
	"strings"
)

type awkToken struct {
	kind string // number, text, regex, name, func, op, newline, end
	text string
	// tight says that no space precedes.
	tight bool
}

var awkOps = []string{"&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "==", "!=", "<=", ">=", "!~", ">>", "{", "}", "(", ")", "[", "]", ";", ",",

	"+", "-", "*", "/", "%", "^", "!", ">", "<", "|", "?", ":", "~", "$", "="}

func (p *awkParser) next() {
	p.last = p.tok
	s := p.source
	begin := p.at
	for p.at < len(s) {
		switch {
		case s[p.at] == ' ' || s[p.at] == '\t' || s[p.at] == '\r':
			p.at++
			continue
		case strings.HasPrefix(s[p.at:], "\\\n"):
			p.at += 2
			continue
		case s[p.at] == '#':
			for p.at < len(s) && s[p.at] != '\n' {
				p.at++
			}
			continue
		}
		break
	}
	tight := begin == p.at
	if p.at >= len(s) {
		p.tok = awkToken{kind: "end"}
		return
	}
	c := s[p.at]
	switch {
	case c == '\n':
		p.at++
		p.tok = awkToken{kind: "newline"}
	case c >= '0' && c <= '9' || c == '.' && p.at+1 < len(s) && s[p.at+1] >= '0' && s[p.at+1] <= '9':
		i := p.at
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.' || s[i] == 'e' || (s[i] == '-' || s[i] == '+') && s[i-1] == 'e') {
			i++
		}
		p.tok = awkToken{kind: "number", text: s[p.at:i]}
		p.at = i
	case c == '"':
		i := p.at + 1
		for i < len(s) && s[i] != '"' {
			if s[i] == '\\' {
				i++
			}
			i++
		}
		if i >= len(s) {
			p.fail("a text without end")
		}
		p.tok = awkToken{kind: "text", text: unescapeAwk(s[p.at+1 : i])}
		p.at = i + 1
	case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		i := p.at
		for i < len(s) && wordByte(s[i]) {
			i++
		}
		p.tok = awkToken{kind: "name", text: s[p.at:i]}
		p.at = i
	case c == '/' && p.regexHere():
		i := p.at + 1
		for in := false; i < len(s) && (s[i] != '/' || in); i++ {
			switch s[i] {
			case '\\':
				i++
			case '[':
				in = true
			case ']':
				in = false
			}
		}
		if i >= len(s) {
			p.fail("an expression without end")
		}
		p.tok = awkToken{kind: "regex", text: strings.ReplaceAll(s[p.at+1:i], `\/`, "/")}
		p.at = i + 1
	default:
		for _, op := range awkOps {
			if strings.HasPrefix(s[p.at:], op) {
				p.tok = awkToken{kind: "op", text: op}
				p.at += len(op)
				p.tok.tight = tight
				return
			}
		}
		p.fail("unknown character")
	}
	p.tok.tight = tight
}

// regexHere says that a slash begins an expression: a division follows only a value.
func (p *awkParser) regexHere() bool {
	switch p.last.kind {
	case "number", "text", "regex":
		return false
	case "name":
		return p.last.text == "print" || p.last.text == "return"
	case "op":
		return p.last.text != ")" && p.last.text != "]" && p.last.text != "$"
	}
	return true
}

func unescapeAwk(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '"', '\\', '/':
			b.WriteByte(text[i])
		case '0', '1', '2', '3':
			j := i
			for j < len(text) && j < i+3 && text[j] >= '0' && text[j] <= '7' {
				j++
			}
			n, _ := strconv.ParseUint(text[i:j], 8, 8)
			b.WriteByte(byte(n))
			i = j - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
