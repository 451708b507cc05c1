// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"testing"

	. "github.com/onsi/gomega"
)

// A host that does not let go of a command writes on when nobody waits for it any more.
func TestNothingIsKeptOfACommandThatWasGivenUp(t *testing.T) {
	g, taken := NewWithT(t), 0
	b := &headBuffer{limit: MaxStdout, take: func() error { taken++; return nil }, give: func() { taken-- }}
	for range 3 {
		_, _ = b.Write(make([]byte, OutputPiece))
	}
	g.Expect(taken).To(Equal(2), "the first piece is its own")
	b.release()
	g.Expect(b.Write(make([]byte, OutputPiece+1))).To(Equal(OutputPiece + 1))
	g.Expect(taken).To(BeZero())
	g.Expect(b.String()).To(BeEmpty())
}
