// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/etcdtest"
)

// realThree is a control plane of three whose etcd is real: each Machine's member is a process, whose disk may hang.
// Its controller runs as it does in a manager, by a clock that stands ahead of that of the processes.
type realThree struct {
	*world
	etcd.Client
	names   []string
	cluster *etcdtest.Cluster
	cert    []byte
	key     []byte
	// ahead is by how much; last is what etcd was read as last.
	ahead time.Duration
	last  etcd.Cluster
}

func newRealThree(t *testing.T) *realThree {
	t.Helper()
	w, names := three(t)
	authority := w.secret(secret.Name("c", secret.EtcdCA))
	r := &realThree{world: w, names: names, cert: authority.Data[secret.TLSCrtDataName],
		key: authority.Data[secret.TLSKeyDataName]}
	var nodes []string
	for _, name := range names {
		nodes = append(nodes, "n-"+name)
		w.host(name, func(host *infrav1.QuoinHost) {
			conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionTrue,
				Reason: infrav1.HostReachableReason})
		})
	}
	r.cluster = etcdtest.Start(t, r.cert, r.key, nodes...)
	w.r.Etcd, w.r.Hosts, w.r.Clock, w.r.Timings = r, r, r, DefaultTimings()
	return r
}

// Now is what the test's clock shows.
func (r *realThree) Now() time.Time { return time.Now().Add(r.ahead) }

// Since is how long ago a time was by the test's clock.
func (r *realThree) Since(t time.Time) time.Duration { return r.Now().Sub(t) }

// DialHost connects with etcd on the host of a Machine.
func (r *realThree) DialHost(ctx context.Context, host *infrav1.QuoinHost, _, _ string) (net.Conn, error) {
	return r.cluster.Dial(ctx, "n-"+strings.TrimPrefix(host.Name, "h-"))
}

// HoldHost finds that every host serves this management cluster.
func (r *realThree) HoldHost(context.Context, *infrav1.QuoinHost) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

// credentials by etcd's own clock: the test's may stand further ahead than a client's may.
func (r *realThree) credentials() etcd.Credentials {
	credentials, err := etcd.Mint(r.cert, r.key, time.Now())
	r.g.Expect(err).NotTo(HaveOccurred())
	return credentials
}

func (r *realThree) Read(ctx context.Context, endpoints []etcd.Endpoint, _ etcd.Credentials) (etcd.Cluster, error) {
	read, err := r.Client.Read(ctx, endpoints, r.credentials())
	if err == nil {
		r.last = read
	}
	return read, err
}

func (r *realThree) RemoveMember(ctx context.Context, endpoints []etcd.Endpoint, _ etcd.Credentials, id uint64) error {
	return r.Client.RemoveMember(ctx, endpoints, r.credentials(), id)
}

func (r *realThree) MoveLeader(ctx context.Context, leader etcd.Endpoint, _ etcd.Credentials, to uint64) error {
	return r.Client.MoveLeader(ctx, leader, r.credentials(), to)
}

// member of a Machine as the controller read etcd last.
func (r *realThree) member(name string) etcd.Member { return memberIn(r.last, name) }

// peek at the member of a Machine, of which the controller knows nothing.
func (r *realThree) peek(name string) etcd.Member {
	r.t.Helper()
	var endpoints []etcd.Endpoint
	for _, name := range r.names {
		endpoints = append(endpoints, etcd.Endpoint{Name: "n-" + name, Dial: func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return r.cluster.Dial(ctx, "n-"+name)
		}})
	}
	read, err := r.Client.Read(r.t.Context(), endpoints, r.credentials())
	r.g.Expect(err).NotTo(HaveOccurred())
	return memberIn(read, name)
}

func memberIn(cluster etcd.Cluster, name string) etcd.Member {
	for _, member := range cluster.Members {
		if member.Name == "n-"+name {
			return member
		}
	}
	return etcd.Member{}
}

// write through all members at once: what hangs is one that has something to write.
func (r *realThree) write() {
	for _, name := range r.names {
		_ = r.cluster.Put("n-" + name)
	}
}

// assess is what etcd is known as now, and what the plan makes of that. Nothing is done.
func (r *realThree) assess() (quorum.Membership, controlplane.Assessment) {
	r.t.Helper()
	plane, cluster := r.plane(), &clusterv1.Cluster{}
	r.g.Expect(r.mgmt.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster)).To(Succeed())
	p := &reconciliation{cluster: cluster, controlPlane: plane,
		subject: observe.Subject{Cluster: cluster, ControlPlane: plane.DeepCopy()}}
	ready, err := r.r.ensurePrerequisites(r.t.Context(), p)
	r.g.Expect(ready, err).To(BeTrue())
	r.g.Expect(r.r.observe(r.t.Context(), p)).To(Succeed())
	p.plan()
	return p.observation.State.Etcd, p.assessment
}

// state of a Machine's member.
func (r *realThree) state(membership quorum.Membership, name string) quorum.MemberState {
	at := slices.IndexFunc(membership.Members, func(m quorum.Member) bool { return m.Machine == name })
	r.g.Expect(at).To(BeNumerically(">=", 0), name)
	return membership.Members[at].State(r.r.Timings.DeadMember)
}

// mayGo is whether etcd can do without the member of a Machine.
func (r *realThree) mayGo(membership quorum.Membership, name string) bool {
	at := slices.IndexFunc(membership.Members, func(m quorum.Member) bool { return m.Machine == name })
	return quorum.Judge(membership, quorum.Operation{Kind: quorum.Depart, Members: []uint64{membership.Members[at].ID}},
		quorum.ByQuorumAlone(r.r.Timings.DeadMember)).Allowed
}

// pass lets four minutes pass by the test's clock, and the controller look.
func (r *realThree) pass() {
	r.t.Helper()
	r.ahead += 4 * time.Minute
	r.once()
}

// quorumIsSaidToBeLost wants it said with everybody who may hang, and no advice to have anybody replaced.
func (r *realThree) quorumIsSaidToBeLost(assessment controlplane.Assessment) {
	r.t.Helper()
	r.g.Expect(assessment.QuorumLoss).NotTo(BeNil(), assessment.Step.Message)
	r.g.Expect(assessment.QuorumLoss.ForGood).To(BeFalse())
	r.g.Expect(assessment.Step.Reason).To(Equal(controlplane.ReasonQuorumLost), assessment.Step.Message)
	r.g.Expect(assessment.Step.Message).To(ContainSubstring("spec.recovery"))
	for _, name := range r.names {
		r.g.Expect(assessment.Step.Message).To(ContainSubstring("n-" + name))
	}
	for _, condition := range []string{controlplanev1.ControlPlaneAvailableCondition,
		controlplanev1.ControlPlaneEtcdClusterHealthyCondition} {
		r.g.Expect(r.condition(condition)).To(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", controlplanev1.QuorumLostReason), HaveField("Message", ContainSubstring("spec.recovery"))))
	}
	plane := r.plane()
	for _, condition := range plane.Status.Conditions {
		r.g.Expect(condition.Message).NotTo(ContainSubstring("remediate-machine"), condition.Type)
	}
	r.g.Expect(plane.Status.Operation.Message).NotTo(ContainSubstring("remediate-machine"))
	r.g.Expect(plane.Status.Etcd.Tolerates).To(HaveValue(BeNumerically("<", 0)), "however many look healthy")
}

// nobodyGoes wants no Machine and no member to have gone, or to be going.
func (r *realThree) nobodyGoes(why string) {
	r.t.Helper()
	for _, machine := range r.machines() {
		r.g.Expect(machine.DeletionTimestamp).To(BeNil(), "%s: %s", machine.Name, why)
	}
	r.g.Expect(r.machines()).To(HaveLen(3), why)
	r.g.Expect(r.last.Members).To(HaveLen(3), why)
}

// A voter whose disk hangs is replaced by itself, whether it leads or follows: after ten minutes in which it completed
// no read and came no further while another voter agreed. Another one leads before it goes. One whose disk is slow
// stays, however long that lasts.
func TestAVoterWhoseDiskHangsIsReplacedByItselfAndASlowOneStays(t *testing.T) {
	for role, leads := range map[string]bool{"the leader": true, "a follower": false} {
		t.Run(role, func(t *testing.T) {
			r := newRealThree(t)
			g := r.g
			r.once()
			at := slices.IndexFunc(r.last.Members, func(m etcd.Member) bool { return m.Leader == leads })
			g.Expect(at).To(BeNumerically(">=", 0))
			victim := strings.TrimPrefix(r.last.Members[at].Name, "n-")
			others := slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return name == victim })

			for _, delay := range []time.Duration{time.Second, 3 * time.Second} {
				quick := r.cluster.Disk("n-"+victim, delay)
				for range 3 {
					before := r.member(victim).Syncs
					g.Eventually(func() bool {
						r.write()
						now := r.peek(victim)
						return now.Answers || now.Syncs > before
					}, time.Minute, time.Millisecond).Should(BeTrue(), "a slow disk comes further")
					r.pass()
					r.nobodyGoes("a disk is slow by " + delay.String())
				}
				quick()
			}
			g.Eventually(func() bool {
				r.once()
				return r.member(victim).Answers
			}, time.Minute, time.Millisecond).Should(BeTrue(), "a disk that is quick again")

			r.ahead = 0
			r.once()
			hung := r.cluster.Disk("n-"+victim, time.Hour)
			g.Eventually(func() bool {
				r.write()
				r.once()
				return r.member(victim).Hangs && slices.ContainsFunc(r.last.Members, func(m etcd.Member) bool { return m.Leader })
			}, time.Minute, time.Millisecond).Should(BeTrue())
			r.once() // what was on its way is done
			membership, assessment := r.assess()
			g.Expect(r.state(membership, victim).Counts()).To(BeTrue(), "one look proves nothing")
			g.Expect(assessment.Unhealthy).To(BeEmpty())
			for range 2 {
				r.write()
				r.pass()
				r.nobodyGoes("it may come back")
			}

			// Its silence begins anew with a reading in which etcd elects.
			g.Eventually(func() []controlplane.UnhealthyMachine {
				r.ahead += 4 * time.Minute
				membership, assessment = r.assess()
				return assessment.Unhealthy
			}, 3*time.Minute, time.Millisecond).ShouldNot(BeEmpty())
			g.Expect(membership.Agreed).To(BeTrue())
			g.Expect(r.state(membership, victim)).To(Equal(quorum.MemberDead))
			for _, name := range others {
				g.Expect(r.state(membership, name)).To(Equal(quorum.MemberHealthy))
				g.Expect(r.mayGo(membership, name)).To(BeFalse(), "two are needed, and they are those that work")
			}
			g.Expect(r.mayGo(membership, victim)).To(BeTrue())
			g.Expect(r.member(victim).Leader).To(BeFalse(), "the others have chosen one of them")
			g.Expect(assessment.Unhealthy).To(ConsistOf(And(HaveField("Machine.Name", victim),
				HaveField("Reason", controlplane.UnhealthyMemberDead))))
			g.Expect(assessment.Step).To(And(HaveField("Kind", controlplane.DeleteMachine), HaveField("Machine", victim)))

			r.once()
			g.Expect(r.machine(victim).DeletionTimestamp).NotTo(BeNil())
			g.Expect(r.plane().Annotations).To(HaveKeyWithValue(controlplanev1.RemediationInProgressAnnotation,
				ContainSubstring(victim)))
			g.Expect(r.hasDrainHook(victim)).To(BeFalse(), "its drain begins at once")
			r.drained(victim)
			g.Eventually(func() int {
				r.once()
				return len(r.last.Members)
			}, time.Minute, time.Millisecond).Should(Equal(2))
			g.Expect(r.last.Agreed).To(BeTrue())
			for _, name := range others {
				g.Expect(r.member(name).Answers).To(BeTrue())
				g.Eventually(func() error { return r.cluster.Put("n-" + name) }, time.Minute, 100*time.Millisecond).
					Should(Succeed())
				g.Expect(r.machine(name).DeletionTimestamp).To(BeNil())
			}
			hung()
		})
	}
}

// Of two voters whose disks hang each may be the one that is well: nobody agrees with anybody. All waver, however long,
// and nothing is decided. But the quorum is said to be lost, with all who may hang and the way to restore it, and no
// person is sent to have the one replaced that works. Once one works again, the silence of the other begins.
func TestNobodyIsReplacedWhileNoVoterAgrees(t *testing.T) {
	r := newRealThree(t)
	g := r.g
	r.once()
	disks := map[string]func(){}
	for _, name := range r.names[1:] {
		disks[name] = r.cluster.Disk("n-"+name, time.Hour)
	}
	g.Eventually(func() bool {
		r.write()
		r.once()
		return r.last.Agreed
	}, time.Minute, time.Millisecond).Should(BeFalse())
	for range 4 {
		r.write()
		r.pass()
		r.nobodyGoes("nobody agrees")
		membership, assessment := r.assess()
		for _, name := range r.names {
			g.Expect(r.state(membership, name)).NotTo(Equal(quorum.MemberDead))
			g.Expect(r.mayGo(membership, name)).To(BeFalse())
		}
		g.Expect(assessment.Unhealthy).To(BeEmpty())
		g.Expect(assessment.Step.Waiting()).To(BeTrue(), assessment.Step.Message)
		r.quorumIsSaidToBeLost(assessment)
	}

	disks[r.names[1]]()
	g.Eventually(func() bool {
		r.once()
		return r.last.Agreed && r.member(r.names[1]).Answers && !r.member(r.names[2]).Answers
	}, time.Minute, time.Millisecond).Should(BeTrue())
	r.nobodyGoes("its silence begins")
	g.Eventually(func() *metav1.Time {
		r.write()
		r.pass()
		return r.machine(r.names[2]).DeletionTimestamp
	}, 3*time.Minute, time.Millisecond).ShouldNot(BeNil())
	g.Expect(r.machine(r.names[0]).DeletionTimestamp).To(BeNil())
	g.Expect(r.machine(r.names[1]).DeletionTimestamp).To(BeNil())
}
