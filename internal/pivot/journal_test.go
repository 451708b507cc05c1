// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

// A journal is written as a whole, so what this release does not know would be lost, and an unknown phase would count as
// the earliest.
func TestAPivotOfALaterReleaseIsNotGoneOnWith(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"id":"p","phase":"Copying"}`:             false,
		`{"id":"p","phase":"Copying","waves":[1]}`: true,
		`{"id":"p","phase":"Verifying"}`:           true,
		`{"id":"p","phase":"Done","waves":[1]}`:    false,
	} {
		g := NewWithT(t)
		err := json.Unmarshal([]byte(text), &Journal{})
		if !refused {
			g.Expect(err).NotTo(HaveOccurred(), text)
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring("go on with that one")), text)
	}
}
