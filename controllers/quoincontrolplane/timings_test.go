// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// What is counted begins anew after a gap, so one observation at least may be missed, whether reconciles succeed or
// not.
func TestNoPaceIsSlowerThanWhatIsCounted(t *testing.T) {
	g := NewWithT(t)
	for pace, after := range DefaultTimings().Recheck {
		g.Expect(2*after).To(BeNumerically("<", history.LongestGap), string(pace))
	}
	limiter := retries()
	for range 100 {
		g.Expect(2 * limiter.When(request())).To(BeNumerically("<", history.LongestGap))
	}
}

// A pace without a time would never look again.
func TestEveryPaceHasATime(t *testing.T) {
	g := NewWithT(t)
	for _, pace := range []controlplane.Recheck{controlplane.RecheckSoon, controlplane.RecheckStep,
		controlplane.RecheckDrain,
		controlplane.RecheckMember, controlplane.RecheckBusy, controlplane.RecheckIdle} {
		g.Expect(DefaultTimings().Recheck).To(HaveKeyWithValue(pace, BeNumerically(">", 0)), string(pace))
	}
	g.Expect(DefaultTimings().Recheck).NotTo(HaveKey(controlplane.RecheckNever))
}
