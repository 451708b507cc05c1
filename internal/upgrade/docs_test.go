// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/docstest"
)

// What the documentation shows is what happens: its example is the upgrade of testdata/scripts/hops.txt.
func TestTheDocumentedUpgradeHappens(t *testing.T) {
	g, example := NewWithT(t), &quoinv1.ClusterUpgrade{}
	g.Expect(docstest.Happens(t, "../../docs/upgrades.md", "testdata/scripts/hops.txt", example)).To(Equal(4))
	g.Expect(example.Spec.Via).To(Equal([]string{"v1.35.4"}))
}
