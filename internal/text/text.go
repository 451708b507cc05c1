// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text brings words for people into the sizes that the API takes.
package text

import "strings"

const more = "..."

// Shorten returns at most that many bytes of the text, and says at the end that there was more. It cuts no character
// in two.
func Shorten(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:max(bytes-len(more), 0)], "") + more[:min(bytes, len(more))]
}
