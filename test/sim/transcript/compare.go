// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package transcript

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Transcript is what a plan did to a host.
type Transcript struct{ Lines []string }

// Parse reads a transcript; lines that begin with # are comments.
func Parse(text string) *Transcript {
	t := &Transcript{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			t.Lines = append(t.Lines, normalize(line))
		}
	}
	return t
}

// String is what Parse reads.
func (t *Transcript) String() string { return strings.Join(t.Lines, "\n") + "\n" }

// Gaps are the differences between both worlds that are known, with a reason for each.
type Gaps []gap

type gap struct {
	pattern *regexp.Regexp
	reason  string
}

// ParseGaps reads a list of gaps: a regular expression for whole lines, then " # " and the reason.
func ParseGaps(text string) (Gaps, error) {
	var gaps Gaps
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, ok := strings.Cut(line, " # ")
		if !ok {
			return nil, fmt.Errorf("line %d: a gap needs a reason behind \" # \"", n+1)
		}
		expression, err := regexp.Compile("^(?:" + strings.TrimSpace(pattern) + ")$")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		gaps = append(gaps, gap{expression, reason})
	}
	return gaps, nil
}

func (g Gaps) known(line string) bool {
	return slices.ContainsFunc(g, func(one gap) bool { return one.pattern.MatchString(line) })
}

// Compare says what only one of both worlds has, but for the known gaps: "real: <line>" or "simulated: <line>".
func Compare(actual, simulated *Transcript, gaps Gaps) []string {
	var found []string
	only := func(world string, in, notIn *Transcript) {
		for _, line := range in.Lines {
			if !slices.Contains(notIn.Lines, line) && !gaps.known(line) {
				found = append(found, world+": "+line)
			}
		}
	}
	only("real", actual, simulated)
	only("simulated", simulated, actual)
	return found
}
