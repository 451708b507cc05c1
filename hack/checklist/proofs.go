// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// skipped are folders with no tests of ours.
var skipped = []string{".git", "_artifacts", "hack/tools", "dist", "bin"}

// ginkgoCalls are the functions whose text may carry rule numbers in brackets.
var ginkgoCalls = []string{"Describe", "DescribeTable", "Context", "When", "It", "Specify", "By", "Entry"}

var (
	bracketed = regexp.MustCompile(`\[([^\][]+)\]`)
	separator = regexp.MustCompile(`[,\s]+`)
	// sentence ends where a reader would.
	sentence = regexp.MustCompile(`^.*?[.:;] `)
	// rowed is an entry of a table that is named after a rule.
	rowed = regexp.MustCompile(`^- \{.*\brow: ([A-Z][0-9]*(?:-?[0-9]+)),`)
)

// proof is a test that proves a rule, or a story in a test's data; test is empty for a row of a table.
type proof struct {
	file, test string
}

// String is how the checklist names it.
func (p proof) String() string {
	if p.test == "" {
		return p.file
	}
	return p.file + ": " + p.test
}

// findProofs reads every test file for the two forms: a line `// Proves: <ids>` at or in a test function, and
// bracketed numbers in the texts of Ginkgo's nodes. In data of tests it reads lines `# Proves: <ids>` below what a story
// is about, and `row: <id>` of tables.
func findProofs(tree fs.FS) (map[string][]proof, error) {
	proofs := map[string][]proof{}
	err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(skipped, path) {
				return fs.SkipDir
			}
			return nil
		}
		data := (strings.Contains(path, "testdata/") || strings.HasPrefix(path, "test/former/")) &&
			(strings.HasSuffix(path, ".txt") || strings.HasSuffix(path, ".yaml"))
		if !data && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		content, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		add := func(id, test string) {
			found := proof{file: path, test: test}
			if !slices.Contains(proofs[id], found) {
				proofs[id] = append(proofs[id], found)
			}
		}
		if data {
			stories(string(content), add)
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("reading the proofs of %s: %w", path, err)
		}
		commented(file, add)
		ginkgo(file, add)
		return nil
	})
	return proofs, err
}

// stories finds what data of tests prove. A story is named by the first sentence of its comment.
func stories(content string, add func(id, test string)) {
	var story []string
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		ids, proves := strings.CutPrefix(line, "# Proves:")
		comment, is := strings.CutPrefix(line, "# ")
		switch {
		case proves:
			name := sentence.FindString(strings.Join(story, " ") + " ")
			for _, id := range separator.Split(strings.TrimSpace(ids), -1) {
				add(id, strings.TrimRight(name, ".:; "))
			}
		case is:
			story = append(story, comment)
		default:
			story = nil
		}
		if row := rowed.FindStringSubmatch(line); row != nil {
			add(row[1], "")
		}
	}
}

// commented finds the `// Proves:` lines; each counts for the function that it is in, or that follows it.
func commented(file *ast.File, add func(id, test string)) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			ids, ok := strings.CutPrefix(comment.Text, "// Proves:")
			if !ok {
				continue
			}
			test := functionAt(file, comment.Pos())
			for _, id := range separator.Split(strings.TrimRight(strings.TrimSpace(ids), "."), -1) {
				add(id, test)
			}
		}
	}
}

// functionAt is the name of the first function that ends after pos.
func functionAt(file *ast.File, pos token.Pos) string {
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.End() > pos {
			return function.Name.Name
		}
	}
	return "(no test)"
}

// ginkgo finds the numbers in brackets.
func ginkgo(file *ast.File, add func(id, test string)) {
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 || !slices.Contains(ginkgoCalls, calledName(call)) {
			return true
		}
		literal, ok := call.Args[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			return true
		}
		name := strings.Join(strings.Fields(bracketed.ReplaceAllString(text, "")), " ")
		for _, match := range bracketed.FindAllStringSubmatch(text, -1) {
			for _, id := range separator.Split(match[1], -1) {
				// Brackets may hold other things; only what looks like a rule is one.
				if ruleID.MatchString(id) {
					add(id, name)
				}
			}
		}
		return true
	})
}

// calledName is the last part of what is called: It of It(...) and of ginkgo.It(...).
func calledName(call *ast.CallExpr) string {
	switch function := call.Fun.(type) {
	case *ast.Ident:
		return function.Name
	case *ast.SelectorExpr:
		return function.Sel.Name
	}
	return ""
}
