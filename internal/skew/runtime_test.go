// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: R19
func TestARuntimeWhoseTimeIsOver(t *testing.T) {
	for _, c := range []struct {
		runtime, kubelet string
		ended            bool
	}{
		{"containerd://1.7.24", "v1.36.3", true},
		{"containerd://1.6.20~ds1", "v1.37.0", true},
		{"containerd://1.7.24", "v1.35.9", false},
		{"containerd://2.2.9", "v1.36.3", false},
		{"cri-o://1.36.0", "v1.36.3", false},
		{"containerd://", "v1.36.3", false},
		{"", "v1.36.3", false},
		{"containerd://1.7.24", "", false},
	} {
		t.Run(c.runtime+" and "+c.kubelet, func(t *testing.T) {
			g := NewWithT(t)
			if c.ended {
				g.Expect(RuntimeEnded(c.runtime, c.kubelet)).
					To(Equal("with containerd 1.x, which Kubernetes supports up to v1.35 (R19)"))
			} else {
				g.Expect(RuntimeEnded(c.runtime, c.kubelet)).To(BeEmpty())
			}
		})
	}
}
