// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package tiny

import "testing"

func TestGrown(t *testing.T) {
	if Grown(16) || !Grown(19) {
		t.Fatal("who may vote")
	}
}
