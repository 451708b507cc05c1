// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
)

// notApplicable stands between the statement of a rule and the reason why nothing here can keep or break it.
const notApplicable = " -- not applicable: "

// render writes the checklist. The same rules and tests always give the same bytes, or --check could not work.
func render(sections []section, proofs map[string][]proof) []byte {
	var out, tables bytes.Buffer
	fmt.Fprintln(&out, "# Checklist")
	fmt.Fprintln(&out)
	fmt.Fprintln(&out, "Every rule, and the tests that prove it. Written by `make checklist`; do not edit.")
	fmt.Fprintln(&out)
	fmt.Fprintln(&out, "| source | rules | proved |")
	fmt.Fprintln(&out, "|---|---:|---:|")
	rules, proved := 0, 0
	for _, s := range sections {
		count := 0
		fmt.Fprintf(&tables, "\n## %s\n\n| rule | statement | proved by |\n|---|---|---|\n", s.title)
		for _, r := range s.rules {
			statement, why, spared := strings.Cut(r.statement, notApplicable)
			by := "-"
			if spared {
				by = "not applicable: " + why
			}
			if found := proofs[r.id]; len(found) > 0 {
				count++
				names := make([]string, 0, len(found))
				for _, p := range found {
					names = append(names, "`"+p.String()+"`")
				}
				by = strings.Join(names, "<br>")
			}
			fmt.Fprintf(&tables, "| %s | %s | %s |\n", r.id, cell(statement), cell(by))
		}
		fmt.Fprintf(&out, "| %s | %d | %d |\n", cell(s.title), len(s.rules), count)
		rules, proved = rules+len(s.rules), proved+count
	}
	fmt.Fprintf(&out, "| **all** | **%d** | **%d** |\n", rules, proved)
	out.Write(tables.Bytes())
	return out.Bytes()
}

// cell keeps a text inside its table cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
