// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: C17
func TestJoiningKubeadm(t *testing.T) {
	for name, c := range map[string]struct {
		node         string
		controlPlane []string
		want         string
	}{
		"a minor older":            {"v1.35.4", []string{"v1.36.3"}, "v1.36.3"},
		"three minors older":       {"v1.33.9", []string{"v1.36.3"}, "v1.36.3"},
		"a patch older":            {"v1.36.1", []string{"v1.36.3"}, "v1.36.1"},
		"the same":                 {"v1.36.3", []string{"v1.36.3"}, "v1.36.3"},
		"newer":                    {"v1.36.3", []string{"v1.35.4"}, "v1.36.3"},
		"during an upgrade":        {"v1.35.4", []string{"v1.36.3", "v1.35.4"}, "v1.35.4"},
		"two minors, during one":   {"v1.34.1", []string{"v1.36.3", "v1.35.4"}, "v1.35.4"},
		"nothing known":            {"v1.35.4", nil, "v1.35.4"},
		"nothing that can be read": {"v1.35.4", []string{"", "latest"}, "v1.35.4"},
		"a node that cannot":       {"latest", []string{"v1.36.3"}, "latest"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(JoiningKubeadm(c.node, c.controlPlane...)).To(Equal(c.want))
		})
	}
}
