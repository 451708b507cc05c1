// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// What the documentation shows is what people copy.
func TestTheExamplesOfArtifactsAreAdmitted(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../../docs/bundles.md")
	g.Expect(err).NotTo(HaveOccurred())
	templates := 0
	for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
		var kind struct {
			Kind string `json:"kind"`
		}
		g.Expect(yaml.Unmarshal(block[1], &kind)).To(Succeed(), string(block[1]))
		if kind.Kind != "QuoinMachineTemplate" {
			continue
		}
		templates++
		template := &infrav1.QuoinMachineTemplate{}
		g.Expect(yaml.UnmarshalStrict(block[1], template)).To(Succeed(), string(block[1]))
		warnings, err := machineTemplates.ValidateCreate(t.Context(), template)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(warnings).To(BeEmpty())
	}
	g.Expect(templates).To(BeNumerically(">=", 5))
}
