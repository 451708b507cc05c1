// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	. "github.com/onsi/gomega"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/docstest"
)

// What the documentation shows is what happens: its example is the rollout of testdata/scripts/documented.txt.
func TestTheDocumentedRolloutHappens(t *testing.T) {
	g, example := NewWithT(t), &quoinv1.RolloutPolicy{}
	g.Expect(docstest.Happens(t, "../../docs/rollouts.md", "testdata/scripts/documented.txt", example)).To(Equal(2))
	g.Expect(example.Spec.PauseAfter).To(Equal(quoinv1.RolloutPauseCanary))
}
