// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

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

func TestWhatAPageShowsIsHeldAgainstWhatWasPrinted(t *testing.T) {
	printed := "12:00:01 make the bootstrap cluster\nnoise\n12:00:09 pivot\n23 objects move\nprod-abcde  True  3m4s\n"
	for _, row := range []struct{ name, shown, unprinted string }{
		{"all of it, at another time", "09:11:12 make the bootstrap cluster\nnoise\n09:11:13 pivot\n24 objects move\nprod-xy12z True 9s", ""},
		{"lines in between that the page leaves out", "09:11:12 make the bootstrap cluster\n...\n24 objects move", ""},
		{"it begins in the middle", "09:11:12 pivot\n...", ""},
		{"a line in between that it does not leave out", "09:11:12 make the bootstrap cluster\n09:11:13 pivot", "09:11:13 pivot"},
		{"another word", "...\n23 things move", "23 things move"},
		{"another order", "23 objects move\n...\n09:11:13 pivot", "09:11:13 pivot"},
		{"more than was printed", "...\nprod-xy12z  True  9s\ndone", "done"},
	} {
		t.Run(row.name, func(t *testing.T) {
			NewWithT(t).Expect(Unprinted(row.shown, printed)).To(Equal(row.unprinted))
		})
	}
}
