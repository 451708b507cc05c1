// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

var block = regexp.MustCompile("(?s)\n```(\\w*)\n(.*?\n)```")

// What the documentation shows is what happens: its example is the upgrade of testdata/scripts/hops.txt.
func TestTheDocumentedUpgradeHappens(t *testing.T) {
	g := NewWithT(t)
	docs, err := os.ReadFile("../../docs/upgrades.md")
	g.Expect(err).NotTo(HaveOccurred())
	happens, err := os.ReadFile("testdata/scripts/hops.txt")
	g.Expect(err).NotTo(HaveOccurred())
	without := func(text string) string { return regexp.MustCompile(`(?m)^ +`).ReplaceAllString(text, "") }
	shown := 0
	for _, found := range block.FindAllStringSubmatch(string(docs), -1) {
		switch found[1] {
		case "":
			g.Expect(without(string(happens))).To(ContainSubstring(without(found[2])))
			shown++
		case "yaml":
			example := &quoinv1.ClusterUpgrade{}
			g.Expect(yaml.UnmarshalStrict([]byte(found[2]), example)).To(Succeed())
			g.Expect(strings.Join(example.Spec.Via, "")).To(Equal("v1.35.4"))
			shown++
		}
	}
	g.Expect(shown).To(Equal(3))
}
