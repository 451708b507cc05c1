// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: R9, R12, S0-20, S0-30, S1-17, S1-24
//
// Each rule holds a target or warns of it, and lets another one pass in silence.
func TestVectorsOfTargets(t *testing.T) {
	var vectors []struct {
		releaseVector
		Policies, Scheduler, Refuses string
	}
	read(t, "targets", &vectors)
	releases := catalog(t)
	for i, v := range vectors {
		t.Run(fmt.Sprintf("%d %s", i, v.Row), func(t *testing.T) {
			g := NewWithT(t)
			chosen, err := Policies(v.Policies)
			g.Expect(err).NotTo(HaveOccurred())
			world := v.world(releases)
			if v.Scheduler != "" {
				world.Components = append(world.Components, Running{Component: Scheduler, Version: v.Scheduler, Object: "Pod s1"})
			}
			refusal, warning := Target(chosen, world, v.To)
			for part, said := range map[*string]string{&v.Refuses: refusal, &v.Warns: warning} {
				g.Expect(said).To(ContainSubstring(*part))
				g.Expect(said == "").To(Equal(*part == ""), said)
			}
		})
	}
}
