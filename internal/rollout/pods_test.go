// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	. "github.com/onsi/gomega"
)

// A StatefulSet makes a pod anew only when that has ended, others at once.
func TestWhoMakesPodsAnew(t *testing.T) {
	g := NewWithT(t)
	g.Expect(forced([]Pod{{Name: "db-0", Owner: "StatefulSet db"}, {Name: "web", Owner: "StatefulSetter web"}})).To(Equal(
		"deletes db-0 (StatefulSet db makes it anew when it has ended), web (StatefulSetter web makes it anew elsewhere)"))
}
