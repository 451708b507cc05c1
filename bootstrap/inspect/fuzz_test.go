// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{answer, "", "end ok\n", "disk a 9223372036854775807 0 x\nend ok\n",
		"memory.kib 9223372036854775807\nend ok", "address a ::1/129\nend ok",
		"clock 1.2\nclock.end -9223372036854775808.9\nend ok\n",
		"disk a 1 0 a\ndisk.volume a NAME=\"x\\\"\" TYPE=\"part\"\nend ok\n", "owner {}\nlink a b c d\nend ok\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		facts, err := inspect.Parse(text)
		if (facts == nil) == (err == nil) {
			t.Fatal("either facts or an error")
		}
		if err != nil {
			return
		}
		for _, disk := range facts.Disks {
			if disk.SizeBytes <= 0 || disk.ID == "" || disk.Name == "" {
				t.Fatalf("disk %+v", disk)
			}
		}
		if text := fmt.Sprintf("%+v", facts); !utf8.ValidString(text) {
			t.Fatalf("%q can be written to no status", text)
		}
		if facts.MemoryBytes < 0 {
			t.Fatalf("%d bytes of memory", facts.MemoryBytes)
		}
	})
}
