// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// three brings a control plane of three Machines up and names them by age.
func three(t *testing.T, edit ...func(*controlplanev1.QuoinControlPlane)) (*world, []string) {
	t.Helper()
	w := newWorld(t, 3, edit...)
	names := []string{initialized(t, w)}
	for len(names) < 3 {
		name := w.fresh(names...)
		w.provision(name)
		w.hold(name)
		names = append(names, name)
		w.reconcile()
	}
	return w, names
}

// fresh is the one Machine that is not among those that are known.
func (w *world) fresh(known ...string) string {
	w.t.Helper()
	var found []string
	for _, machine := range w.machines() {
		old := false
		for _, name := range known {
			old = old || name == machine.Name
		}
		if !old {
			found = append(found, machine.Name)
		}
	}
	w.g.Expect(found).To(HaveLen(1))
	return found[0]
}

func (w *world) setConditions(name string, set ...metav1.Condition) {
	w.t.Helper()
	machine := w.machine(name)
	for _, condition := range set {
		conditions.Set(machine, condition)
	}
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), machine)).To(Succeed())
}

// mark does what a MachineHealthCheck does with an unhealthy Machine.
func (w *world) mark(name string) {
	w.t.Helper()
	w.setConditions(name,
		metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason, Message: "its Node does not report"},
		metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, Message: "Waiting for remediation"})
}

func (w *world) annotate(name, key, value string) {
	w.t.Helper()
	machine := w.machine(name)
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	machine.Annotations[key] = value
	w.g.Expect(w.mgmt.Update(w.t.Context(), machine)).To(Succeed())
}

// silence the member of a Machine.
func (w *world) silence(name string) {
	for i := range w.etcd.members {
		if w.etcd.members[i].Name == "n-"+name {
			w.etcd.members[i].Answers, w.etcd.members[i].Problem = false, "connection refused"
			if w.etcd.members[i].Leader {
				w.etcd.members[i].Leader, w.etcd.members[(i+1)%len(w.etcd.members)].Leader = false, true
			}
		}
	}
}

// spareHost is one that a replacement could have.
func (w *world) spareHost() {
	w.t.Helper()
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "another"}}
	w.g.Expect(w.mgmt.Create(w.t.Context(), host)).To(Succeed())
	host.Status.State = infrav1.HostStateAvailable
	conditions.Set(host, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
		Reason: infrav1.HostAvailableReason})
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
}

func (w *world) host(name string, change func(*infrav1.QuoinHost)) {
	w.t.Helper()
	host := &infrav1.QuoinHost{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: "hosts", Name: "h-" + name}, host)).To(Succeed())
	status := host.DeepCopy()
	change(status)
	host.Spec = status.Spec
	w.g.Expect(w.mgmt.Update(w.t.Context(), host)).To(Succeed())
	host.Status = status.Status
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
}

// failed is a QuoinMachine whose bootstrap data failed for good.
func (w *world) failed(name string) {
	w.t.Helper()
	infra := w.infra(name)
	conditions.Set(infra, metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostStepFailedReason, Message: "host hosts/x: step kubeadm-join failed"})
	infra.Spec.ProviderID = "quoin://hosts/h-x/9"
	w.g.Expect(w.mgmt.Update(w.t.Context(), infra)).To(Succeed())
	conditions.Set(infra, metav1.Condition{Type: infrav1.MachineHostProvisionedCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostStepFailedReason, Message: "host hosts/x: step kubeadm-join failed"})
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), infra)).To(Succeed())
}

func (w *world) ownerRemediated(name string) *metav1.Condition {
	return conditions.Get(w.machine(name), clusterv1.MachineOwnerRemediatedCondition)
}

// Proves: S2-10
//
// A dead member that a health check marked goes first, its replacement knows what it is for, and the count outlives the
// status.
func TestMarkedMachineIsReplaced(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.silence(names[1])
	w.once()
	w.once()
	w.mark(names[1])
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).NotTo(BeNil())
	w.once()
	g.Expect(w.ownerRemediated(names[1])).To(And(HaveField("Status", metav1.ConditionFalse),
		HaveField("Reason", reasonMachineDeleting)))
	g.Expect(w.plane().Annotations).To(HaveKeyWithValue(controlplanev1.RemediationInProgressAnnotation,
		ContainSubstring(names[1])))
	g.Expect(w.plane().Status.LastRemediation).
		To(And(HaveField("Machine", names[1]), HaveField("RetryCount", HaveValue(BeEquivalentTo(0)))))
	g.Expect(w.admitted()).To(HaveLen(3), "nothing joins before it is gone")

	w.drained(names[1])
	w.reconcile()
	g.Expect(w.etcd.removed).To(Equal([]uint64{2}))
	w.gone(names[1])
	w.reconcile()
	fresh := w.fresh(names...)
	g.Expect(w.machine(fresh).Annotations).To(HaveKeyWithValue(controlplanev1.RemediationForAnnotation,
		ContainSubstring(names[1])))
	g.Expect(w.plane().Annotations).NotTo(HaveKey(controlplanev1.RemediationInProgressAnnotation))
	w.provision(fresh)
	w.reconcile()
	g.Expect(w.machine(fresh).Annotations).To(HaveKey(controlplanev1.RemediationForAnnotation),
		"what is propagated does not take it away")
	g.Expect(w.condition(controlplanev1.ControlPlaneRemediatingCondition)).To(HaveField("Status", metav1.ConditionFalse))

	// A move of the objects takes status away.
	plane := w.plane()
	plane.Status = controlplanev1.QuoinControlPlaneStatus{}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	w.reconcile()
	g.Expect(w.plane().Status.LastRemediation).To(HaveField("Machine", names[1]))
}

// A node that is broken beside a member that is well gets its replacement first.
func TestReplacementComesFirstWhenAHostIsFree(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.spareHost()
	w.annotate(names[2], clusterv1.RemediateMachineAnnotation, "")
	w.once()
	fresh := w.fresh(names...)
	g.Expect(w.machine(names[2]).DeletionTimestamp).To(BeNil())
	g.Expect(w.machine(fresh).Annotations).To(HaveKeyWithValue(controlplanev1.RemediationForAnnotation,
		ContainSubstring(names[2])))
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(4), "one at a time")
	g.Expect(w.ownerRemediated(names[2])).To(And(HaveField("Reason", reasonRemediationDeferred),
		HaveField("Message", ContainSubstring(fresh))))
	g.Expect(w.condition(controlplanev1.ControlPlaneRemediatingCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring(names[2]))))
	w.provision(fresh)
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machine(names[2]).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.plane().Annotations).NotTo(HaveKey(controlplanev1.RemediationInProgressAnnotation),
		"its place is taken already")
}

// Without a mark any more, and with an annotation that forbids it, nothing happens.
func TestMarksThatDoNotCount(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.silence(names[1])
	w.annotate(names[1], clusterv1.MachineSkipRemediationAnnotation, "")
	w.mark(names[1])
	w.reconcile()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil())
	g.Expect(w.ownerRemediated(names[1]).Message).To(ContainSubstring(clusterv1.MachineSkipRemediationAnnotation))
	w.setConditions(names[1], metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition,
		Status: metav1.ConditionTrue, Reason: "Succeeded"})
	machine := w.machine(names[1])
	delete(machine.Annotations, clusterv1.MachineSkipRemediationAnnotation)
	g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil())
	g.Expect(w.ownerRemediated(names[1])).To(BeNil(), "it is well again")
}

// A join that failed is tried as often as the spec says, and once more when a person says so.
func TestRetriesAreCounted(t *testing.T) {
	w := newWorld(t, 3, func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.Remediation.MaxRetry, p.Spec.Remediation.RetryPeriodSeconds = ptr.To[int32](1), ptr.To[int32](0)
	})
	g := w.g
	first := initialized(t, w)
	for retry := range int32(2) {
		name := w.fresh(first)
		w.hold(name)
		w.failed(name)
		w.reconcile()
		g.Expect(w.machine(name).DeletionTimestamp).NotTo(BeNil())
		g.Expect(w.plane().Status.LastRemediation.RetryCount).To(HaveValue(Equal(retry)))
		w.drained(name)
		w.reconcile()
		w.gone(name)
		w.reconcile()
	}
	last := w.fresh(first)
	w.hold(last)
	w.failed(last)
	w.reconcile()
	g.Expect(w.machine(last).DeletionTimestamp).To(BeNil())
	g.Expect(w.ownerRemediated(last)).To(And(HaveField("Reason", reasonCannotBeRemediated),
		HaveField("Message", ContainSubstring("maxRetry"))))
	g.Expect(w.condition(controlplanev1.ControlPlaneRemediatingCondition)).
		To(And(HaveField("Status", metav1.ConditionTrue),
			HaveField("Reason", controlplanev1.RemediationRetriesExhaustedReason)))
	w.annotate(last, clusterv1.RemediateMachineAnnotation, "")
	w.reconcile()
	g.Expect(w.machine(last).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.plane().Status.LastRemediation.RetryCount).To(HaveValue(BeEquivalentTo(0)))
}

// kubeadm init that failed is tried again before there is a cluster.
func TestInitIsTriedAgain(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	w.reconcile()
	first := w.machines()[0].Name
	w.hold(first)
	w.failed(first)
	w.reconcile()
	g.Expect(w.machine(first).DeletionTimestamp).NotTo(BeNil())
	w.drained(first)
	w.reconcile()
	w.gone(first)
	w.reconcile()
	second := w.fresh()
	g.Expect(w.machine(second).Annotations).To(HaveKeyWithValue(controlplanev1.RemediationForAnnotation,
		ContainSubstring(first)))
}

// The manager dies between the note and the deletion: the count is right all the same.
func TestAttemptIsRecordedBeforeTheDeletion(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.silence(names[1])
	w.once()
	w.once()
	w.mark(names[1])
	w.failDelete = true
	_, err := w.r.Reconcile(t.Context(), request())
	g.Expect(err).To(HaveOccurred())
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil())
	g.Expect(w.plane().Annotations).To(HaveKey(controlplanev1.RemediationInProgressAnnotation))
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.plane().Status.LastRemediation.RetryCount).To(HaveValue(BeEquivalentTo(0)))
}

// Somebody deletes a QuoinMachine: its Machine is replaced in order.
func TestDeletedInfrastructureIsReplaced(t *testing.T) {
	w, names := three(t)
	g := w.g
	w.spareHost()
	// With its finalizer torn off; Cluster API says so on the Machine.
	g.Expect(w.mgmt.Delete(t.Context(), w.infra(names[0]))).To(Succeed())
	w.setConditions(names[0], metav1.Condition{Type: clusterv1.MachineInfrastructureReadyCondition,
		Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineInfrastructureDeletedReason})
	w.reconcile()
	g.Expect(w.machine(names[0]).DeletionTimestamp).To(BeNil(), "the replacement comes first")
	fresh := w.fresh(names...)
	w.provision(fresh)
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machine(names[0]).DeletionTimestamp).NotTo(BeNil())
}

// A dead disk under etcd, on a host that answers: no health check sees it, because the Node may be Ready. Its time
// begins with its silence, however long it was ill before.
func TestDeadMemberOnALivingHost(t *testing.T) {
	w, names := three(t)
	g, clock := w.g, clocktesting.NewFakePassiveClock(time.Now())
	w.r.Clock = clock
	w.silence(names[1])
	w.host(names[1], func(host *infrav1.QuoinHost) {
		conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionTrue,
			Reason:             infrav1.HostReachableReason,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))})
	})
	w.reconcile()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil())
	member := conditions.Get(w.machine(names[1]), controlplanev1.MachineEtcdMemberHealthyCondition)
	g.Expect(member.Status).To(Equal(metav1.ConditionFalse))

	long := member.DeepCopy()
	long.LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	machine := w.machine(names[1])
	machine.SetConditions(append([]metav1.Condition{*long}, otherConditions(machine, long.Type)...))
	g.Expect(w.mgmt.Status().Update(t.Context(), machine)).To(Succeed())
	// A full disk is no dead one: a new member would be as full.
	w.etcd.members[1].Alarms = []string{"NOSPACE"}
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil())
	w.etcd.members[1].Alarms = nil
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "its silence begins with the room that was made")
	for range 2 {
		clock.SetTime(clock.Now().Add(4 * time.Minute))
		w.once()
		g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "it may be starting again")
	}
	clock.SetTime(clock.Now().Add(4 * time.Minute))
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.plane().Status.LastRemediation.Machine).To(Equal(names[1]))
}

// A manager that starts again ever so often, but looks at least every five minutes, calls a member dead all the same.
func TestADeadMemberIsReplacedThoughTheManagerRestarts(t *testing.T) {
	w, names := three(t)
	g, clock := w.g, clocktesting.NewFakePassiveClock(time.Now())
	w.r.Clock, w.r.Timings = clock, DefaultTimings()
	w.silence(names[1])
	w.host(names[1], func(host *infrav1.QuoinHost) {
		conditions.Set(host, metav1.Condition{Type: infrav1.HostReachableCondition, Status: metav1.ConditionTrue,
			Reason:             infrav1.HostReachableReason,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))})
	})
	w.once()
	for range 2 {
		clock.SetTime(clock.Now().Add(4 * time.Minute))
		w.r.history.Forget(w.plane().UID)
		w.once()
		g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "it may be starting again")
	}
	clock.SetTime(clock.Now().Add(4 * time.Minute))
	w.r.history.Forget(w.plane().UID)
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "this process has missed it in one reading")
	clock.SetTime(clock.Now().Add(w.r.Timings.DeadMember))
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).To(BeNil(), "and in a second one")
	clock.SetTime(clock.Now().Add(2 * time.Second))
	w.once()
	g.Expect(w.machine(names[1]).DeletionTimestamp).NotTo(BeNil())
}

func otherConditions(machine *clusterv1.Machine, without string) []metav1.Condition {
	var kept []metav1.Condition
	for _, condition := range machine.GetConditions() {
		if condition.Type != without {
			kept = append(kept, condition)
		}
	}
	return kept
}

// Two Nodes whose kubelets fell silent together are not two dead Machines.
func TestCorrelatedLossSuspends(t *testing.T) {
	w, names := three(t)
	g := w.g
	since := time.Now().Add(-20 * time.Minute)
	for i, name := range names[1:] {
		node := &corev1.Node{}
		g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Name: "n-" + name}, node)).To(Succeed())
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			LastTransitionTime: metav1.NewTime(since.Add(time.Duration(i) * time.Minute))}}
		g.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
		w.mark(name)
	}
	w.silence(names[2])
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3))
	for _, name := range names {
		g.Expect(w.machine(name).DeletionTimestamp).To(BeNil())
	}
	g.Expect(w.condition(controlplanev1.ControlPlaneRemediatingCondition)).
		To(And(HaveField("Status", metav1.ConditionTrue),
			HaveField("Reason", controlplanev1.RemediationSuspendedReason), HaveField("Message", ContainSubstring("together"))))
	g.Expect(w.ownerRemediated(names[1]).Message).To(ContainSubstring("together"))
	// The first is back.
	node := &corev1.Node{}
	g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Name: "n-" + names[1]}, node)).To(Succeed())
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	g.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	w.setConditions(names[1], metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition,
		Status: metav1.ConditionTrue, Reason: "Succeeded"})
	w.reconcile()
	g.Expect(w.machine(names[2]).DeletionTimestamp).NotTo(BeNil(), "one that is alone with its loss is replaced")
}

// A quorum that is lost is said to be lost, and nothing is done about it. An election is no loss, however long one
// member has been dead before, so it is said when the quorum was away for a minute. It stays said when the manager
// starts again.
func TestLostQuorumIsSaid(t *testing.T) {
	w, names := three(t)
	g, clock := w.g, clocktesting.NewFakePassiveClock(time.Now())
	w.r.Clock = clock
	w.spareHost()
	elects := func(elects bool) {
		w.etcd.noQuorum = elects
		for i := range w.etcd.members {
			member := &w.etcd.members[i]
			member.Leader, member.Answers, member.Problem = !elects && i == 0, !elects && i != 2, "it sees no leader"
		}
	}
	both := []string{controlplanev1.ControlPlaneAvailableCondition,
		controlplanev1.ControlPlaneEtcdClusterHealthyCondition}
	operation := func() string {
		if operation := w.plane().Status.Operation; operation != nil {
			return operation.Message
		}
		return ""
	}
	saysNothing := func(why string) {
		t.Helper()
		for _, condition := range both {
			g.Expect(w.condition(condition).Reason).NotTo(Equal(controlplanev1.QuorumLostReason), why)
		}
		g.Expect(operation()).NotTo(ContainSubstring("spec.recovery"), why)
	}
	elects(false)
	w.once()
	plane := w.plane()
	for i := range plane.Status.Conditions {
		if plane.Status.Conditions[i].Type == controlplanev1.ControlPlaneEtcdClusterHealthyCondition {
			g.Expect(plane.Status.Conditions[i].Status).To(Equal(metav1.ConditionFalse))
			plane.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-48 * time.Hour))
		}
	}
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	elects(true)
	w.once()
	saysNothing("etcd may be electing a leader")
	g.Expect(operation()).To(ContainSubstring("it is waited for, for 1m0s"))
	clock.SetTime(clock.Now().Add(59 * time.Second))
	elects(false)
	w.once()
	saysNothing("it has elected one")

	elects(true)
	for _, name := range names {
		w.mark(name)
	}
	w.once()
	clock.SetTime(clock.Now().Add(59 * time.Second))
	w.reconcile()
	saysNothing("it is another election")
	clock.SetTime(clock.Now().Add(time.Second))
	w.reconcile()
	said := func() {
		t.Helper()
		for _, condition := range both {
			g.Expect(w.condition(condition)).To(And(HaveField("Status", metav1.ConditionFalse),
				HaveField("Reason", controlplanev1.QuorumLostReason), HaveField("Message", ContainSubstring("disaster-recovery"))))
		}
		g.Expect(operation()).To(ContainSubstring("spec.recovery"))
	}
	said()
	w.r.history.Forget(w.plane().UID)
	w.once()
	said()
	g.Expect(w.machines()).To(HaveLen(3))
	for _, name := range names {
		g.Expect(w.machine(name).DeletionTimestamp).To(BeNil())
	}
	g.Expect(w.etcd.removed).To(BeEmpty())
	elects(false)
	w.once()
	saysNothing("it is back")
}
