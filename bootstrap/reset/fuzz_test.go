// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzFindings(f *testing.F) {
	for _, answer := range []string{"end\n", "", "found a\tb\nend\n", "found \nend", "found \xff\t\xfe\nend\n",
		"trace a\tb\nend 4WORD\ntraced a\n",
		strings.Repeat("found x\ty\n", 200) + "end\n", "found " + strings.Repeat("x", 3000) + "\nend\n"} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		if _, err := parse(answer, "end 4WORD", Options{}); err == nil && !strings.HasSuffix(answer, "end 4WORD\n") {
			t.Fatal("an answer that was cut off passes")
		}
		verified, err := parse(answer, "end", Options{})
		if err != nil {
			return
		}
		findings := verified.Findings
		if len(findings) > maxFindings {
			t.Fatalf("%d findings", len(findings))
		}
		for _, finding := range findings {
			if len(finding.What) > maxFinding || len(finding.Fix) > maxFinding || !utf8.ValidString(finding.String()) {
				t.Fatalf("%q", finding)
			}
		}
		if strings.HasPrefix(answer, "found ") && len(findings) == 0 {
			t.Fatal("a finding was lost")
		}
	})
}
