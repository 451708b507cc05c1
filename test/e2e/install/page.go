// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install runs docs/install.md: every command of it, as it is written, in order.
package install

import (
	"fmt"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	// Heading that it stands below.
	Heading string
	// Language behind the fence: sh is run, all others are shown.
	Language string
	// Text without the fences.
	Text string
	// Line of its first fence.
	Line int
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
