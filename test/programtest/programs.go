// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package programtest gets tests the programs of other packages that they run.
package programtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Need skips a test where a program is not installed; where CI is set it fails, since nothing else shows what the test
// does, and hack/ci/tools.sh installs the program. For the test it is in the PATH, also where that lacks root's
// programs.
func Need(t testing.TB, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if _, missing := exec.LookPath(filepath.Join(dir, program)); err != nil && missing == nil {
			t.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+dir)
			err = nil
		}
	}
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not installed: see hack/ci/tools.sh", program)
	default:
		t.Skipf("%s is not installed", program)
	}
}
