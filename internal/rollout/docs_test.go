// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

var block = regexp.MustCompile("(?s)\n```(\\w*)\n(.*?\n)```")

// What the documentation shows is what happens: its example is the rollout of testdata/scripts/documented.txt.
func TestTheDocumentedRolloutHappens(t *testing.T) {
	g := NewWithT(t)
	docs, err := os.ReadFile("../../docs/rollouts.md")
	g.Expect(err).NotTo(HaveOccurred())
	happens, err := os.ReadFile("testdata/scripts/documented.txt")
	g.Expect(err).NotTo(HaveOccurred())
	shown := 0
	for _, found := range block.FindAllStringSubmatch(string(docs), -1) {
		switch found[1] {
		case "":
			g.Expect(string(happens)).To(ContainSubstring(found[2]))
			shown++
		case "yaml":
			example := &quoinv1.RolloutPolicy{}
			g.Expect(yaml.UnmarshalStrict([]byte(found[2]), example)).To(Succeed())
			g.Expect(example.Spec.PauseAfter).To(Equal(quoinv1.RolloutPauseCanary))
			shown++
		}
	}
	g.Expect(shown).To(Equal(2))
}
