// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text brings words for people into the shapes and sizes that the API takes.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const more = "..."

// Shorten returns at most that many bytes of the text, and says at the end that there was more. It cuts no character
// in two, and puts a question mark for what is no character: a text may hold what a server sent.
func Shorten(text string, bytes int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:max(bytes-len(more), 0)], "") + more[:min(bytes, len(more))]
}

// Sentence begins the text with a capital, so that it stands alone.
func Sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
