// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secrettest draws what Secrets hold, and looks for it in what people may read.
package secrettest

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"strings"
)

// Tokens are what Secrets hold, by the field. One may have many lines.
type Tokens map[string]string

// Draw is a line of 32 characters.
func Draw() string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	text := make([]byte, 32)
	for i := range text {
		text[i] = letters[rand.IntN(len(letters))] //nolint:gosec // opens nothing
	}
	return string(text)
}

// forms are what programs make of a token.
func (t Tokens) forms() []string {
	var forms []string
	for _, token := range t {
		for _, line := range append(strings.Split(token, "\n"), token) {
			quoted, _ := json.Marshal(line)
			forms = append(forms, line, strings.Trim(string(quoted), `"`), url.QueryEscape(line), url.PathEscape(line),
				base64.StdEncoding.EncodeToString([]byte(line)))
		}
	}
	return forms
}

// Printed is a text that holds every token in every form, at every place of a base64.
func (t Tokens) Printed() string {
	var text strings.Builder
	for _, form := range t.forms() {
		text.WriteString("it says " + strings.ReplaceAll(form, "\n", "\ntail ") + ";")
	}
	for _, token := range t {
		for line := range strings.SplitSeq(token, "\n") {
			for before := range 3 {
				text.WriteString(" " + base64.StdEncoding.EncodeToString([]byte("xyz"[:before]+line)))
			}
		}
	}
	return text.String()
}

// Leaks are the tokens that a text shows, in the form in which it does.
func (t Tokens) Leaks(text string) []string {
	var found []string
	for _, form := range t.forms() {
		if strings.Contains(text, form) {
			found = append(found, form)
		}
	}
	for _, token := range t {
		for line := range strings.SplitSeq(token, "\n") {
			for before := range 3 {
				// Without what its neighbors decide, too.
				encoded := base64.StdEncoding.EncodeToString([]byte("xyz"[:before] + line))
				if middle := encoded[4 : len(encoded)-4]; strings.Contains(text, middle) {
					found = append(found, middle)
				}
			}
		}
	}
	return found
}
