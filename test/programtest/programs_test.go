// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"os/exec"
	"testing"

	. "github.com/onsi/gomega"
)

// witness keeps what a test is told.
type witness struct {
	testing.TB

	failed, skipped bool
}

func (*witness) Helper()                 {}
func (w *witness) Fatalf(string, ...any) { w.failed = true }
func (w *witness) Skipf(string, ...any)  { w.skipped = true }

// What is in a directory of root's programs is found where the PATH has none of those, and run from there.
func TestAProgramOfRootIsFound(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("CI", "true")
	t.Setenv("PATH", t.TempDir())
	g.Expect(exec.Command("chroot", "--help").Run()).NotTo(Succeed())
	t.Run("needs it", func(t *testing.T) {
		Need(t, "chroot")
		NewWithT(t).Expect(exec.Command("chroot", "--help").Run()).To(Succeed())
	})
	g.Expect(exec.Command("chroot", "--help").Run()).NotTo(Succeed(), "the PATH of others stays as it is")
}

func TestNeed(t *testing.T) {
	for name, test := range map[string]struct {
		program, ci     string
		failed, skipped bool
	}{
		"there":           {program: "sh", ci: "true"},
		"not there":       {program: "no-such-program", skipped: true},
		"not there in CI": {program: "no-such-program", ci: "true", failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CI", test.ci)
			w := &witness{TB: t}
			Need(w, test.program)
			NewWithT(t).Expect(w.failed).To(Equal(test.failed))
			NewWithT(t).Expect(w.skipped).To(Equal(test.skipped))
		})
	}
}
