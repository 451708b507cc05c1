// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// One reading that misses the member of a departing Machine does not let it go before its replacement votes.
func TestMissedReadingIsNoDeath(t *testing.T) {
	g := NewWithT(t)
	s := controlplane.State{Replicas: 3, Version: "v1.30.0", ConfigVersion: "v1.30.0", StackedEtcd: true,
		Initialized:  true,
		Reachable:    true,
		Certificates: true, Spare: controlplane.Spare{Free: 1}, DeadMemberTimeout: 30 * time.Second,
		Etcd: quorum.Membership{Known: true,
			Agreed: true}}
	for i, name := range []string{"a", "b", "c"} {
		s.Machines = append(s.Machines, controlplane.Machine{Name: name, Version: s.Version, Kubelet: s.Version,
			UpToDate:     true,
			HostClaimed:  true,
			Bootstrapped: true, Joined: true, Node: name, Healthy: true, Serving: true, Hook: true, DrainHook: true})
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: name, Machine: name, Healthy: true,
			Leader: name == "c"})
	}
	s.Machines[0].Deleting = true
	s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Problem = false, "it did not answer in time"

	step := Assess(s).Step
	g.Expect(step.Kind).To(Equal(controlplane.Wait))
	g.Expect(step.Message).To(ContainSubstring("may be back"))

	s.Etcd.Members[0].Silent = s.DeadMemberTimeout
	g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.ReleaseDrainHook))
}
