// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// A wait that rests on a host may last as long as the host likes. So its message says what a person can do.
func TestAWaitThatRestsOnAHostSaysTheWayOut(t *testing.T) {
	begun := func(s *controlplane.State) {
		s.Recovery.State = controlplane.RecoveryBegun
		part(s, "b", succeeded)
		part(s, "c", succeeded)
	}
	whole := func(s *controlplane.State) facts {
		s.Recovery, s.Reachable = nil, true
		s.Etcd.Agreed = true
		for i := range s.Etcd.Members {
			s.Etcd.Members[i].Healthy, s.Etcd.Members[i].Problem = true, ""
		}
		return facts{State: *s}
	}
	for name, test := range map[string]struct {
		step func(s *controlplane.State) *controlplane.Step
		says string
	}{
		"a given up Machine's bootstrap runs": {func(s *controlplane.State) *controlplane.Step {
			begun(s)
			s.Machines[1].Bootstrapped = false
			part(s, "b", func(h *controlplane.RecoveryHost) { h.Succeeded, h.Ordered = false, false })
			return restore(facts{State: *s})
		}, "kubectl annotate quoinhost host-b quoin.cluster.x-k8s.io/abandon="},
		"the survivor is silent": {func(s *controlplane.State) *controlplane.Step {
			begun(s)
			part(s, "a", running)
			part(s, "a", silent)
			return restore(facts{State: *s})
		}, "under another id"},
		"the survivor's etcd does not answer": {func(s *controlplane.State) *controlplane.Step {
			begun(s)
			part(s, "a", succeeded)
			return restore(facts{State: *s})
		}, "under another id"},
		"a host is released": {func(s *controlplane.State) *controlplane.Step {
			s.Machines[2].Deleting, s.Machines[2].Hook, s.Machines[2].DrainHook = true, false, false
			return leave(whole(s))
		}, "Ready of its QuoinMachine"},
		"hosts lack images": {func(s *controlplane.State) *controlplane.Step {
			s.Hosts = []controlplane.Host{{Name: "a", Machine: "a", Provisioned: true, Requested: true}}
			return fetchAddons(whole(s))
		}, "AddonImagesPresent"},
		"hosts lack what runs": {func(s *controlplane.State) *controlplane.Step {
			s.AddonsVersion = "v1.35.0"
			s.Hosts = []controlplane.Host{{Name: "a", Machine: "a", Provisioned: true, RequestedRunning: true,
				Unfit: "unreachable"}}
			return holdAddons(whole(s), s.Machines[2])
		}, "cluster.x-k8s.io/remediate-machine"},
		"a kubelet is of another version": {func(s *controlplane.State) *controlplane.Step {
			for i := range s.Machines {
				s.Machines[i].Healthy, s.Machines[i].Serving, s.Machines[i].Kubelet = true, true, "v1.36.3"
			}
			s.Machines[1].Kubelet, s.ConfigVersion = "v1.35.0", "v1.36.3"
			return followVersion(whole(s))
		}, "cluster.x-k8s.io/remediate-machine"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := lossOf3()
			step := test.step(&s)
			g.Expect(step).NotTo(BeNil())
			g.Expect(step.Kind).To(Equal(controlplane.Wait))
			g.Expect(step.Message).To(ContainSubstring(test.says))
		})
	}
}
