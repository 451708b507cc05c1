// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Result of a check.
type Result string

const (
	// OK: the machine does what is needed.
	OK Result = "OK"
	// Fail: it does not; the detail says what to do.
	Fail Result = "FAIL"
	// Skip: it was not tried; the detail says why.
	Skip Result = "SKIP"
)

// Outcome is one line of the report.
type Outcome struct {
	Check  string `json:"check"`
	Result Result `json:"result"`
	// Detail is a sentence, or several lines when something failed.
	Detail string `json:"detail,omitempty"`
	// Seconds that it took.
	Seconds float64 `json:"seconds"`
}

// Fact is one property of the machine. A report is contributed in public, so facts are of its kind, never of its place:
// no names, addresses or serial numbers.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Report is what became of a run.
type Report struct {
	Date     string    `json:"date"`
	Access   string    `json:"access"`
	Facts    []Fact    `json:"facts"`
	Outcomes []Outcome `json:"outcomes"`
}

// Passed says that something was tried and nothing failed.
func (r *Report) Passed() bool { return r.count(Fail) == 0 && r.count(OK) > 0 }

func (r *Report) count(result Result) int {
	n := 0
	for _, one := range r.Outcomes {
		if one.Result == result {
			n++
		}
	}
	return n
}

// Summary is the last line.
func (r *Report) Summary() string {
	word := "This machine can serve as a host"
	if !r.Passed() {
		word = "This machine cannot serve as it is"
	}
	return fmt.Sprintf("%s: %d checks OK, %d failed, %d skipped.", word, r.count(OK), r.count(Fail), r.count(Skip))
}

// print writes one outcome as it comes.
func (o Outcome) print(out io.Writer) {
	detail := strings.ReplaceAll(o.Detail, "\n", "\n"+strings.Repeat(" ", 28))
	fmt.Fprintf(out, "%-4s  %-16s %4.1fs  %s\n", o.Result, o.Check, o.Seconds, detail)
}

// Write puts the report into a file, in the form that its name asks for.
func (r *Report) Write(path string) error {
	var content []byte
	if filepath.Ext(path) == ".json" {
		encoded, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		content = encoded
	} else {
		content = []byte(r.markdown())
	}
	if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // a report is made to be shown
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (r *Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Host conformance, %s\n\n%s\n\nAccess: %s.\n\n| fact | value |\n|---|---|\n", r.Date, r.Summary(), r.Access)
	for _, fact := range r.Facts {
		fmt.Fprintf(&b, "| %s | %s |\n", fact.Name, cell(fact.Value))
	}
	b.WriteString("\n| check | result | time | |\n|---|---|---|---|\n")
	for _, o := range r.Outcomes {
		fmt.Fprintf(&b, "| %s | %s | %.1f s | %s |\n", o.Check, o.Result, o.Seconds, cell(o.Detail))
	}
	return b.String()
}

// cell makes text fit into a cell of a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", "<br>").Replace(strings.TrimSpace(text))
}

func (r *Report) fact(name, value string) {
	if value = strings.TrimSpace(value); value != "" {
		r.Facts = append(r.Facts, Fact{Name: name, Value: value})
	}
}

func newReport(access string, now time.Time) *Report {
	return &Report{Date: now.UTC().Format(time.DateOnly), Access: access}
}
