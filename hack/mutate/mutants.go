// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is a file with one change.
type mutant struct {
	file, function string
	line           int
	// text is the mutated source line, or "- " and the first line of what was removed; with "[2]" behind it when it is the
	// second of the same text in the function.
	text string
	// of is its file, in its declaration there, and declaration what becomes of that. number names it in its package.
	of                  *mutator
	in                  ast.Decl
	declaration, number string
	// invalid: it does not compile.
	invalid bool
}

func (m *mutant) key() string { return fmt.Sprintf("%s %s: %s", m.file, m.function, m.text) }

// swapped operators: boundaries, negations and connectives.
var swapped = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+",
}

// mutator collects the mutants of a file.
type mutator struct {
	file     string
	set      *token.FileSet
	source   []byte
	parsed   *ast.File
	within   ast.Decl
	function string
	results  []string
	mutants  []*mutant
	// counted are the mutants by their key without a number.
	counted map[string]int
}

// mutate returns the mutants of a file. Types are not looked at: what does not compile is sorted out by the compiler.
func mutate(file string) ([]*mutant, error) {
	source, err := os.ReadFile(file) //nolint:gosec // a source of the package
	if err != nil {
		return nil, err
	}
	m := &mutator{file: filepath.ToSlash(file), set: token.NewFileSet(), source: source, counted: map[string]int{}}
	m.parsed, err = parser.ParseFile(m.set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, declaration := range m.parsed.Decls {
		m.function, m.results, m.within = "", nil, declaration
		if function, ok := declaration.(*ast.FuncDecl); ok {
			m.function = function.Name.Name
			m.results = m.typesOf(function.Type)
		}
		if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.IMPORT {
			continue
		}
		m.visit(declaration)
	}
	return m.mutants, nil
}

func (m *mutator) at(pos token.Pos) int { return m.set.Position(pos).Offset }

func (m *mutator) text(node ast.Node) string {
	return string(m.source[m.at(node.Pos()):m.at(node.End())])
}

// typesOf names the results of a function, one for each.
func (m *mutator) typesOf(function *ast.FuncType) []string {
	var types []string
	if function.Results == nil {
		return nil
	}
	for _, field := range function.Results.List {
		for range max(1, len(field.Names)) {
			types = append(types, m.text(field.Type))
		}
	}
	return types
}

// visit mutates a node and what is in it. A function literal has results of its own.
func (m *mutator) visit(root ast.Node) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncLit:
			outer := m.results
			m.results = m.typesOf(n.Type)
			m.visit(n.Body)
			m.results = outer
			return false
		case *ast.BinaryExpr:
			if to, ok := swapped[n.Op]; ok {
				m.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to)
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				m.replace(n.OpPos, n.OpPos+1, "")
			}
		case *ast.IfStmt:
			if compared, ok := n.Cond.(*ast.BinaryExpr); !ok || compared.Op != token.EQL && compared.Op != token.NEQ {
				m.replace(n.Cond.Pos(), n.Cond.End(), "!("+m.text(n.Cond)+")")
			}
		case *ast.BasicLit:
			if value, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
				m.replace(n.Pos(), n.End(), strconv.Itoa(value+1))
				m.replace(n.Pos(), n.End(), strconv.Itoa(value-1))
			}
		case *ast.ReturnStmt:
			m.returns(n)
		case *ast.BlockStmt:
			m.statements(n.List)
		case *ast.CaseClause:
			m.statements(n.Body)
			m.remove(n)
		}
		return true
	})
}

// returns gives each result its zero value; a bool is the other way round.
func (m *mutator) returns(n *ast.ReturnStmt) {
	if len(n.Results) != len(m.results) {
		return
	}
	for i, result := range n.Results {
		text, zero := m.text(result), "*new("+m.results[i]+")"
		switch {
		case m.results[i] == "bool":
			zero = "!(" + text + ")"
		case text == "nil" || text == "0" || text == `""` || strings.HasSuffix(text, "{}"):
			continue
		}
		m.replace(result.Pos(), result.End(), zero)
	}
}

// statements removes each that declares nothing.
func (m *mutator) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				m.remove(s)
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt:
			m.remove(s)
		case *ast.IfStmt:
			if s.Init == nil {
				m.remove(s)
			}
		}
	}
}

func (m *mutator) remove(node ast.Node) {
	first, _, _ := strings.Cut(m.text(node), "\n")
	m.add(node.Pos(), node.End(), "", "- "+first)
}

func (m *mutator) replace(from, to token.Pos, by string) { m.add(from, to, by, "") }

func (m *mutator) add(from, to token.Pos, by, text string) {
	start, end, begin := m.at(from), m.at(to), m.at(m.within.Pos())
	source := string(m.source)
	if text == "" {
		line, rest := source[:start], source[end:]
		line, _, _ = strings.Cut(line[strings.LastIndexByte(line, '\n')+1:], "\n")
		rest, _, _ = strings.Cut(rest, "\n")
		text = line + strings.Join(strings.Fields(by), " ") + rest
	}
	mutant := &mutant{file: m.file, function: m.function, line: m.set.Position(from).Line, text: strings.TrimSpace(text),
		of: m, in: m.within, declaration: source[begin:start] + by + source[end:m.at(m.within.End())]}
	key := mutant.key()
	if m.counted[key]++; m.counted[key] > 1 {
		mutant.text += fmt.Sprintf(" [%d]", m.counted[key])
	}
	m.mutants = append(m.mutants, mutant)
}
