// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestUnmaintained(t *testing.T) {
	g, of := NewWithT(t), policies[DefaultPolicy].Maintained
	g.Expect(of.Minors).To(BeEquivalentTo(3))
	g.Expect(of.Newest).To(BeEquivalentTo(37))
	g.Expect(Unmaintained("v1.34.4")).To(Equal("v1.34 gets no patches any more, which v1.35 and later do (S1-2)"))
	for _, maintained := range []string{"v1.35.0", "v1.37.1", "v1.99.0", "latest", ""} {
		g.Expect(Unmaintained(maintained)).To(BeEmpty(), maintained)
	}
}
