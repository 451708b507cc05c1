// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package programtest gets tests the programs of other packages that they run.
package programtest

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips a test where a program is not installed; where CI is set it fails, since nothing else shows what the test
// does, and hack/ci/tools.sh installs the program.
func Need(t testing.TB, program string) {
	t.Helper()
	switch _, err := exec.LookPath(program); {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not installed: see hack/ci/tools.sh", program)
	default:
		t.Skipf("%s is not installed", program)
	}
}
