// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"strings"
	"testing"
)

// A host says what it likes. What is cut off is an error, and nothing passes for another answer.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{"end\n", "", "refused 10.0.0.1 6443\nsilent a 65536\nend\n",
		"lacks timeout\nnoroute ::1\nend",
		"unresolved \xff\nend\n", "silent a -1\nend\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		answer := &Answer{}
		if err := answer.read(text); err != nil {
			return
		}
		found := len(answer.Lacks) + len(answer.Unresolved) + len(answer.NoRoute) + len(answer.Refused) + len(answer.Silent)
		if lines := strings.Count(text, "\n") + 1; found >= lines {
			t.Fatalf("%d findings in %d lines, of which one is the end", found, lines)
		}
	})
}
