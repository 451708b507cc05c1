// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Of a Machine in deletion nothing is left once it has neither a host nor a hook of ours.
func TestAMachineOfWhichNothingIsLeft(t *testing.T) {
	g := NewWithT(t)
	for want, machines := range map[bool][]Machine{
		true: {{Deleting: true}, {Deleting: true, OtherHooks: []string{"theirs"}}},
		false: {{}, {Deleting: true, HostClaimed: true}, {Deleting: true, Hook: true}, {Deleting: true, DrainHook: true},
			{Deleting: true, Hook: true, DrainHook: true}},
	} {
		for _, m := range machines {
			g.Expect(m.Gone()).To(Equal(want), "%+v", m)
		}
	}
}

// It is the smallest number of Machines of which a quorum is left without one of them.
func TestFewestToRemoveFirst(t *testing.T) {
	g := NewWithT(t)
	keeps := func(machines int) bool { return machines-1 >= machines/2+1 }
	g.Expect(keeps(FewestToRemoveFirst)).To(BeTrue())
	g.Expect(keeps(FewestToRemoveFirst - 1)).To(BeFalse())
}
