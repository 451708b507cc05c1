// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtest

import (
	"os"
	"os/exec"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// What shows that a hung disk is noticed is not left out unawares: without strace it fails where changes are judged.
func TestWithoutStraceNothingIsShown(t *testing.T) {
	const inside = "QUOIN_WITHOUT_STRACE"
	if os.Getenv(inside) != "" {
		programtest.Need(t, "strace")
		return
	}
	for ci, want := range map[string]string{"": "--- SKIP", "true": "--- FAIL"} {
		g := NewWithT(t)
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
		self.Env = []string{inside + "=1", "PATH=" + t.TempDir(), "CI=" + ci}
		output, err := self.CombinedOutput()
		g.Expect(err == nil).To(Equal(ci == ""), "%s", output)
		g.Expect(string(output)).To(ContainSubstring(want))
	}
}
