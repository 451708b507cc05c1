// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a secret is, and whatever a host prints around it: no line of it survives in any form in which programs
// print it, nor does what a cut in the middle of such a form has left of it.
func FuzzRedactor(f *testing.F) {
	for _, secret := range []string{"correct horse", "k7Xp2mQ9vR4tW8zBk7Xp2mQ9vR4tW8zB", "abababab\nbabababa",
		"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIGtv\n-----END EC PRIVATE KEY-----\n", "\xff\x00\u2028\U0001f600~~~~",
		"it's a \"p&ss\" of/40%+chars, grün"} {
		f.Add(secret, "token: ", " is wrong\nmore", 3)
		f.Add(secret, "x", "", 0)
		f.Add(secret, "ab", "c", 9)
		f.Add(secret, "", "", 1)
	}
	f.Fuzz(func(t *testing.T, secret, before, after string, cut int) {
		// What stands in place of a value may be a part of another one.
		if strings.Contains(secret, "<") || len(secret)+len(before)+len(after) > 1<<12 {
			return
		}
		r := New(secret)
		for line := range strings.SplitSeq(secret, "\n") {
			if line = strings.TrimSpace(line); len(line) < Least || structure(line) {
				continue
			}
			for _, form := range printed(line, before, after) {
				text := before + form + after
				if got := r.Values(text); strings.Contains(got, form) || len(got) > len(text)*len(Mark)/Least {
					t.Fatalf("%q of %q in %q", form, line, got)
				}
				if got := r.Text(text); strings.Contains(got, form) {
					t.Fatalf("%q of %q in %q", form, line, got)
				}
				rest := form[min(max(cut, 0), len(form)-1):]
				if got := r.Tail(rest + after); strings.Contains(got, rest) && strings.Count(rest+after, rest) == 1 {
					t.Fatalf("%q of %q in %q", rest, line, got)
				}
			}
		}
	})
}

// printed is a line as programs print it by itself, and the part of it in what they encode with more around it.
func printed(line, before, after string) []string {
	quoted, _ := json.Marshal(line) //nolint:errchkjson // a text
	forms := []string{line, url.QueryEscape(line), url.PathEscape(line), inner(string(quoted)),
		strings.ReplaceAll(line, "'", `'\''`)}
	if utf8.ValidString(line) {
		forms = append(forms, inner(strconv.Quote(line)))
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		whole := encoding.EncodeToString([]byte(before + line + after))
		forms = append(forms, encoding.EncodeToString([]byte(line)),
			whole[(len(before)*8+5)/6:(len(before)+len(line))*8/6])
	}
	return slices.DeleteFunc(forms, func(form string) bool { return len(form) < Least })
}
