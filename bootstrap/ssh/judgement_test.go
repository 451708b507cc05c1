// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// A name may have an address that is allowed and one that is not: the silence of the former is the host's.
func TestAnAddressThatIsRefusedBesideAnAllowedOneHidesNoSilence(t *testing.T) {
	g := NewWithT(t)
	no := errors.New("it is in none of the allowed networks")
	j := &judgement{of: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if address == "[2001:db8::1]:22" {
			return no
		}
		return nil
	}}
	g.Expect(j.all()).To(Succeed(), "none was asked about: the name leads nowhere")
	g.Expect(j.control(t.Context(), "tcp6", "[2001:db8::1]:22", nil)).To(MatchError(no))
	g.Expect(j.all()).To(MatchError(no))
	g.Expect(j.control(t.Context(), "tcp4", "192.0.2.1:22", nil)).To(Succeed())
	g.Expect(j.all()).To(Succeed())
}
