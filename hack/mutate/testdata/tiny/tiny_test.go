// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package tiny

import "testing"

func TestGrown(t *testing.T) {
	if Grown(16) || !Grown(19) {
		t.Fatal("who may vote")
	}
	if Least(3) != 1 || Later(1) < 2 {
		t.Fatal("how it counts")
	}
}
