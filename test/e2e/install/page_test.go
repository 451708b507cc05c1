// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install runs docs/install.md: every command of it, as it is written, in order.
package install

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/page"
)

const root = "../../.."

// read are the blocks of a page.
func read(t *testing.T, name string) []page.Block {
	t.Helper()
	blocks, err := page.Read(root + "/docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// TestNoCommandOfThePagesEscapesItsTest refuses a block that looks like commands and would not be run.
func TestNoCommandOfThePagesEscapesItsTest(t *testing.T) {
	for _, name := range []string{"install.md", "self-managed.md"} {
		t.Run(name, func(t *testing.T) { expectRun(t, read(t, name)) })
	}
}

func expectRun(t *testing.T, blocks []page.Block) {
	t.Helper()
	g := NewWithT(t)
	commands := regexp.MustCompile(`(?m)^\$? *(sudo|make|kubectl|clusterctl|kind|ssh|docker|ctr|hack/|go|cp|export) `)
	run := 0
	for _, block := range blocks {
		switch block.Language {
		case "sh":
			run++
			syntax := exec.Command("bash", "-n", "-c", block.Text)
			out, err := syntax.CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred(), "line %d: %s", block.Line, out)
		case "ini", "yaml", "text", "":
			g.Expect(block.Text).NotTo(MatchRegexp(commands.String()), "line %d: commands are in blocks of sh", block.Line)
		default:
			t.Errorf("line %d: blocks are sh, which is run, or ini, yaml, text or nothing, which are shown; not %q", block.Line, block.Language)
		}
	}
	g.Expect(run).To(BeNumerically(">", 8))
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
	for _, name := range []string{"docs/install.md", "docs/self-managed.md", "README.md"} {
		text, err := os.ReadFile(root + "/" + name)
		g.Expect(err).NotTo(HaveOccurred())
		for _, match := range regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9-]+)").FindAllStringSubmatch(string(text), -1) {
			g.Expect(targets).To(HaveKey(match[1]), name)
		}
	}
}
