// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// lostQuorum is a control plane of three of which no member sees a leader, for so long that it is no election, and
// whose hosts are claimed and answer.
func lostQuorum(t *testing.T) (*world, []string) {
	t.Helper()
	w, names := losesQuorum(t)
	w.passElection()
	return w, names
}

// passElection lets so much time pass that etcd would have elected a leader.
func (w *world) passElection() {
	w.t.Helper()
	w.once()
	start := time.Now()
	w.clockAhead += time.Minute
	ahead, elapsed := w.clockAhead, func() time.Duration { return time.Since(start) }
	w.r.Clock = steady.From(func() time.Time { return start.Add(ahead + elapsed()) }, elapsed)
	w.once()
}

// losesQuorum is one of which no member sees a leader just now.
func losesQuorum(t *testing.T) (*world, []string) {
	t.Helper()
	w, names := three(t)
	w.etcd.noQuorum = true
	for i, name := range names {
		w.etcd.members[i].Leader, w.etcd.members[i].Answers, w.etcd.members[i].Problem = false, false, "it sees no leader"
		w.host(name, func(host *infrav1.QuoinHost) {
			host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: name, Machine: name, Claim: "1"}
		})
	}
	return w, names
}

func (w *world) recover(id, machine string, giveUp ...string) {
	w.t.Helper()
	w.edit(func(plane *controlplanev1.QuoinControlPlane) {
		plane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: id, Machine: machine, GiveUp: giveUp}
	})
}

// ends is the host of a Machine that has ended its part.
func (w *world) ends(name, id, phase string) {
	w.t.Helper()
	w.host(name, func(host *infrav1.QuoinHost) {
		host.Status.Operation = &infrav1.HostOperation{ID: infrav1.RecoverOperation(id), Phase: phase}
		conditions.Set(host, metav1.Condition{Type: infrav1.HostEtcdRecoveryCondition, Status: metav1.ConditionFalse,
			Reason: infrav1.HostStepFailedReason, Message: "its words"})
	})
}

func (w *world) order(name string) string {
	w.t.Helper()
	if order := w.infra(name).Spec.EtcdRecovery; order != nil {
		return string(order.Action) + " " + order.Member
	}
	return ""
}

func TestARecoveryTellsEachHostItsPartAndGivesUpTheOthers(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	w.recover("r1", names[0], names[1], names[2])
	for range 5 {
		w.once()
	}
	g.Expect(w.order(names[1])).To(Equal("Stop "))
	g.Expect(w.order(names[2])).To(Equal("Stop "))
	g.Expect(w.order(names[0])).To(BeEmpty(), "while another may come back")
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Status).To(Equal(metav1.ConditionTrue))
	g.Expect(w.plane().Status.Operation.Type).To(Equal(controlplanev1.OperationRecover))

	w.recover("r1", names[1], names[2], names[0])
	w.once()
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Reason).To(Equal("RecoveryRefused"))
	g.Expect(w.order(names[0])).To(BeEmpty(), "it began with this one")
	w.recover("r1", names[0], names[2], names[1])
	w.once()
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Status).To(Equal(metav1.ConditionTrue))

	w.ends(names[1], "r1", "Succeeded")
	w.host(names[2], func(host *infrav1.QuoinHost) {
		conditions.Set(host, metav1.Condition{Type: infrav1.HostFencedCondition, Status: metav1.ConditionTrue,
			Reason: infrav1.HostFencedReason})
	})
	w.once()
	g.Expect(w.order(names[0])).To(Equal("Survive n-" + names[0]))
	w.ends(names[0], "r1", "Succeeded")
	w.etcd.noQuorum = false
	w.etcd.members = w.etcd.members[:1]
	w.etcd.members[0].Leader, w.etcd.members[0].Answers, w.etcd.members[0].Problem = true, true, ""
	for range 3 {
		w.once()
	}
	for _, name := range names[1:] {
		g.Expect(w.machine(name).Annotations).To(HaveKey(clusterv1.RemediateMachineAnnotation))
	}
	g.Expect(w.machine(names[0]).Annotations).NotTo(HaveKey(clusterv1.RemediateMachineAnnotation))
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Reason).To(Equal("Recovered"))
	for _, name := range names {
		g.Expect(w.order(name)).To(BeEmpty())
	}

	// A manager was killed before it had freed the last host: the next one does, and the recovery stays complete.
	infra := w.infra(names[0])
	infra.Spec.EtcdRecovery = &infrav1.EtcdRecoveryOrder{ID: "r1", Action: infrav1.EtcdRecoverySurvive, Member: "n-" +
		names[0]}
	g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
	w.once()
	g.Expect(w.order(names[0])).To(BeEmpty())
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Reason).To(Equal("Recovered"))

	// The next loss is another one.
	w.etcd.noQuorum = true
	w.etcd.members[0].Leader, w.etcd.members[0].Answers = false, false
	for range 3 {
		w.once()
	}
	g.Expect(w.order(names[0])).To(BeEmpty())
}

// What hosts did under an id, before another one began, is no part of what is asked for under it afterwards.
func TestARecoveryThatIsPutBackAfterAnotherOneGivesNoOrder(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	w.recover("r1", names[0], names[1], names[2])
	for range 5 {
		w.once()
	}
	w.ends(names[1], "r1", "Succeeded")
	w.recover("r2", names[1], names[0], names[2])
	for range 5 {
		w.once()
	}
	w.ends(names[0], "r2", "Succeeded")
	w.ends(names[2], "r2", "Succeeded")
	w.once()
	g.Expect(w.order(names[1])).To(Equal("Survive n-" + names[1]))
	w.ends(names[1], "r2", "Failed")

	w.recover("r1", names[0], names[1], names[2])
	for range 5 {
		w.once()
	}
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition)).To(And(HaveField("Reason", "RecoveryRefused"),
		HaveField("Message", ContainSubstring("ask under another one"))))
	for _, name := range names {
		g.Expect(w.infra(name).Spec.EtcdRecovery.ID).To(Equal("r2"))
	}
}

// A recovery goes on only with the snapshot whose data were there when it began.
func TestARecoveryThatHasBegunKeepsTheDigestOfItsSnapshot(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	const snapshot = "20261121T120000Z-5f3a2c91b044.db"
	stored, another := strings.Repeat("aa", 32), strings.Repeat("bb", 32)
	named := func(digest string) {
		t.Helper()
		w.edit(func(plane *controlplanev1.QuoinControlPlane) {
			plane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: names[0], GiveUp: names[1:],
				Snapshot: &controlplanev1.RecoverySnapshot{Name: snapshot, SHA256: digest}}
		})
	}
	w.edit(func(plane *controlplanev1.QuoinControlPlane) {
		plane.Spec.Backup = &controlplanev1.EtcdBackup{
			Store: controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "site"}}}
	})
	named("")
	w.once()
	plane := w.plane()
	plane.Status.Backup = &controlplanev1.EtcdBackupStatus{Restore: &controlplanev1.EtcdRestoreStatus{RecoveryID: "r1",
		Machine: names[0], Snapshot: snapshot, SnapshotSHA256: stored, SHA256: strings.Repeat("cc", 32)}}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	w.once()
	g.Expect(w.plane().Annotations[controlplanev1.RecoveryAnnotation]).To(And(ContainSubstring(`"state":"Begun"`),
		ContainSubstring(`"snapshotSHA256":"`+stored+`"`)))
	for _, name := range names[1:] {
		w.ends(name, "r1", "Succeeded")
	}

	named(another)
	for range 3 {
		w.once()
	}
	recovering := w.condition(controlplanev1.ControlPlaneRecoveringCondition)
	g.Expect(recovering.Reason).To(Equal("RecoveryRefused"))
	g.Expect(recovering.Message).To(ContainSubstring("another snapshot, by its name or its digest"))
	g.Expect(w.order(names[1])+w.order(names[0])).To(BeEmpty(), "nobody goes on with it")

	named(stored)
	for range 3 {
		w.once()
	}
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Reason).NotTo(Equal("RecoveryRefused"))
	g.Expect(w.order(names[1])).To(Equal("Stop "))
}

// Objects that are restored without their status know that there was a cluster by the provider IDs of their Machines,
// and its Nodes by their hosts: a recovery begins although no API server answers. That one has is said once it does.
func TestARecoveryGoesByObjectsThatLostTheirStatus(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	w.r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
	w.r.history.Forget(w.plane().UID)
	plane := w.plane()
	plane.Status = controlplanev1.QuoinControlPlaneStatus{}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	for _, name := range names {
		machine, infra := w.machine(name), w.infra(name)
		machine.Status = clusterv1.MachineStatus{}
		g.Expect(w.mgmt.Status().Update(t.Context(), machine)).To(Succeed())
		infra.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: "n-" + name}}
		g.Expect(w.mgmt.Status().Update(t.Context(), infra)).To(Succeed())
	}
	w.once() // sets the condition Paused
	w.passElection()
	g.Expect(w.plane().Status.Operation.WaitingOn).To(ContainSubstring("QuorumLost"))
	w.recover("r1", names[0], names[1], names[2])
	for range 5 {
		w.once()
	}
	for _, name := range names[1:] {
		g.Expect(w.order(name)).To(Equal("Stop "))
		w.ends(name, "r1", "Succeeded")
	}
	w.once()
	g.Expect(w.order(names[0])).To(Equal("Survive n-" + names[0]))
	answered := func() []any {
		return []any{w.plane().Status.Initialization.ControlPlaneInitialized,
			w.condition(controlplanev1.ControlPlaneInitializedCondition).Status}
	}
	g.Expect(answered()).To(Equal([]any{(*bool)(nil), metav1.ConditionFalse}))
	for _, name := range names {
		g.Expect(w.machine(name).Status.NodeRef.Name).To(BeEmpty(), "it is for Cluster API to say")
	}

	w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Namespace: namespace, Name: "c"},
		"quoincontrolplane-nodes")
	w.once()
	g.Expect(answered()).To(Equal([]any{ptr.To(true), metav1.ConditionTrue}))
}

// What cannot be written to Machines holds no recovery up: nothing else is done while there is no quorum.
func TestFailuresDoNotHoldUpARecovery(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": "b"}
	})
	w.refuseApply = true
	w.recover("r1", names[0], names[1], names[2])
	steps := func() {
		t.Helper()
		for range 5 {
			_, err := w.r.Reconcile(t.Context(), request())
			g.Expect(err).To(MatchError(ContainSubstring("admission says no")))
		}
	}
	steps()
	g.Expect(w.order(names[1])).To(Equal("Stop "))
	g.Expect(w.order(names[2])).To(Equal("Stop "))
	w.ends(names[1], "r1", "Succeeded")
	w.ends(names[2], "r1", "Succeeded")
	steps()
	g.Expect(w.order(names[0])).To(Equal("Survive n-" + names[0]))
}

// Neither an election nor a reading that failed begins a recovery. When it stays so, one begins.
func TestARecoveryAwaitsAnElection(t *testing.T) {
	for name, unread := range map[string]error{"nobody agrees": nil, "nobody answers": errors.New("no member answered")} {
		t.Run(name, func(t *testing.T) {
			w, names := losesQuorum(t)
			g := w.g
			w.etcd.err = unread
			w.recover("r1", names[0], names[1], names[2])
			for range 5 {
				w.once()
			}
			g.Expect(w.order(names[1]) + w.order(names[2])).To(BeEmpty())
			g.Expect(w.plane().Annotations).NotTo(HaveKey(controlplanev1.RecoveryAnnotation))
			g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition)).To(And(
				HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.QuorumLostReason),
				HaveField("Message", ContainSubstring("it is waited for, for 1m0s"))))
			w.passElection()
			for range 4 {
				w.once()
			}
			g.Expect(w.order(names[1])).To(Equal("Stop "))
			g.Expect(w.order(names[2])).To(Equal("Stop "))
			g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Status).To(Equal(metav1.ConditionTrue))
		})
	}
}

func TestARecoveryThatIsNeedlessIsVoidForGood(t *testing.T) {
	w, names := lostQuorum(t)
	g := w.g
	w.etcd.noQuorum = false
	w.recover("r1", names[0], names[1], names[2])
	w.once()
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition).Reason).To(Equal("RecoveryVoid"))
	w.etcd.noQuorum = true
	for range 3 {
		w.once()
	}
	g.Expect(w.order(names[1])).To(BeEmpty())
	w.recover("r2", names[0], names[1], names[2])
	w.passElection()
	for range 3 {
		w.once()
	}
	g.Expect(w.order(names[1])).To(Equal("Stop "), "another id is another word")

	w.ends(names[1], "r2", "Failed")
	w.once()
	g.Expect(w.condition(controlplanev1.ControlPlaneRecoveringCondition)).
		To(And(HaveField("Reason", "RecoveryFailed"), HaveField("Message", ContainSubstring("its words"))))
	g.Expect(w.order(names[0])).To(BeEmpty())
}
