// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A recovery that is taken away after hosts were given their parts: what has not begun never does, what has begun is
// ended, and no host keeps a part once a quorum is there.
func TestARecoveryThatIsTakenAwayEnds(t *testing.T) {
	began := func(h *controlplane.RecoveryHost) { h.Ordered, h.Began = true, true }
	quorate := func(s *controlplane.State) { s.Etcd.Agreed = true }
	for name, c := range map[string]struct {
		change  func(*controlplane.State)
		kind    controlplane.Kind
		machine string
		says    string
	}{
		"a part that has not begun": {func(s *controlplane.State) { part(s, "b", began); part(s, "c", running) },
			controlplane.OrderRecovery, "c", "never does"},
		"nor while there is a quorum, or its host is silent": {func(s *controlplane.State) {
			quorate(s)
			part(s, "b", began)
			part(s, "c", running)
			part(s, "c", silent)
		}, controlplane.OrderRecovery, "c", "never does"},
		"who puts it back goes on with what was done": {func(s *controlplane.State) {
			part(s, "b", began)
			part(s, "b", succeeded)
		}, controlplane.Wait, "", "Recovery r1 has begun and was taken away"},
		"what was read before does not count": {func(s *controlplane.State) {
			quorate(s)
			s.Etcd.Known = false
			part(s, "b", began)
			part(s, "b", succeeded)
		}, controlplane.Wait, "", ""},
		"what runs is ended": {func(s *controlplane.State) {
			quorate(s)
			part(s, "b", began)
		}, controlplane.Wait, "b", "nothing else is done until that has ended"},
		"nobody waits for a host that is silent": {func(s *controlplane.State) {
			quorate(s)
			part(s, "b", began)
			part(s, "b", silent)
		}, controlplane.VoidRecovery, "", "now or later"},
		"not even where its member works": {func(s *controlplane.State) {
			quorate(s)
			s.Etcd.Members[1].Healthy = true
			part(s, "b", began)
			part(s, "b", silent)
		}, controlplane.VoidRecovery, "", "now or later"},
		"nor for a survivor whose member does not": {func(s *controlplane.State) {
			quorate(s)
			part(s, "a", began)
			part(s, "a", silent)
		}, controlplane.VoidRecovery, "", "now or later"},
		"but for a survivor by whose member the quorum is": {func(s *controlplane.State) {
			alone(s)
			part(s, "a", began)
			part(s, "a", silent)
		}, controlplane.Wait, "a", "condition Reachable of its QuoinHost says why"},
		"a quorum is there": {func(s *controlplane.State) {
			quorate(s)
			for _, name := range []string{"b", "c"} {
				part(s, name, began)
			}
			part(s, "b", succeeded)
			part(s, "c", failed)
		}, controlplane.VoidRecovery, "", "now or later"},
		"the survivor is the quorum": {func(s *controlplane.State) {
			alone(s)
			for _, name := range []string{"a", "b", "c"} {
				part(s, name, began)
				part(s, name, succeeded)
			}
		}, controlplane.EndRecovery, "", "Machine a was restored"},
		"a record that says it is over": {func(s *controlplane.State) {
			s.Recovery.State = controlplane.RecoveryVoid
			part(s, "b", began)
		}, controlplane.VoidRecovery, "", "is over"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := lossOf3()
			s.Reachable = true
			s.Recovery.State, s.Recovery.Withdrawn, s.Recovery.GiveUp = controlplane.RecoveryBegun, true, nil
			c.change(&s)
			step := Assess(s).Step
			g.Expect(step).To(And(HaveField("Kind", c.kind), HaveField("Machine", c.machine), HaveField("Order", ""),
				HaveField("Message", ContainSubstring(c.says))))
		})
	}
}
