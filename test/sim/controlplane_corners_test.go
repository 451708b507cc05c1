// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// The corner cases of docs/corner-cases.md that real members can get into, and get out of again.

// The database of every member is full while a Machine is outdated. Nothing is made and nothing is deleted, and the way out
// is said. Once somebody made room, the rollout goes on.
func TestAControlPlaneWaitsForRoomInEtcd(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "room", replicas: 3, domains: 3, strategy: surge, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(3), c.write()
	machines, members := c.identities()
	etcd, err := c.cluster.EtcdClient()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = etcd.Close() }()
	// A full database takes no writes.
	judge.lose(3)
	for _, id := range members {
		_, err := pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: pb.AlarmType_NOSPACE})
		g.Expect(err).NotTo(HaveOccurred())
	}
	old := c.outdateOldest(1)
	c.until("saying that there is no room", func() string {
		object := c.object()
		for _, condition := range object.Status.Conditions {
			if condition.ObservedGeneration == object.Generation && strings.Contains(condition.Message, "alarm disarm") {
				return ""
			}
		}
		return "nobody says how to make room"
	})
	nowMachines, nowMembers := c.identities()
	g.Expect(nowMachines).To(Equal(machines))
	g.Expect(nowMembers).To(Equal(members))

	// All alarms of all members.
	_, err = etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	g.Expect(err).NotTo(HaveOccurred())
	judge.lose(-3)
	c.untilReplaced("going on when there is room", old)
	writer.end()
	judge.end()
}

// A host without power is given up by a person, and comes back at the moment at which its Machine is let go. Whether its member
// still votes by then or not, it goes, and only it.
func TestAMemberThatReturnsAfterItWasLetGo(t *testing.T) {
	needsTime(t)
	t.Parallel()
	c := newCourt(t, courtOptions{name: "returns", replicas: 3, domains: 3, strategy: surge, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(3), c.write()
	judge.burn(1)
	lost := c.machines()[0]
	c.hostOf(lost).PowerOff()
	c.annotate(&lost, clusterv1.RemediateMachineAnnotation)
	c.until("letting it go", func() string {
		for _, machine := range c.machines() {
			_, held := machine.Annotations[controlplanev1.PreDrainHookAnnotation]
			if machine.UID == lost.UID && (machine.DeletionTimestamp.IsZero() || held) {
				return machine.Name + " is held"
			}
		}
		return ""
	})
	c.hostOf(lost).PowerOn()
	c.untilReplaced("going on without it", map[types.UID]bool{lost.UID: true})
	writer.end()
	judge.end()
}

// A person deletes a second Machine while the host of the first one is being cleaned, where no other host is free: the second
// one waits until the first is replaced.
func TestAMachineIsDeletedWhileAHostIsCleaned(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "cleaned", replicas: 3, hosts: 3, domains: 3, strategy: auto, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(2), c.write()
	machines := c.machines()
	first, second := machines[0], machines[1]
	var cleaned atomic.Bool
	c.listen(func(e event) {
		if e.where == "step" && strings.HasPrefix(e.what, c.hostOf(first).Name+" reset ") {
			cleaned.Store(true)
		}
	})
	g.Expect(c.plane.Client.Delete(t.Context(), &first)).To(Succeed())
	c.until("cleaning the first host", func() string {
		if !cleaned.Load() {
			return "its host is not cleaned"
		}
		return ""
	})
	c.listen(nil)
	// Admission may refuse it while the first one has not left.
	c.until("deleting the second Machine", func() string {
		if err := client.IgnoreNotFound(c.plane.Client.Delete(t.Context(), &second)); err != nil {
			return err.Error()
		}
		return ""
	})
	c.untilReplaced("replacing both", map[types.UID]bool{first.UID: true, second.UID: true})
	writer.end()
	judge.end()
}

// The only spare host is given to another namespace when the Machine that was to have it was made, before it has claimed the
// host. Auto goes on as if there had been none.
func TestASpareHostIsTakenBeforeItIsClaimed(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "taken", replicas: 3, hosts: 4, domains: 3, strategy: auto, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(2), c.write()
	used, known := map[string]bool{}, map[string]bool{}
	for _, machine := range c.machines() {
		used[c.hostOf(machine).Name], known[machine.Name] = true, true
	}
	at := slices.IndexFunc(c.hosts, func(host *sim.Host) bool { return !used[host.Name] })
	spare := &infrav1.QuoinHost{}
	g.Expect(c.plane.Client.Get(t.Context(), client.ObjectKey{Namespace: c.options.name, Name: c.hosts[at].Name}, spare)).To(Succeed())
	var taken atomic.Bool
	c.listen(func(e event) {
		name, machine := strings.CutPrefix(e.what, "PATCH machines/")
		if name, _, _ = strings.Cut(name, "/"); e.where == "management" && machine && !known[name] && taken.CompareAndSwap(false, true) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"consumerNamespaces":["elsewhere"]}}`))
			if err := c.plane.Client.Patch(t.Context(), spare, patch); err != nil {
				t.Error(err)
			}
		}
	})
	old := c.outdateOldest(1)
	c.untilReplaced("going on without the host", old)
	c.listen(nil)
	g.Expect(taken.Load()).To(BeTrue(), "no Machine was made")
	for _, machine := range c.machines() {
		g.Expect(c.hostOf(machine).Name).NotTo(Equal(spare.Name))
	}
	writer.end()
	judge.end()
}

// A person deletes a Machine that is kept, because no host is free for its replacement. Then another one dies and is marked.
// The dead one is replaced first, and the kept one when there is a host for it as well.
func TestADeadMemberIsReplacedBesideAKeptMachine(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "kept", replicas: 3, hosts: 3, domains: 3, strategy: surge, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(3), c.write()
	machines := c.machines()
	kept, dead := machines[0], machines[1]
	g.Expect(c.plane.Client.Delete(t.Context(), &kept)).To(Succeed())
	judge.burn(1)
	c.hostOf(dead).PowerOff()
	c.annotate(&dead, clusterv1.RemediateMachineAnnotation)
	domain := c.domains[c.hostOf(dead)]
	c.addHostTo(domain)
	abandoned := false
	c.until("replacing the dead one", func() string {
		there := map[types.UID]bool{}
		for _, machine := range c.machines() {
			there[machine.UID] = true
			if machine.UID == dead.UID && !machine.DeletionTimestamp.IsZero() && !abandoned {
				c.abandon(dead)
				abandoned = true
			}
		}
		switch {
		case there[dead.UID] && !there[kept.UID]:
			return "the kept one went first"
		case there[dead.UID]:
			return "the dead one is still there"
		}
		members, err := c.members(t.Context())
		if err != nil {
			return err.Error()
		}
		voters := 0
		for _, member := range members {
			if !member.Learner && member.Ready {
				voters++
			}
		}
		if voters < 3 {
			return "its replacement does not vote"
		}
		return ""
	})
	c.addHostTo(c.domains[c.hostOf(kept)])
	c.untilReplaced("replacing the kept one", map[types.UID]bool{dead.UID: true, kept.UID: true})
	writer.end()
	judge.end()
}

// The disk under the first member is empty all at once, as one that was replaced, or is not mounted. kubeadm had that member begin
// the cluster, and it does not begin another one: it stays out until its Machine is replaced.
func TestAFirstMemberThatLosesItsDataStaysOut(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	c := newCourt(t, courtOptions{name: "emptied", replicas: 3, domains: 3, strategy: surge, admission: true})
	c.untilWhole("coming up")
	judge, writer := c.watchMembers(3), c.write()
	var first clusterv1.Machine
	for _, each := range c.machines() {
		if first.Name == "" || each.CreationTimestamp.Before(&first.CreationTimestamp) {
			first = each
		}
	}
	host := c.hostOf(first)
	manifest := host.Machine.FS().Text("/etc/kubernetes/manifests/etcd.yaml")
	g.Expect(regexp.MustCompile(`--initial-cluster=[^,]+\n`).MatchString(manifest)).To(BeTrue(), "it is not the one that began the cluster: %s", manifest)
	judge.burn(1)
	_, err := (&machine.Host{Machine: host.Machine}).Run(t.Context(), ssh.Command{Script: "rm -rf /var/lib/etcd/member"})
	g.Expect(err).NotTo(HaveOccurred())
	member := c.cluster.Etcd(host.Machine)
	member.Kill()
	g.Eventually(member.Ready, whole, "10ms").Should(BeFalse())
	g.Consistently(member.Ready, "5s", "20ms").Should(BeFalse(), "it began a cluster of its own")
	g.Eventually(func() []metav1.Condition { return c.object().Status.Conditions }, whole, "50ms").Should(
		ContainElement(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring(first.Name)))))

	c.annotate(&first, clusterv1.RemediateMachineAnnotation)
	c.untilReplaced("replacing it", map[types.UID]bool{first.UID: true})
	g.Expect(host.Machine.FS().Text("/var/lib/etcd/member/simulated")).To(BeEmpty(), "its host was reset")
	writer.end()
	judge.end()
}

// untilReplaced waits until the Machines are gone and the control plane is what its spec says.
func (c *court) untilReplaced(what string, old map[types.UID]bool) {
	c.t.Helper()
	c.until(what, func() string {
		if left := c.lacksReplacements(old); left != "" {
			return left
		}
		return c.lacks()
	})
}
