// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestTheWordOfAnotherBMCFencesNobody(t *testing.T) {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	w.until("ordered off", func(*infrav1.QuoinHost) bool { return slices.Contains(w.bmc.told(), "off") })
	w.g.Expect(w.host().Fenced()).To(BeFalse(), "the answer was not looked at yet")
	// It was the wrong computer that was powered off.
	w.update(func(h *infrav1.QuoinHost) { h.Spec.BMC.Address = "https://192.0.2.112" })
	w.until("ordered off there", func(*infrav1.QuoinHost) bool {
		w.g.Expect(w.host().Fenced()).To(BeFalse())
		return len(w.bmc.told()) == 3
	})
	w.until("fenced", (*infrav1.QuoinHost).Fenced)
	w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off", "off"}))
}
