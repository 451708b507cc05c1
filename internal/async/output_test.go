// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

// keep takes room for so many pieces, and returns how many there was room for.
func keep(o *async.Output, namespace string, pieces int) (kept int, err error) {
	for kept < pieces {
		if err := o.Take(namespace); err != nil {
			return kept, err
		}
		kept++
	}
	return kept, nil
}

// 600 hosts of one tenant that print as much as is kept of a command, and 50 of another tenant.
func TestHostsOfOneNamespaceThatPrintMuchLeaveRoomForThoseOfOthers(t *testing.T) {
	g, o := NewWithT(t), async.NewOutput(256)
	const whole = ssh.MaxStdout/ssh.OutputPiece - 1 // the first piece is the command's own
	kept, err := keep(o, "tarpits", 600*whole)
	g.Expect(kept).To(Equal(3276), "four fifths of 256 MiB")
	g.Expect(err).To(MatchError(And(ContainSubstring("namespace tarpits"), ContainSubstring("256 MiB"),
		ContainSubstring("--host-output-mib"))))
	for range 50 {
		// An inspection prints a tenth of a MiB.
		kept, err := keep(o, "good", 2)
		g.Expect(kept).To(Equal(2))
		g.Expect(err).NotTo(HaveOccurred())
	}
	for number := range 8 {
		_, err := keep(o, fmt.Sprint(number), whole)
		g.Expect(err).NotTo(HaveOccurred())
	}
	// What was given back is had again, by whoever asks.
	for range 3276 {
		o.Give("tarpits")
	}
	_, err = keep(o, "good", 20*whole)
	g.Expect(err).NotTo(HaveOccurred())
}

// With the least that is legal, a whole output has room where nobody else prints.
func TestTheLeastRoomHoldsOneOutput(t *testing.T) {
	_, err := keep(async.NewOutput(async.LeastOutput), "alone", ssh.MaxStdout/ssh.OutputPiece-1)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}
