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

// ofThree is a control plane of three that works, with a host to spare; c leads.
func ofThree() controlplane.State {
	s := controlplane.State{Replicas: 3, Version: "v1.30.0", ConfigVersion: "v1.30.0", StackedEtcd: true,
		Initialized: true, Reachable: true, Certificates: true, Spare: controlplane.Spare{Free: 1},
		DeadMemberTimeout: 30 * time.Second, Etcd: quorum.Membership{Known: true, Agreed: true}}
	for i, name := range []string{"a", "b", "c"} {
		s.Machines = append(s.Machines, controlplane.Machine{Name: name, Version: s.Version, Kubelet: s.Version,
			UpToDate: true, HostClaimed: true, Bootstrapped: true, Joined: true, Node: name, Healthy: true, Serving: true,
			Hook: true, DrainHook: true})
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: uint64(i + 1), Name: name, Machine: name, Healthy: true,
			Leader: name == "c"})
	}
	return s
}

// One reading that misses the member of a departing Machine does not let it go before its replacement votes.
func TestMissedReadingIsNoDeath(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Machines[0].Deleting = true
	s.Etcd.Members[0].Healthy, s.Etcd.Members[0].Problem = false, "it did not answer in time"

	step := Assess(s).Step
	g.Expect(step.Kind).To(Equal(controlplane.Wait))
	g.Expect(step.Message).To(ContainSubstring("may be back"))

	s.Etcd.Members[0].Silent = s.DeadMemberTimeout
	g.Expect(Assess(s).Step.Kind).To(Equal(controlplane.ReleaseDrainHook))
}

// Where the approval of the drain would follow anyhow, it is given with the deletion.
func TestTheDrainIsApprovedWithTheDeletion(t *testing.T) {
	g := NewWithT(t)
	s := ofThree()
	s.Replicas, s.AddonsCurrent = 1, true
	step := Assess(s).Step
	g.Expect(step.Kind).To(Equal(controlplane.DeleteMachine), "%+v", step)
	g.Expect(step.Then).NotTo(BeNil())
	g.Expect(step.Then.Kind).To(Equal(controlplane.ReleaseDrainHook))
	g.Expect(step.Then.Machine).To(Equal(step.Machine))

	s.Machines[0].DrainHook = false
	step = Assess(s).Step
	g.Expect(step.Kind).To(Equal(controlplane.DeleteMachine), "%+v", step)
	g.Expect(step.Machine).To(Equal("a"))
	g.Expect(step.Then).To(BeNil(), "no hook of ours holds its drain")
}
