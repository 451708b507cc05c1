// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ruleID is what a rule's number looks like: S2-24, K-7, C11, R2.
var ruleID = regexp.MustCompile(`^(S[0-9]+-[0-9]+|K-[0-9]+|[CR][0-9]+)$`)

// rule is one promise.
type rule struct {
	id, statement string
}

// section is a source of rules.
type section struct {
	title string
	rules []rule
}

func parseRules(text string) ([]section, error) {
	var sections []section
	seen := map[string]bool{}
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "="):
			sections = append(sections, section{title: strings.TrimSpace(line[1:])})
		default:
			id, statement, _ := strings.Cut(line, " ")
			if !ruleID.MatchString(id) || statement == "" || seen[id] || len(sections) == 0 {
				return nil, fmt.Errorf("rules.txt:%d: want a new rule number and a statement in a section: %q", number+1, line)
			}
			seen[id] = true
			last := &sections[len(sections)-1]
			last.rules = append(last.rules, rule{id: id, statement: statement})
		}
	}
	return sections, nil
}

// known refuses proofs of rules that do not exist: a mistyped number would look like a rule without a test.
func known(sections []section, proofs map[string][]proof) error {
	ids := map[string]bool{}
	for _, s := range sections {
		for _, r := range s.rules {
			ids[r.id] = true
		}
	}
	var errs []error
	for id, found := range proofs {
		if !ids[id] {
			errs = append(errs, fmt.Errorf("%s: there is no rule %q", found[0], id))
		}
	}
	return errors.Join(errs...)
}
