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

// A record that does not say with what it began may be of any data; one that has not begun is of none.
func TestARecoveryHoldsTheDataThatItBeganWith(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]bool{
		`{"id":"r1","state":"Begun"}`:                                 true,
		`{"id":"r1","state":"Begun","machine":"m","snapshot":"s"}`:    true,
		`{"id":"r1","state":"Begun","machine":"m"}`:                   false,
		`{"id":"r1","state":"Begun","machine":"n","snapshot":"s"}`:    false,
		`{"id":"r1","state":"Begun","machine":"m","snapshot":"t"}`:    false,
		`{"id":"r1","state":"Fetching"}`:                              false,
		`{"id":"r1","state":"Complete","machine":"m","snapshot":"s"}`: false,
		"{": false, "": false,
	} {
		g.Expect(ReadRecoveryRecord(text, "r1").Holds("m", "s")).To(Equal(want), text)
	}
}
