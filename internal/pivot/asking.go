// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Question is what a management cluster is asked from within.
type Question struct {
	// Services are the ranges of its Services, in CIDR notation.
	Services []string `json:"services,omitempty"`
	Looks    []Look   `json:"looks,omitempty"`
}

// Arguments of a program have the question: a look each, for the kernel bounds one argument more than all of them.
func (q Question) Arguments() ([]string, error) {
	parts := []Question{{Services: q.Services}}
	for _, look := range q.Looks {
		parts = append(parts, Question{Looks: []Look{look}})
	}
	var arguments []string
	for _, part := range parts {
		content, err := json.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("encoding what is asked: %w", err)
		}
		// A kubelet puts the value of a variable in the place of $(NAME).
		arguments = append(arguments, strings.ReplaceAll(string(content), "$", `\u0024`))
	}
	return arguments, nil
}

// ParseQuestion is the inverse of Arguments.
func ParseQuestion(arguments []string) (Question, error) {
	var q Question
	for _, argument := range arguments {
		var part Question
		if err := json.Unmarshal([]byte(argument), &part); err != nil {
			return q, fmt.Errorf("decoding what is asked (%.100q): %w", argument, err)
		}
		q.Services, q.Looks = append(q.Services, part.Services...), append(q.Looks, part.Looks...)
	}
	return q, nil
}

// answerBytes is what a kubelet keeps of the message that a container leaves.
const answerBytes = 4096

// Answer to a Question.
type Answer struct {
	// Looks are how many looks there were, and Failed how many of them did not find what they looked for.
	Looks  int `json:"looks"`
	Failed int `json:"failed,omitempty"`
	// Faults say why, those of the first looks where not all have room.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault of some looks, which are counted from 0.
type Fault struct {
	Why   string `json:"why"`
	Looks []int  `json:"looks"`
}

// NewAnswer makes an answer of why each look failed; empty for those that did not.
func NewAnswer(why []string) Answer {
	a := Answer{Looks: len(why)}
	for i, one := range why {
		if one == "" {
			continue
		}
		a.Failed++
		same := slices.IndexFunc(a.Faults, func(f Fault) bool { return f.Why == one })
		if same < 0 {
			same, a.Faults = len(a.Faults), append(a.Faults, Fault{Why: one})
		}
		a.Faults[same].Looks = append(a.Faults[same].Looks, i)
	}
	return a
}

// Message is what a container leaves. Where not all has room the last looks are left out, and Failed counts them.
func (a Answer) Message() ([]byte, error) {
	a.Faults = slices.Clone(a.Faults)
	for {
		content, err := json.Marshal(a)
		if err != nil || len(content) <= answerBytes {
			return content, err //nolint:wrapcheck // nothing of it can fail
		}
		last := a.lastFault()
		looks := a.Faults[last].Looks
		if a.Faults[last].Looks = looks[:len(looks)-1]; len(looks) == 1 {
			a.Faults = slices.Delete(a.Faults, last, last+1)
		}
	}
}

// lastFault is that of the last look.
func (a Answer) lastFault() int {
	last := 0
	for i, fault := range a.Faults {
		if slices.Max(fault.Looks) > slices.Max(a.Faults[last].Looks) {
			last = i
		}
	}
	return last
}

// ParseAnswer is the inverse of Message, for as many looks. Who does not know the question says something else.
func ParseAnswer(message string, looks int) (*Answer, error) {
	a := &Answer{}
	if err := json.Unmarshal([]byte(message), a); err != nil || a.Looks != looks {
		return nil, fmt.Errorf("it does not answer, which managers of an older version do not: %.300q", message)
	}
	for _, fault := range a.Faults {
		for _, look := range fault.Looks {
			if look < 0 || look >= looks {
				return nil, fmt.Errorf("it answers about look %d of %d", look, looks)
			}
		}
	}
	return a, nil
}

// why is what each look failed for, by its number.
func (a *Answer) why() map[int]string {
	all := map[int]string{}
	for _, fault := range a.Faults {
		for _, look := range fault.Looks {
			all[look] = fault.Why
		}
	}
	return all
}
