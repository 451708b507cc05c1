// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
)

func unknown() *redact.Redactor { return nil }

func TestATailThatWasCutByBytesLosesItsFirstPiece(t *testing.T) {
	g := NewWithT(t)
	answer := func(lines ...string) string {
		return "now 1\ncomplete\nresult failed a 1\nstep a 0 0 60\njournal 1 b a start\njournal 1 b a failed 1\ntail " +
			strings.Join(lines, "\ntail ") + "\n"
	}
	long := strings.Repeat("word ", tailBytes/5)
	g.Expect(parseStatus(answer("ef.0123456789abcdef "+long, "error: x"), unknown).Tail).To(Equal("error: x"))
	g.Expect(parseStatus(answer("ef.0123456789abcdef "+long), unknown).Tail).To(HavePrefix("word word"))
	g.Expect(parseStatus(answer("short", "error: x"), unknown).Tail).To(Equal("short\nerror: x"))
}
