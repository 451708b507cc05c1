// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// What Machines took is in the status, and what was measured before is not lost.
func TestWhatMachinesTakeIsInTheStatus(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	w.reconcile()
	for i, name := range []string{"new-0", "new-1"} {
		w.clock.Step(time.Duration(i+1) * time.Minute)
		w.joins(name)
		w.clock.Step(time.Minute)
		w.reconcile()
	}
	blue := w.policy().Status.MachineDeployments[0]
	w.Expect(blue.RecentMachineSeconds).To(Equal([]int32{60, 120}))
	w.Expect(blue.LastMachineSeconds).To(HaveValue(BeEquivalentTo(120)))
	w.Expect(blue.MedianMachineSeconds).To(HaveValue(BeEquivalentTo(120)))
}
