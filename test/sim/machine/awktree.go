// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

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

// awkLevels are the binary operators, the loosest first. Concatenation has no sign of its own.
var awkLevels = [][]string{{"||"}, {"&&"}, {"in"}, {"~", "!~"}, {"<", "<=", "==", "!=", ">", ">="}, {"concat"}, {"+", "-"}, {"*", "/", "%"}}

var awkFunctions = map[string]bool{"length": true, "substr": true, "index": true, "split": true, "sub": true, "gsub": true, "match": true,
	"tolower": true, "toupper": true, "sprintf": true, "int": true}
