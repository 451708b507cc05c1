// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// What no test notices is told by its line, what is listed is not, and an entry that fits nothing is told as well.
func TestSurvivorsAreToldUnlessListed(t *testing.T) {
	g := NewWithT(t)
	list := filepath.Join(t.TempDir(), "equivalents.txt")
	told := func(listed string) (int, string) {
		g.Expect(os.WriteFile(list, []byte(listed), 0o600)).To(Succeed())
		var out bytes.Buffer
		bad, err := run(t.Context(), options{shard: "1/1", equivalents: list, checks: 1, timeout: time.Minute},
			[]string{"testdata/tiny"}, &out)
		g.Expect(err).NotTo(HaveOccurred())
		return bad, regexp.MustCompile(`[\d.]+ minutes`).ReplaceAllString(out.String(), "x minutes")
	}
	bad, out := told("")
	g.Expect(out).To(Equal(`testdata/tiny/tiny.go:9: survives: Grown: return age > 18
testdata/tiny/tiny.go:9: survives: Grown: return age >= 19
testdata/tiny/tiny.go:9: survives: Grown: return age >= 17
testdata/tiny/tiny.go:12: not covered: idle: func idle() string { return *new(string) }
5 mutants, 1 killed, 0 equivalent, 4 to mend, 0 did not compile, x minutes
`))
	g.Expect(bad).To(Equal(4))
	_, out = told("testdata/tiny/tiny.go Grown: return age > 18  # nobody asks at eighteen\n" +
		"testdata/tiny/tiny.go Grown: return age > 81  # nobody is so old\n")
	g.Expect(out).NotTo(ContainSubstring("return age > 18"))
	g.Expect(out).To(ContainSubstring("stale: testdata/tiny/tiny.go Grown: return age > 81"))
	g.Expect(out).To(ContainSubstring("1 killed, 1 equivalent, 4 to mend"))
}
