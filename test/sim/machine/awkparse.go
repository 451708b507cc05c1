// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// awkProgram is a parsed awk text. The language is complete but for user functions, getline, and output into files.
type awkProgram struct {
	begin, end []awkNode
	rules      []awkRule
}

type awkRule struct {
	pattern, last awkNode
	body          []awkNode
	bare          bool
}

// awkNode is a statement or an expression: an operator with its operands.
type awkNode interface{}

type (
	awkNumber float64
	awkText   string
	awkRegex  string
	awkName   string
	awkField  struct{ x awkNode }
	awkIndex  struct {
		name string
		keys []awkNode
	}
	awkOp struct {
		op   string
		args []awkNode
	}
	// awkBlock groups statements.
	awkBlock []awkNode
)

type awkToken struct {
	kind string // number, text, regex, name, func, op, newline, end
	text string
	// tight says that no space precedes.
	tight bool
}

type awkParser struct {
	source string
	at     int
	last   awkToken
	tok    awkToken
	noIn   int
	noGt   int
}

var awkPrograms sync.Map // of string to *awkProgram

func parseAwk(source string) (prog *awkProgram, err error) {
	if found, ok := awkPrograms.Load(source); ok {
		return found.(*awkProgram), nil
	}
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(awkSyntax)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("awk syntax near %q: %s", source[max(0, bad.at-20):min(len(source), bad.at+20)], bad.what)
		}
	}()
	p := &awkParser{source: source}
	p.next()
	prog = &awkProgram{}
	for p.skip(); p.tok.kind != "end"; p.skip() {
		switch {
		case p.isName("BEGIN"):
			p.next()
			prog.begin = append(prog.begin, p.block()...)
		case p.isName("END"):
			p.next()
			prog.end = append(prog.end, p.block()...)
		case p.isName("function"):
			p.fail("functions are not simulated")
		default:
			var r awkRule
			if !p.isOp("{") {
				r.pattern = p.expr()
				if p.isOp(",") {
					p.next()
					r.last = p.expr()
				}
			}
			if p.isOp("{") {
				r.body = p.block()
			} else {
				r.bare = true
			}
			prog.rules = append(prog.rules, r)
		}
	}
	awkPrograms.Store(source, prog)
	return prog, nil
}

type awkSyntax struct {
	at   int
	what string
}

func (p *awkParser) fail(what string) { panic(awkSyntax{p.at, what}) }

func (p *awkParser) isOp(op string) bool     { return p.tok.kind == "op" && p.tok.text == op }
func (p *awkParser) isName(name string) bool { return p.tok.kind == "name" && p.tok.text == name }

func (p *awkParser) want(op string) {
	if !p.isOp(op) {
		p.fail("expected " + op)
	}
	p.next()
}

// skip passes newlines and semicolons.
func (p *awkParser) skip() {
	for p.tok.kind == "newline" || p.isOp(";") {
		p.next()
	}
}

func (p *awkParser) newlines() {
	for p.tok.kind == "newline" {
		p.next()
	}
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
			switch {
			case s[i] == '\\':
				i++
			case s[i] == '[':
				in = true
			case s[i] == ']':
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

func (p *awkParser) block() awkBlock {
	p.newlines()
	p.want("{")
	var list awkBlock
	for p.skip(); !p.isOp("}"); p.skip() {
		if p.tok.kind == "end" {
			p.fail("expected }")
		}
		list = append(list, p.statement())
	}
	p.next()
	return list
}

// body is one statement or a block, perhaps on the next line.
func (p *awkParser) body() awkNode {
	p.newlines()
	if p.isOp(";") {
		p.next()
		return awkBlock{}
	}
	return p.statement()
}

func (p *awkParser) statement() awkNode {
	if p.isOp("{") {
		return p.block()
	}
	if p.tok.kind == "name" {
		switch p.tok.text {
		case "if":
			p.next()
			p.want("(")
			cond := p.expr()
			p.want(")")
			then := p.body()
			// An else may stand behind a semicolon or on another line.
			save := *p
			p.skip()
			if p.isName("else") {
				p.next()
				return awkOp{"if", []awkNode{cond, then, p.body()}}
			}
			*p = save
			return awkOp{"if", []awkNode{cond, then}}
		case "while":
			p.next()
			p.want("(")
			cond := p.expr()
			p.want(")")
			return awkOp{"for", []awkNode{nil, cond, nil, p.body()}}
		case "for":
			return p.forStatement()
		case "next", "break", "continue":
			op := p.tok.text
			p.next()
			return awkOp{op, nil}
		case "exit":
			p.next()
			if p.ends() {
				return awkOp{"exit", nil}
			}
			return awkOp{"exit", []awkNode{p.expr()}}
		case "delete":
			p.next()
			return awkOp{"delete", []awkNode{p.primary()}}
		case "print", "printf":
			op := p.tok.text
			p.next()
			var args []awkNode
			p.noGt++
			for !p.ends() {
				args = append(args, p.expr())
				if !p.isOp(",") {
					break
				}
				p.next()
				p.newlines()
			}
			p.noGt--
			if len(args) == 1 {
				if group, ok := args[0].(awkOp); ok && group.op == "group" {
					args = group.args
				}
			}
			if p.isOp(">") || p.isOp(">>") || p.isOp("|") {
				p.fail("output into files is not simulated")
			}
			return awkOp{op, args}
		}
	}
	return awkOp{"do", []awkNode{p.expr()}}
}

func (p *awkParser) ends() bool {
	return p.tok.kind == "newline" || p.tok.kind == "end" || p.isOp(";") || p.isOp("}") || p.isOp(">") || p.isOp("|")
}

func (p *awkParser) forStatement() awkNode {
	p.next()
	p.want("(")
	var first awkNode
	if !p.isOp(";") {
		first = p.expr()
		if in, ok := first.(awkOp); ok && in.op == "in" && p.isOp(")") {
			p.next()
			return awkOp{"forin", []awkNode{in.args[0], in.args[1], p.body()}}
		}
	}
	p.want(";")
	var cond, step awkNode
	if !p.isOp(";") {
		cond = p.expr()
	}
	p.want(";")
	if !p.isOp(")") {
		step = p.expr()
	}
	p.want(")")
	return awkOp{"for", []awkNode{first, cond, step, p.body()}}
}

func (p *awkParser) expr() awkNode {
	left := p.ternary()
	if p.tok.kind == "op" {
		switch op := p.tok.text; op {
		case "=", "+=", "-=", "*=", "/=", "%=":
			p.next()
			return awkOp{op, []awkNode{left, p.expr()}}
		}
	}
	return left
}

func (p *awkParser) ternary() awkNode {
	cond := p.binary(0)
	if !p.isOp("?") {
		return cond
	}
	p.next()
	yes := p.expr()
	p.want(":")
	return awkOp{"?", []awkNode{cond, yes, p.expr()}}
}

// awkLevels are the binary operators, the loosest first. Concatenation has no sign of its own.
var awkLevels = [][]string{{"||"}, {"&&"}, {"in"}, {"~", "!~"}, {"<", "<=", "==", "!=", ">", ">="}, {"concat"}, {"+", "-"}, {"*", "/", "%"}}

func (p *awkParser) binary(level int) awkNode {
	if level == len(awkLevels) {
		return p.unary()
	}
	left := p.binary(level + 1)
	for {
		op := ""
		for _, candidate := range awkLevels[level] {
			switch {
			case candidate == "concat":
				if p.startsValue() {
					op = candidate
				}
			case candidate == "in":
				if p.isName("in") {
					op = candidate
				}
			case p.isOp(candidate) && !(candidate == ">" && p.noGt > 0):
				op = candidate
			}
		}
		if op == "" {
			return left
		}
		if op != "concat" {
			p.next()
		}
		if op == "||" || op == "&&" {
			p.newlines()
		}
		left = awkOp{op, []awkNode{left, p.binary(level + 1)}}
	}
}

func (p *awkParser) startsValue() bool {
	switch p.tok.kind {
	case "number", "text":
		return true
	case "name":
		return p.tok.text != "in"
	case "op":
		return p.tok.text == "(" || p.tok.text == "$" || p.tok.text == "!" || p.tok.text == "++" || p.tok.text == "--"
	}
	return false
}

func (p *awkParser) unary() awkNode {
	if p.tok.kind == "op" {
		switch op := p.tok.text; op {
		case "!":
			p.next()
			return awkOp{"!", []awkNode{p.unary()}}
		case "-", "+":
			p.next()
			return awkOp{"neg" + op, []awkNode{p.unary()}}
		case "++", "--":
			p.next()
			return awkOp{"pre" + op, []awkNode{p.primary()}}
		}
	}
	x := p.primary()
	if p.isOp("^") {
		p.next()
		x = awkOp{"^", []awkNode{x, p.unary()}}
	}
	if p.isOp("++") || p.isOp("--") {
		switch x.(type) {
		case awkName, awkField, awkIndex:
			op := p.tok.text
			p.next()
			return awkOp{"post" + op, []awkNode{x}}
		}
	}
	return x
}

func (p *awkParser) primary() awkNode {
	tok := p.tok
	switch tok.kind {
	case "number":
		p.next()
		n, _ := strconv.ParseFloat(tok.text, 64)
		return awkNumber(n)
	case "text":
		p.next()
		return awkText(tok.text)
	case "regex":
		p.next()
		return awkRegex(tok.text)
	case "op":
		switch tok.text {
		case "$":
			p.next()
			if p.isOp("++") || p.isOp("--") || p.isOp("-") {
				return awkField{p.unary()}
			}
			return awkField{p.primary()}
		case "(":
			p.next()
			noGt := p.noGt
			p.noGt = 0
			list := []awkNode{p.expr()}
			for p.isOp(",") {
				p.next()
				list = append(list, p.expr())
			}
			p.want(")")
			p.noGt = noGt
			return awkOp{"group", list}
		}
	case "name":
		p.next()
		if p.isOp("(") && (p.tok.tight || awkFunctions[tok.text]) {
			if !awkFunctions[tok.text] {
				p.fail("function " + tok.text + " is not simulated")
			}
			p.next()
			noGt := p.noGt
			p.noGt = 0
			var args []awkNode
			for !p.isOp(")") {
				args = append(args, p.expr())
				if p.isOp(",") {
					p.next()
				}
			}
			p.next()
			p.noGt = noGt
			return awkOp{"call " + tok.text, args}
		}
		if tok.text == "length" {
			return awkOp{"call length", nil}
		}
		if p.isOp("[") {
			p.next()
			var keys []awkNode
			for !p.isOp("]") {
				keys = append(keys, p.expr())
				if p.isOp(",") {
					p.next()
				}
			}
			p.next()
			return awkIndex{tok.text, keys}
		}
		return awkName(tok.text)
	}
	p.fail("unexpected " + tok.kind + " " + tok.text)
	return nil
}

var awkFunctions = map[string]bool{"length": true, "substr": true, "index": true, "split": true, "sub": true, "gsub": true, "match": true,
	"tolower": true, "toupper": true, "sprintf": true, "int": true}
