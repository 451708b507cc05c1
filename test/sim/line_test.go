// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/sshd"
)

// TestALineMayBreakAtAnyByte breaks connections after ever more bytes: in the greeting, the handshake, a script, the plan
// on its way, an answer. Whether they are cut or fall silent, the host becomes a node, and nothing runs twice.
func TestALineMayBreakAtAnyByte(t *testing.T) {
	fleet := newFleet(t, kube.Options{}, nil)
	number := 0
	for bytes := int64(20); bytes < 120_000; bytes += 20 + bytes*2/3 {
		for way, line := range map[string]sshd.Line{
			"cut":    {DropAfter: bytes, Times: 3},
			"silent": {HangAfter: bytes, Times: 1},
		} {
			number++
			name := fmt.Sprintf("b%d", number)
			t.Run(fmt.Sprintf("%s after %d bytes", way, bytes), func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				l := newLab(t, fleet, name)
				w := watch(l.host)
				l.untilState(infrav1.HostStateAvailable)
				l.host.Server.SetLine(line)
				l.host.Server.Cut()
				l.addMachine()
				g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
				g.Expect(w.ranTwice()).To(BeEmpty())
				g.Expect(l.joins()).To(Equal(1))
			})
		}
	}
}
