// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// What no test notices is printed by its line, what is listed is not, and an entry that fits nothing is printed as
// well. An entry is about one of several that read the same. What runs out of time fails like a survivor, unless it is
// listed.
func TestSurvivorsAreToldUnlessListed(t *testing.T) {
	g := NewWithT(t)
	list := filepath.Join(t.TempDir(), "equivalents.txt")
	printed := func(listed string) (int, string) {
		g.Expect(os.WriteFile(list, []byte(listed), 0o600)).To(Succeed())
		var out bytes.Buffer
		bad, err := run(t.Context(), options{shard: "1/1", equivalents: list, checks: 1, timeout: 10 * time.Second},
			[]string{"testdata/tiny"}, &out)
		g.Expect(err).NotTo(HaveOccurred())
		return bad, regexp.MustCompile(`[\d.]+ minutes`).ReplaceAllString(out.String(), "x minutes")
	}
	bad, out := printed("")
	g.Expect(out).To(Equal(`testdata/tiny/tiny.go:10: survives: Grown: return age > 18
testdata/tiny/tiny.go:10: survives: Grown: return age >= 19
testdata/tiny/tiny.go:10: survives: Grown: return age >= 17
testdata/tiny/tiny.go:13: not covered: idle: func idle() string { return *new(string) }
testdata/tiny/tiny.go:18: ran out of time: Least: - n--
testdata/tiny/tiny.go:25: survives: Later: - n++
testdata/tiny/tiny.go:26: survives: Later: - n++ [2]
13 mutants, 6 killed, 1 ran out of time, 0 equivalent, 7 to mend, 0 did not compile, x minutes
`))
	g.Expect(bad).To(Equal(7))
	_, out = printed("testdata/tiny/tiny.go Grown: return age > 18  # nobody asks at eighteen\n" +
		"testdata/tiny/tiny.go Later: - n++  # sooner\n" +
		"testdata/tiny/tiny.go Least: - n--  # for ever\n" +
		"testdata/tiny/tiny.go Grown: return age > 81  # nobody is so old\n")
	g.Expect(out).NotTo(ContainSubstring("return age > 18"))
	g.Expect(out).To(ContainSubstring("Later: - n++ [2]"))
	g.Expect(out).To(ContainSubstring("stale: testdata/tiny/tiny.go Grown: return age > 81"))
	g.Expect(out).NotTo(ContainSubstring("Least: - n--"))
	g.Expect(out).To(ContainSubstring("0 ran out of time, 3 equivalent, 5 to mend"))
}

// What a case asks is run also where its body is not.
func TestWhatACaseAsksIsCovered(t *testing.T) {
	g, s := NewWithT(t), &suite{}
	for text, covered := range map[string]bool{"case a || b:": true, "- case a:": true, "a = b": false, "- a()": false} {
		g.Expect(s.covered(&mutant{function: "f", text: text})).To(Equal(covered), text)
	}
}

// Quick tests come first, and those that take too long are left out, unless none is too long.
func TestTestsThatTakeTooLongAreLeftOut(t *testing.T) {
	g := NewWithT(t)
	const output = "--- PASS: TestSlow (5.00s)\n--- PASS: TestQuick (0.19s)\n    --- PASS: TestQuick/part (0.01s)\n" +
		"--- SKIP: TestSkipped (0.00s)\n--- PASS: TestReal (5.01s)\n"
	s := &suite{o: options{longest: 5 * time.Second}}
	s.order(output)
	g.Expect(s.stages).To(Equal([]string{"^(TestQuick)$", "^(TestSlow)$"}))
	g.Expect(s.left).To(Equal([]string{"TestReal"}))
	s = &suite{}
	s.order(output)
	g.Expect(s.stages).To(Equal([]string{"^(TestQuick)$", "^(TestSlow|TestReal)$"}))
	g.Expect(s.left).To(BeEmpty())
}

// A file is named where the tests of what is beside it are too slow; one that is none is no success.
func TestAFileMayBeNamedInsteadOfItsPackage(t *testing.T) {
	g := NewWithT(t)
	files, err := sources(t.Context(), "./testdata/tiny/tiny.go", options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(Equal([]string{"testdata/tiny/tiny.go"}))
	for _, absent := range []string{"testdata/tiny/huge.go", "testdata/huge"} {
		_, err = sources(t.Context(), absent, options{})
		g.Expect(err).To(MatchError(ContainSubstring("there is no source testdata/")), absent)
	}
}

// cutter cancels a run when it tells the first survivor.
type cutter struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (c *cutter) Write(output []byte) (int, error) {
	c.cancel()
	return c.Buffer.Write(output)
}

// A run that is cut short tells its totals so far, and leaves nothing behind.
func TestRunThatIsCutShort(t *testing.T) {
	g := NewWithT(t)
	list, scratch := filepath.Join(t.TempDir(), "equivalents.txt"), t.TempDir()
	g.Expect(os.WriteFile(list, nil, 0o600)).To(Succeed())
	t.Setenv("TMPDIR", scratch)
	ctx, cancel := context.WithCancel(t.Context())
	out := &cutter{cancel: cancel}
	bad, err := run(ctx, options{shard: "1/1", equivalents: list, checks: 1, timeout: time.Minute},
		[]string{"testdata/tiny"}, out)
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(bad).To(Equal(1))
	g.Expect(out.String()).To(MatchRegexp(`(?s)^[^\n]* survives: [^\n]*\n[12] mutants, .* 1 to mend, `))
	left, err := os.ReadDir(scratch)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}
