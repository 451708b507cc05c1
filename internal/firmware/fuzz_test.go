// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// Whatever a board or a BMC calls itself: what tells nothing is no identity however it is written, and what is one
// stays the same in capitals, without hyphens and in the other byte order.
func FuzzIdentity(f *testing.F) {
	for _, text := range append(slices.Clone(placeholders), "4C4C4544-0044-4A10-8054-B4C04F4D3132",
		"33221100554477668899aabbccddeeff", "03000200040005000006000700080009", "To be filled by O.E.M.",
		"0000", "N/A", " CN7016346B00AB", "ſ4ewnx0m", "-", "") {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, text, other string) {
		id := UUID(text)
		if id == "" && (CanonicalUUID(text) != "" || SameUUID(text, other)) {
			t.Fatalf("%q tells nothing and is the same as %q", text, other)
		}
		if SameUUID(text, other) != SameUUID(other, text) || SameSerial(text, other) != SameSerial(other, text) {
			t.Fatalf("%q and %q depend on who asks", text, other)
		}
		if id != "" {
			for _, same := range []string{id, strings.ToUpper(id), strings.ReplaceAll(id, "-", ""), swapped(id),
				" " + text + "\n"} {
				if !SameUUID(text, same) || CanonicalUUID(same) != CanonicalUUID(text) {
					t.Fatalf("%q is not %q", text, same)
				}
			}
			raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
			if again := UUID(id); err != nil || len(raw) != 16 || len(id) != 36 || again != id {
				t.Fatalf("%q became %q, and then %q", text, id, again)
			}
			for _, placeholder := range placeholders {
				if written := strings.ReplaceAll(placeholder, "-", ""); hex.EncodeToString(raw) == written {
					t.Fatalf("%q is on every such board", text)
				}
			}
		}
		serial := Serial(text)
		if Serial(serial) != serial || serial != "" && !SameSerial(text, " "+serial) {
			t.Fatalf("%q became %q", text, serial)
		}
		if slices.Contains(unfilled, strings.ToLower(serial)) {
			t.Fatalf("%q is on every such board", serial)
		}
	})
}
