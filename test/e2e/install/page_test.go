// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const root = "../../.."

// page is docs/install.md.
func page(t *testing.T) []Block {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// TestNoCommandOfThePageEscapesItsTest refuses a block that looks like commands and would not be run.
func TestNoCommandOfThePageEscapesItsTest(t *testing.T) {
	g := NewWithT(t)
	commands := regexp.MustCompile(`(?m)^\$? *(sudo|make|kubectl|clusterctl|kind|ssh|docker|ctr|hack/|go|cp|export) `)
	run := 0
	for _, block := range page(t) {
		switch block.Language {
		case "sh":
			run++
			syntax := exec.Command("bash", "-n", "-c", block.Text)
			out, err := syntax.CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred(), "line %d: %s", block.Line, out)
		case "ini", "yaml", "":
			g.Expect(block.Text).NotTo(MatchRegexp(commands.String()), "line %d: commands are in blocks of sh", block.Line)
		default:
			t.Errorf("line %d: blocks are sh, which is run, or ini, yaml or nothing, which are shown; not %q", block.Line, block.Language)
		}
	}
	g.Expect(run).To(BeNumerically(">", 10))
}

// TestThePageNamesTargetsThatThereAre looks for each target in the Makefile, also those in the text.
func TestThePageNamesTargetsThatThereAre(t *testing.T) {
	g := NewWithT(t)
	makefile, err := os.ReadFile(root + "/Makefile")
	g.Expect(err).NotTo(HaveOccurred())
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[match[1]] = true
	}
	for _, name := range []string{"docs/install.md", "README.md"} {
		text, err := os.ReadFile(root + "/" + name)
		g.Expect(err).NotTo(HaveOccurred())
		for _, match := range regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9-]+)").FindAllStringSubmatch(string(text), -1) {
			g.Expect(targets).To(HaveKey(match[1]), name)
		}
	}
}

func TestBlocksAreReadInOrder(t *testing.T) {
	g := NewWithT(t)
	blocks, err := Blocks("# One\ntext\n```sh\na\n\nb\n```\n## Two ##\n```\n# no heading\n```\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(blocks).To(Equal([]Block{
		{Heading: "One", Language: "sh", Text: "a\n\nb\n", Line: 3},
		{Heading: "Two ##", Language: "", Text: "# no heading\n", Line: 9},
	}))
	for _, broken := range []string{"```sh\na\n", "```sh\n```yaml\n```\n"} {
		_, err := Blocks(broken)
		g.Expect(err).To(HaveOccurred(), strings.ReplaceAll(broken, "\n", "|"))
	}
}
