// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command checklist writes docs/checklist.md: every rule of rules.txt and the tests that prove it.
//
//	go run ./hack/checklist          # writes the file
//	go run ./hack/checklist --check  # fails when the file is stale
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed rules.txt
var rulesFile string

func main() {
	root := flag.String("root", ".", "the checkout")
	check := flag.Bool("check", false, "write nothing, fail when docs/checklist.md is stale")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "checklist:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	sections, err := parseRules(rulesFile)
	if err != nil {
		return err
	}
	proofs, err := findProofs(os.DirFS(root))
	if err != nil {
		return err
	}
	if err := known(sections, proofs); err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "checklist.md")
	want := render(sections, proofs)
	if !check {
		return os.WriteFile(path, want, 0o644)
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return errors.New("docs/checklist.md is stale: run `make checklist`")
	}
	return nil
}
