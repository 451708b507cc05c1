// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestControlPlaneStep(t *testing.T) {
	for _, step := range []struct {
		from, to string
		refusal  string // "" is allowed
	}{
		{"v1.35.4", "v1.35.4", ""},
		{"v1.35.0", "v1.35.4", ""},
		{"v1.35.4", "v1.36.0", ""},
		{"v1.35.4", "v1.36.3", ""},
		{"v1.35.4", "v1.37.0", "skip a minor version: go from v1.35.4 to v1.36 first"},
		{"v1.35.4", "v1.35.3", "cannot go back"},
		{"v1.36.0", "v1.35.4", "cannot go back"},
		{"v1.36.0", "v1.36.0-rc.1", "cannot go back"},
		{"v1.36.0-rc.1", "v1.36.0", ""},
		{"v1.36.3", "v2.0.0", "another major version"},
		{"v1.36.3", "latest", "not a Kubernetes version"},
		{"1.36", "v1.36.3", "not a Kubernetes version"},
	} {
		t.Run(step.from+" to "+step.to, func(t *testing.T) {
			g := NewWithT(t)
			err := ControlPlaneStep(step.from, step.to)
			if step.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(step.refusal)))
			}
		})
	}
}
