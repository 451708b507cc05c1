// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestARecordOfARecoveryThatCannotBeReadForbidsIt(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]RecoveryState{"": RecoveryAsked, `{"id":"r0","state":"Complete"}`: RecoveryAsked,
		`{"id":"r1","state":"Begun"}`: RecoveryBegun, "{": RecoveryVoid,
		// A later release of Quoin was in the middle of it.
		`{"id":"r1","state":"Verifying"}`: RecoveryVoid, `{"id":"r1","state":"Begun","since":1}`: RecoveryBegun} {
		g.Expect(ReadRecoveryRecord(text, "r1").State).To(Equal(want), text)
	}
}
