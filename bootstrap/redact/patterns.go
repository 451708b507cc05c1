// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"slices"
	"strings"
)

var (
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9 ]*)-----.*?(?:-----END [A-Z0-9 ]*-----|$)`)
	pemEnd   = regexp.MustCompile(`(?s)^.*?-----END ([A-Z0-9 ]*)-----`)
)

// shapes are what secrets look like, and what stands in their place. One is only looked for in a text that holds one of
// its words, in lower case, or without words one that has minLong characters: most expressions are slow, and most texts
// have nothing for them.
var shapes = []struct {
	words []string
	of    *regexp.Regexp
	with  string
}{
	// base64 of PEM is how kubeconfigs and Secrets carry it: "-----BEGIN" begins so.
	{[]string{"ls0tls1crudjti"}, regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`), "<PEM>"},
	{[]string{"://"}, regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://[^\s/:@"']*:)[^\s/"']+@`), "${1}<hidden>@"},
	{[]string{"authorization"},
		regexp.MustCompile(`(?i)(authorization["']?[ \t]*[:=][ \t]*["']?[a-z]+[ \t]+)[^\s"',]+`), "${1}<hidden>"},
	{[]string{"bearer", "basic"}, regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ \t]+)[A-Za-z0-9+/._~=-]{20,}`),
		"${1}<hidden>"},
	{[]string{`auth\"`, `auth"`, `token\"`, `token"`},
		regexp.MustCompile(`(\\?"(?:auth|identitytoken|registrytoken)\\?"[ \t]*:[ \t]*\\?")[^"\\]+`), "${1}<hidden>"},
	{[]string{"a3t", "akia", "asia", "agpa", "aida", "aroa", "aipa", "anpa", "anva", "abia", "acca"}, regexp.MustCompile(
		`\b(?:A3T[A-Z0-9]|AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{16}\b`), "<key>"},
	{[]string{"aiza"}, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`), "<key>"},
	{[]string{"ya29."}, regexp.MustCompile(`\bya29\.[A-Za-z0-9_-]{10,}`), "<token>"},
	// What Entra ID draws as a client secret has this in its middle.
	{[]string{"8q~"}, regexp.MustCompile(`[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{31,}`), "<key>"},
	{[]string{"sig="}, regexp.MustCompile(`([?&]sig=)[A-Za-z0-9%+/=_-]+`), "${1}<hidden>"},
	{[]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, regexp.MustCompile(
		`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})`), "<token>"},
	{[]string{"gl"}, regexp.MustCompile(`\bgl[a-z]{2,6}-[A-Za-z0-9_.-]{20,}`), "<token>"},
	{[]string{"key", "secret", "token"}, regexp.MustCompile(
		`(?i)((?:(?:access|account|api|private|shared|storage)[_-]?key|` +
			`(?:client|auth|session|sas)[_-]?(?:secret|token))(?:[_-]?id)?["'\\]*[ \t]*[=:][ \t]*["'\\]*)[^\s"'\\;,<]+`),
		"${1}<hidden>"},
	{[]string{"."}, regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), "<token>"},
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), "<token>"},
	{[]string{"key"}, regexp.MustCompile(`((?:certificate-key|key)[ =:"]+)[0-9a-f]{32,}\b`), "${1}<key>"},
	// A certificate key has 32 bytes, and so have etcd's encryption keys; a digest, which begins with its algorithm, is no
	// secret.
	{nil, regexp.MustCompile(`(^|[^:0-9a-fA-F])[0-9a-fA-F]{64}\b`), "${1}<key>"},
	// The middle of a block, whose both ends the text has lost.
	{nil, regexp.MustCompile(`(?m)^[ \t]*[A-Za-z0-9+/]{48,}={0,2}[ \t\r]*$`), "<data>"},
	{[]string{"-data"}, regexp.MustCompile(`(?i)((?:[a-z-]*key|certificate|authority)-data[ =:"]+)[A-Za-z0-9+/=]{16,}`),
		"${1}<hidden>"},
	{[]string{"password", "passwd", "secret", "token"},
		regexp.MustCompile(`(?i)((?:password|passwd|secret|token)[ =:"]+)[^\s"]+`), "${1}<hidden>"},
}

// Patterns hides what secrets look like: bootstrap tokens, certificate keys, passwords, keys and tokens of clouds,
// registries and git, and PEM blocks, also one whose beginning or end the text has lost.
func Patterns(text string) string {
	if begin := strings.Index(text, "-----BEGIN "); begin < 0 || strings.Index(text, "-----END ") < begin {
		text = pemEnd.ReplaceAllString(text, "<$1>")
	}
	text = pemBlock.ReplaceAllString(text, "<$1>")
	lower := strings.ToLower(text)
	for _, shape := range shapes {
		if shape.words == nil && longest(text) >= minLong ||
			slices.ContainsFunc(shape.words, func(word string) bool { return strings.Contains(lower, word) }) {
			text = shape.of.ReplaceAllString(text, shape.with)
		}
	}
	return text
}

// minLong is the least that a shape without words has of letters and digits in a row.
const minLong = 48

// longest is how many letters and digits of base64 the text has in a row.
func longest(text string) int {
	most, now := 0, 0
	for i := range len(text) {
		if c := text[i]; 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/' {
			now++
			most = max(most, now)
		} else {
			now = 0
		}
	}
	return most
}
