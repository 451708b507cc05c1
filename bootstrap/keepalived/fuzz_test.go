// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"testing"
	"unicode/utf8"
)

func FuzzProbeAnswer(f *testing.F) {
	for _, answer := range []string{"", "\n", "something answers at https://10.0.0.100:6443/livez\n", "a\nb", "\xff"} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		if text := sentence(answer); len(text) > maxAnswer || !utf8.ValidString(text) {
			t.Fatalf("%q", text)
		}
	})
}
