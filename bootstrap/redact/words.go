// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"net/url"
	"regexp"
	"strings"
)

// What a command or a file says is for the most part no secret, and an error without the names of programs, paths and
// addresses says nothing. So besides whole lines only those words count that somebody called a secret, or that nobody
// would make up.

var (
	word = regexp.MustCompile("[^\\s\"'`;&|()<>{}\\[\\],\\\\]+")
	// secretName is the name of a flag, a variable or a key whose value is a secret.
	secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|cred|auth|key`)
	piece      = regexp.MustCompile(`[A-Za-z0-9]+`)
	plainPath  = regexp.MustCompile(`^/[A-Za-z0-9_./-]*$`)
	bearer     = regexp.MustCompile(`(?i)^(bearer|basic)$`)
	// assignment is a name of a secret with the quoted value, or the rest of the line of YAML.
	assignment = regexp.MustCompile(`(?i)(?:pass|pwd|secret|token|cred|auth|key)[\w.-]*["']?` +
		`(?:[ \t]*[=: ][ \t]*(?:"([^"]*)"|'([^']*)')|:[ \t]+([^"'|>{\[\s][^\r\n]*))`)
)

// Words are the secrets among the words of a text: those that have a name like "token" or "password", and those that
// look drawn at random.
func Words(text string) []string {
	var found []string
	for line := range strings.SplitSeq(text, "\n") {
		for _, match := range assignment.FindAllStringSubmatch(line, -1) {
			if value := strings.TrimSpace(match[1] + match[2] + match[3]); !plainPath.MatchString(value) {
				found = append(found, value)
			}
		}
		named := false
		for _, w := range word.FindAllString(line, -1) {
			if bearer.MatchString(w) {
				named = true
				continue
			}
			if strings.Contains(w, "://") {
				found, named = append(found, ofURL(w)...), false
				continue
			}
			name, value := nameAndValue(w)
			isSecret := named && name == "" || name != "" && secretName.MatchString(name)
			found = append(found, ofValue(value, isSecret)...)
			if named = isSecret && value == "" || name == "" && strings.HasPrefix(w, "-") && secretName.MatchString(w); named {
				continue
			}
			if name != "" && !isSecret {
				// What looks like a name may be the beginning of a password.
				found = append(found, ofValue(w, false)...)
			}
		}
	}
	return found
}

// nameAndValue takes --name=value, NAME=value and name:value apart.
func nameAndValue(w string) (name, value string) {
	if i := strings.IndexAny(w, "=:"); i > 0 {
		return w[:i], w[i+1:]
	}
	return "", w
}

// ofValue are the secrets in one word: the whole, where it is called one or looks random, and its random parts, which
// may be printed by themselves.
func ofValue(value string, named bool) []string {
	var found []string
	for _, p := range piece.FindAllString(value, -1) {
		if random(p) || named && len(p) >= Least && !plainPath.MatchString(value) {
			found = append(found, p)
		}
	}
	if len(found) > 0 || named && !plainPath.MatchString(value) || strings.ContainsAny(value, "!#^*?~%") {
		found = append(found, value)
	}
	return found
}

// ofURL are the password of a URL and its random parts, never its host and its path.
func ofURL(text string) []string {
	var found []string
	if u, err := url.Parse(text); err == nil && u.User != nil {
		if password, set := u.User.Password(); set {
			found = append(found, password)
		}
	}
	if _, rest, _ := strings.Cut(text, "://"); strings.Contains(rest, "@") {
		user := rest[:strings.LastIndexByte(rest, '@')]
		if _, password, set := strings.Cut(user, ":"); set {
			found = append(found, password)
		}
	}
	for _, p := range piece.FindAllString(text, -1) {
		if random(p) {
			found = append(found, p)
		}
	}
	return found
}

// random says that nobody would write such a word: it goes back and forth between letters and digits, or between large
// and small ones, or it is longer than words are.
func random(word string) bool {
	if len(word) < Least {
		return false
	}
	var digits, turns, cases int
	for i := range len(word) {
		if isDigit(word[i]) {
			digits++
		}
		if i == 0 {
			continue
		}
		switch a, b := word[i-1], word[i]; {
		case isDigit(a) != isDigit(b):
			turns++
		case !isDigit(a) && isUpper(a) != isUpper(b):
			cases++
		}
	}
	const long, longest = 20, 24
	return turns > 2 || cases*3 >= len(word) || turns > 0 && turns+cases > 5 || len(word) >= longest && cases > 5 ||
		len(word) >= long && digits+cases == 0 || digits >= long
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
