// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
)

const sample = `package x

import "testing"

// Proves: S2-24, K-7
func TestReplacement(t *testing.T) {
	// Proves: R2.
	t.Run("inside", nil)
}

var _ = Describe("hooks [S2-33]", func() {
	ginkgo.It("promotes first [S2-30, C11] and [not a rule]", func() {
		By("waiting")
	})
	Other("no node [S2-1]")
})
`

func TestProofsAreFoundInBothForms(t *testing.T) {
	g := NewWithT(t)
	proofs, err := findProofs(fstest.MapFS{
		"a/b_test.go":            {Data: []byte(sample)},
		"a/b.go":                 {Data: []byte("package x\n\n// Proves: S1-1\nfunc f() {}\n")},
		"hack/tools/x/y_test.go": {Data: []byte("not Go")},
		"a/testdata/story.txt": {Data: []byte("# One goes first: the others\n# wait.\n# Proves: S3-1, S3-2\nrun\n----\n\n" +
			"# Nothing is proved.\nrun\n# Another one.\n# Proves: S3-2\n")},
		"a/testdata/table.yaml": {Data: []byte("# Proves nothing\n- {policy: Kubernetes, row: R1, api: [37]}\n" +
			"- {row: S0-15, from: v1}\n- {rows: R3}\n")},
		"test/former/stored.yaml": {Data: []byte("# Objects of a former commit.\n# Proves: S0-14\nkind: Cluster\n")},
		"a/story.txt":             {Data: []byte("# One.\n# Proves: S3-9\n")},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(proofs).To(Equal(map[string][]proof{
		"S2-24": {{"a/b_test.go", "TestReplacement"}},
		"K-7":   {{"a/b_test.go", "TestReplacement"}},
		"R2":    {{"a/b_test.go", "TestReplacement"}},
		"S2-33": {{"a/b_test.go", "hooks"}},
		"S2-30": {{"a/b_test.go", "promotes first and"}},
		"C11":   {{"a/b_test.go", "promotes first and"}},
		"S3-1":  {{"a/testdata/story.txt", "One goes first"}},
		"S3-2":  {{"a/testdata/story.txt", "One goes first"}, {"a/testdata/story.txt", "Another one"}},
		"R1":    {{"a/testdata/table.yaml", ""}},
		"S0-15": {{"a/testdata/table.yaml", ""}},
		"S0-14": {{"test/former/stored.yaml", "Objects of a former commit"}},
	}))
}

func TestEveryRuleIsNumberedOnce(t *testing.T) {
	g := NewWithT(t)
	sections, err := parseRules(rulesFile)
	g.Expect(err).NotTo(HaveOccurred())
	counts := map[string]int{}
	for _, s := range sections {
		counts[s.title[:2]] += len(s.rules)
	}
	g.Expect(counts).To(Equal(map[string]int{
		"S0": 74, "S1": 27, "S2": 36, "S3": 37, "K ": 11, "C ": 17, "R ": 21,
	}))

	_, err = parseRules("= S0 x\nS0-1 one\nS0-1 again\n")
	g.Expect(err).To(MatchError(ContainSubstring("rules.txt:3")))
}

func TestAProofOfNoRuleIsAnError(t *testing.T) {
	g := NewWithT(t)
	sections := []section{{title: "S0", rules: []rule{{id: "S0-1", statement: "one | two"}}}}
	proofs := map[string][]proof{"S0-2": {{"x_test.go", "TestX"}}}
	g.Expect(known(sections, proofs)).To(MatchError(ContainSubstring(`x_test.go: TestX: there is no rule "S0-2"`)))
}

// Who reviews versions reads no Go: each rule of which versions may meet, and of how an upgrade goes, has a case in data.
func TestRulesOfVersionsHaveACaseInData(t *testing.T) {
	g := NewWithT(t)
	sections, err := parseRules(rulesFile)
	g.Expect(err).NotTo(HaveOccurred())
	proofs, err := findProofs(os.DirFS("../.."))
	g.Expect(err).NotTo(HaveOccurred())
	of := regexp.MustCompile(`^(S0-([1-9]|[12][0-9]|3[016]|4[6-9]|5[0-9])|S1-\d+|R\d+|C([1-59]|14|16|17))$`)
	seen := 0
	for _, section := range sections {
		for _, rule := range section.rules {
			if !of.MatchString(rule.id) || strings.Contains(rule.statement, "not applicable: ") {
				continue
			}
			seen++
			g.Expect(slices.ContainsFunc(proofs[rule.id], func(found proof) bool {
				return !strings.HasSuffix(found.file, "_test.go")
			})).To(BeTrue(), "%s %s", rule.id, rule.statement)
		}
	}
	g.Expect(seen).To(BeNumerically(">", 90))
}

func TestTheTableCountsWhatIsProved(t *testing.T) {
	g := NewWithT(t)
	sections := []section{{title: "S0 first", rules: []rule{{"S0-1", "one | two"}, {"S0-2", "other"},
		{"S0-3", "third -- not applicable: nobody asks"}}}}
	text := string(render(sections, map[string][]proof{"S0-1": {{"x_test.go", "TestX"}}}))
	g.Expect(text).To(ContainSubstring("| S0 first | 3 | 1 |"))
	g.Expect(text).To(ContainSubstring("| S0-1 | one \\| two | `x_test.go: TestX` |"))
	g.Expect(text).To(ContainSubstring("| S0-2 | other | - |"))
	g.Expect(text).To(ContainSubstring("| S0-3 | third | not applicable: nobody asks |"))
}
