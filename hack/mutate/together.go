// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen is the environment variable that says which mutant a test binary runs.
const chosen = "QUOIN_MUTANT"

// compile makes one test binary of the package with all of the mutants, of which each test run chooses one: a compiler
// and a linker for each of hundreds would take hours. A mutant is one more copy of its function; what is called by the
// function's name asks which copy it is to be. Those that do not compile are marked and left out.
func (s *suite) compile(ctx context.Context, mutants []*mutant) error {
	s.binary = filepath.Join(s.scratch, "tests")
	for {
		copies, overlay, err := s.copies(mutants)
		if err != nil {
			return err
		}
		output, err := command(ctx, s.scratch, "go", "test", "-c", "-overlay", overlay, "-gcflags=-e", "-ldflags=-s -w",
			"-o", s.binary, "./"+s.dir).CombinedOutput()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		found := false
		for _, at := range compilerError.FindAllStringSubmatch(string(output), -1) {
			line, _ := strconv.Atoi(at[2])
			for _, c := range copies {
				if filepath.Base(c.file) == at[1] && c.from <= line && line <= c.to {
					c.invalid, found = true, true
				}
			}
		}
		if !found {
			return fmt.Errorf("the mutants of %s do not compile: %w\n%s", s.dir, err, output)
		}
	}
}

var compilerError = regexp.MustCompile(`(?m)^(?:\S*/)?([^/\s]+\.go):(\d+):`)

// copied is a mutant that was written down, and its lines.
type copied struct {
	*mutant
	from, to int
}

// copies writes the files of the package down with copies of each function that has mutants, and returns where they are
// and the overlay that has the compiler read them.
func (s *suite) copies(mutants []*mutant) ([]copied, string, error) {
	var all []copied
	replace := map[string]string{}
	write := func(name, text string) error {
		path, err := filepath.Abs(filepath.Join(s.dir, name))
		replace[path] = filepath.Join(s.scratch, name)
		if err != nil {
			return err
		}
		return os.WriteFile(replace[path], []byte(text), 0o600)
	}
	byFile := map[*mutator][]*mutant{}
	for _, m := range mutants {
		if !m.invalid {
			byFile[m.of] = append(byFile[m.of], m)
		}
	}
	for of, own := range byFile {
		var text strings.Builder
		done := 0
		for _, declaration := range of.parsed.Decls {
			start, end := of.at(declaration.Pos()), of.at(declaration.End())
			text.Write(of.source[done:start])
			done = end
			of.choose(declaration, own, &text, &all)
		}
		text.Write(of.source[done:])
		if err := write(filepath.Base(of.file), text.String()); err != nil {
			return nil, "", err
		}
		if err := write("mutant_chosen.go", "package "+of.parsed.Name.Name+"\n\nimport \"os\"\n\nvar mutantChosen = "+
			"os.Getenv(\""+chosen+"\")\n"); err != nil {
			return nil, "", err
		}
	}
	overlay := filepath.Join(s.scratch, "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	return all, overlay, os.WriteFile(overlay, data, 0o600)
}

// choose writes a declaration: as it is, as the one mutant of it that is alone, or with a copy for each of its mutants.
func (m *mutator) choose(declaration ast.Decl, mutants []*mutant, text *strings.Builder, all *[]copied) {
	original := m.text(declaration)
	mutants = slices.DeleteFunc(slices.Clone(mutants), func(mutant *mutant) bool { return mutant.in != declaration })
	line := func() int { return 1 + strings.Count(text.String(), "\n") }
	write := func(mutant *mutant, declaration string) {
		c := copied{mutant: mutant, from: line()}
		text.WriteString(declaration + "\n")
		c.to = line() - 1
		*all = append(*all, c)
	}
	switch {
	case len(mutants) == 0:
		text.WriteString(original)
		return
	case mutants[0].alone():
		write(mutants[0], mutants[0].declaration)
		return
	}
	function, _ := declaration.(*ast.FuncDecl)
	name := m.at(function.Name.Pos()) - m.at(function.Pos())
	signature := func(body, number string) string {
		return body[:name] + function.Name.Name + "Mutant" + number + body[name+len(function.Name.Name):]
	}
	head, call := m.dispatcher(function)
	text.WriteString(head + " {\nswitch mutantChosen {\n")
	for _, mutant := range mutants {
		fmt.Fprintf(text, "case %q:\n%s\n", mutant.number, fmt.Sprintf(call, mutant.number))
	}
	fmt.Fprintf(text, "default:\n%s\n}\n}\n", fmt.Sprintf(call, ""))
	text.WriteString(signature(original, "") + "\n")
	for _, mutant := range mutants {
		write(mutant, signature(mutant.declaration, mutant.number))
	}
}

// alone reports whether the mutant needs a test binary of its own: it is no part of a function, or of one that a copy
// cannot be made of.
func (m *mutant) alone() bool {
	function, ok := m.in.(*ast.FuncDecl)
	return !ok || function.Type.TypeParams != nil || function.Name.Name == "init" || function.Name.Name == "main"
}

// dispatcher returns the head of a function with a name for its receiver and for each parameter, and the statement that
// calls a copy of it, with %s for the number of that.
func (m *mutator) dispatcher(function *ast.FuncDecl) (head, call string) {
	head, call = "func ", function.Name.Name+"Mutant%s("
	if function.Recv != nil {
		head, call = head+"(self "+m.text(function.Recv.List[0].Type)+") ", "self."+call
	}
	head += function.Name.Name + "("
	number := 0
	for _, field := range function.Type.Params.List {
		for range max(1, len(field.Names)) {
			parameter := fmt.Sprintf("p%d", number)
			number++
			head += parameter + " " + m.text(field.Type) + ", "
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				parameter += "..."
			}
			call += parameter + ", "
		}
	}
	head += ")"
	if results := m.typesOf(function.Type); len(results) > 0 {
		return head + " (" + strings.Join(results, ", ") + ")", "return " + call + ")"
	}
	return head, call + ")"
}
