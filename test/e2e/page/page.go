// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package page reads pages of docs whose commands are run by tests, and holds what they show against what was printed.
package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	// Heading that it stands below.
	Heading string
	// Language behind the fence: sh is run, text is what that prints, all others are shown.
	Language string
	// Text without the fences.
	Text string
	// Line of its first fence.
	Line int
}

// Read reads the blocks of a page in Markdown, in order.
func Read(path string) ([]Block, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	blocks, err := Blocks(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return blocks, nil
}

// Blocks of a page in Markdown, in order.
func Blocks(page string) ([]Block, error) {
	var found []Block
	var open *Block
	heading := ""
	for number, line := range strings.Split(page, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &Block{Heading: heading, Language: language, Line: number + 1}
		case fence && language == "":
			found = append(found, *open)
			open = nil
		case fence:
			return nil, fmt.Errorf("line %d: a block begins inside that of line %d", number+1, open.Line)
		case open != nil:
			open.Text += line + "\n"
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if open != nil {
		return nil, fmt.Errorf("the block of line %d has no end", open.Line)
	}
	return found, nil
}

// passing is what differs from run to run, longest first: times, ages, generated names, counts of what moves.
var passing = []struct {
	is   *regexp.Regexp
	like string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+[hms])+\b`), "AGE"},
	{regexp.MustCompile(`\b[0-9a-f]{10}\b`), "ID"},
	{regexp.MustCompile(`-[a-z0-9]{5}(-[a-z0-9]{5})?\b`), "-NAME"},
	{regexp.MustCompile(`\b\d+ objects\b`), "N objects"},
	{regexp.MustCompile(`\b(rack|host)-\d+\b`), "HOST"},
	{regexp.MustCompile(`\brack-[a-z]\b`), "RACK"},
	{regexp.MustCompile(`\b172(\.\d+){3}\b`), "ADDRESS"},
	{regexp.MustCompile(`/[^ ]*/(quoin-workspace|clone)/`), "$1/"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// like is a line without what differs from run to run.
func like(line string) string {
	for _, p := range passing {
		line = p.is.ReplaceAllString(line, p.like)
	}
	return strings.TrimSpace(line)
}

// Unprinted is the first line that a page shows and that was not printed, in the order of the page; empty when there is
// none. A line "..." stands for any others; without one nothing comes between two lines.
func Unprinted(shown, printed string) string {
	rest := strings.Split(strings.TrimSpace(printed), "\n")
	anywhere := true
	for line := range strings.Lines(strings.TrimSpace(shown)) {
		line = strings.TrimSpace(line)
		if line == "..." {
			anywhere = true
			continue
		}
		at := 0
		for anywhere && at < len(rest) && like(rest[at]) != like(line) {
			at++
		}
		if at >= len(rest) || like(rest[at]) != like(line) {
			return line
		}
		rest, anywhere = rest[at+1:], false
	}
	return ""
}
