// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
)

// leaderOf finds the Machine whose member leads, and the others, as etcd itself tells it.
func (c *court) leaderOf() (leader clusterv1.Machine, others []clusterv1.Machine) {
	c.t.Helper()
	c.until("  asking who leads", func() string {
		etcd, err := c.cluster.EtcdClient()
		if err != nil {
			return err.Error()
		}
		defer func() { _ = etcd.Close() }()
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		defer cancel()
		status, err := etcd.Status(ctx, etcd.Endpoints()[0])
		if err != nil {
			return err.Error()
		}
		members, err := c.members(ctx)
		if err != nil {
			return err.Error()
		}
		leader, others = clusterv1.Machine{}, nil
		for _, machine := range c.machines() {
			if slices.ContainsFunc(members, func(m kube.MemberView) bool {
				return m.Name == machine.Status.NodeRef.Name && m.ID == status.Leader
			}) {
				leader = machine
			} else {
				others = append(others, machine)
			}
		}
		if leader.Name == "" {
			return "nobody leads"
		}
		return ""
	})
	return leader, others
}

// memberOf is the etcd of a Machine's host.
func (c *court) memberOf(machine clusterv1.Machine) *kube.Member {
	return c.cluster.Etcd(c.hostOf(machine).Machine)
}

// Two of three members do not reach each other, and the third reaches both: all of them answer, each reads through the quorum,
// and without the third there is none. A person deletes its Machine where no host is to spare. It stays until the two hear each
// other; meanwhile everything that is written is acknowledged.
func TestALeaderStaysWhileTheOthersDoNotHearEachOther(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "parted", replicas: 3, hosts: 3, domains: 3, strategy: removeFirst, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(2), c.write()
	leader, others := c.leaderOf()
	near, far := c.memberOf(others[0]), c.memberOf(others[1])
	near.Part(far, true)
	_, before := c.identities()
	g.Expect(c.plane.Client.Delete(t.Context(), &leader)).To(Succeed())
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(250 * time.Millisecond) {
		if members, err := c.members(t.Context()); err == nil && len(members) != len(before) {
			t.Fatalf("the member that holds the others together is gone: %+v", members)
		}
	}
	near.Part(far, false)
	c.untilReplaced("replacing it when the others hear each other", map[types.UID]bool{leader.UID: true})
	writer.end()
	judge.end()
}

// No member reaches another one, and all of them run: nothing can be written, and the judge of writes says so.
func TestThatProcessesRunIsNoProgress(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "running", replicas: 3, hosts: 3, domains: 3, strategy: surge, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(3), c.write()
	judge.mu.Lock()
	judge.stall = 5 * time.Second
	judge.mu.Unlock()
	members := c.machines()
	apart := func(parted bool) {
		for i := range members {
			for j := range i {
				c.memberOf(members[i]).Part(c.memberOf(members[j]), parted)
			}
		}
	}
	faults := func() []string {
		judge.mu.Lock()
		defer judge.mu.Unlock()
		return judge.faults
	}
	g.Expect(faults()).To(BeEmpty())
	apart(true)
	g.Eventually(faults, whole, "100ms").Should(ContainElement(ContainSubstring("nothing was written for")))
	for _, machine := range members {
		g.Expect(c.memberOf(machine).Running()).To(BeTrue())
	}
	apart(false)
	writer.end()
	close(judge.stop)
	<-judge.done
}

// The host of the replacement is burnt at each step of its join: before etcd knows it, as a learner that has not started, as one
// that has, and as a voter. It is given up at a person's word, and the rollout goes on without it.
func TestAHostThatIsLostForGoodWhileItJoinsIsReplaced(t *testing.T) {
	t.Parallel()
	for i, phase := range joinPhases {
		if !slices.Contains([]string{"kubelet-start", "etcd-added", "etcd-started", "etcd-promoted"}, phase) {
			continue
		}
		t.Run(phase, func(t *testing.T) {
			needsTime(t)
			t.Parallel()
			name := "joiner-" + phase
			c := newCourt(t, courtOptions{name: name, replicas: 3, hosts: 4, domains: 3, strategy: surge, admission: true})
			c.untilWhole("coming up")
			c.suffer(rollout{surge, 1, 1, nil}, trouble{blow: joinerLost, host: i})
			if len(c.burnt) != 1 {
				t.Error("no host was lost")
			}
		})
	}
}

// The disk of a follower takes half a second for each write: it may be slow for ever without being dead, so nobody gives
// it up, and nobody may delete a healthy one beside it, for the slow one would not carry the quorum. Once that is quick
// again a healthy one may go. Then the disk does nothing any more: its member is dead, and goes as soon as
// a person deletes its Machine. What is written is acknowledged all the time.
func TestAVoterWhoseDiskIsSlowStaysAndOneWhoseDiskHangsGoes(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	programtest.Need(t, "strace")
	// A voter is dead after five seconds of silence, which is longer than a write to a slow disk takes.
	c := newCourt(t, courtOptions{
		name: "disk", replicas: 3, hosts: 3, domains: 3, strategy: removeFirst, admission: true, syncs: true, haste: 6,
	})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(2), c.write()
	_, others := c.leaderOf()
	ill, well := others[0], others[1]
	disk := func(delay time.Duration) (quick func()) {
		quick, err := c.memberOf(ill).Disk(delay)
		g.Expect(err).NotTo(HaveOccurred())
		return quick
	}
	quick := disk(500 * time.Millisecond)
	remove := func() error { return c.plane.Client.Delete(t.Context(), &well, client.DryRunAll) }
	refused := MatchError(ContainSubstring("1 of 2 voters would be healthy"))
	g.Eventually(remove).WithTimeout(patience).Should(refused, c.describe)
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(250 * time.Millisecond) {
		if members, err := c.members(t.Context()); err == nil && len(members) != 3 {
			t.Fatalf("a member was removed while a disk is slow: %+v\n%s", members, c.describe())
		}
	}
	quick()
	g.Eventually(func() error { return c.plane.Client.Delete(t.Context(), &well) }).WithTimeout(patience).
		Should(Succeed(), c.describe)
	c.untilReplaced("replacing one when the disk is quick again", map[types.UID]bool{well.UID: true})
	quick = disk(time.Hour)
	g.Expect(c.plane.Client.Delete(t.Context(), &ill)).To(Succeed())
	c.until("removing the member whose disk hangs", func() string {
		for _, machine := range c.machines() {
			if machine.UID == ill.UID {
				return machine.Name + " is still there"
			}
		}
		return ""
	})
	quick()
	c.untilReplaced("being whole again", map[types.UID]bool{ill.UID: true})
	writer.end()
	judge.end()
}
