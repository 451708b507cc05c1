// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
	"sync"
)

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

type awkParser struct {
	source string
	at     int
	last   awkToken
	tok    awkToken
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

func (p *awkParser) isOp(op string) bool { return p.tok.kind == "op" && p.tok.text == op }

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
			case p.isOp(candidate) && (candidate != ">" || p.noGt == 0):
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
