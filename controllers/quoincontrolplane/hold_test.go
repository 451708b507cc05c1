// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Proves: S2-28
func TestHoldsAreThereFromTheStart(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	g.Expect(w.hasDrainHook(name)).To(BeTrue())
	g.Expect(w.hasHook(name)).To(BeTrue())
	g.Expect(w.infra(name).Spec.LifecycleHooks.PreTerminate).To(ConsistOf(
		infrav1.LifecycleHook{Name: controlplanev1.HookName, Owner: "QuoinControlPlane/cp"}))

	// A Machine of an older time, or one that was moved without them, gets them again.
	machine := w.machine(name)
	delete(machine.Annotations, controlplanev1.PreDrainHookAnnotation)
	delete(machine.Annotations, controlplanev1.PreTerminateHookAnnotation)
	g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	infra := w.infra(name)
	infra.Spec.LifecycleHooks = infrav1.LifecycleHooks{PreTerminate: []infrav1.LifecycleHook{{Name: "backup",
		Owner: "somebody"}}}
	g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
	w.once()
	g.Expect(w.hasDrainHook(name)).To(BeTrue())
	g.Expect(w.hasHook(name)).To(BeTrue())
	g.Expect(w.infra(name).Spec.LifecycleHooks.PreTerminate).
		To(ConsistOf(HaveField("Name", "backup"), HaveField("Name", controlplanev1.HookName)))
}

// A drain begins when etcd can do without the member, and the hook does not come back.
//
// Proves: S2-6, S2-34
func TestDrainWaitsForTheReplacement(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(first))).To(Succeed())
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2), "a replacement is made although nothing is drained yet")
	g.Expect(w.hasDrainHook(first)).To(BeTrue())
	second := other(w, first)
	w.provision(second)
	w.hold(second)
	w.etcd.members[1].Learner = true
	w.reconcile()
	g.Expect(w.hasDrainHook(first)).To(BeTrue(), "a learner does not vote")
	operation := w.plane().Status.Operation
	g.Expect(operation).NotTo(BeNil())
	g.Expect(operation.Type).To(Equal(controlplanev1.OperationDepart))
	g.Expect(operation.Machine).To(Equal(first))
	g.Expect(operation.WaitingOn).To(Equal("QuorumAtRisk " + first))

	w.etcd.members[1].Learner = false
	w.reconcile()
	g.Expect(w.etcd.moved).To(Equal([]uint64{2}), "leadership goes before the drain")
	g.Expect(w.hasDrainHook(first)).To(BeFalse())
	g.Expect(w.hasHook(first)).To(BeTrue(), "the host is held until the member is gone")
	g.Expect(w.etcd.removed).To(BeEmpty())
	g.Expect(w.plane().Status.Operation.WaitingOn).To(Equal("Draining " + first))
}

// A Machine whose annotations were stripped is held by its QuoinMachine, and seen out all the same.
func TestStrippedHooksCostNoMember(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	first := initialized(t, w)
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(first))).To(Succeed())
	w.reconcile()
	second := other(w, first)
	machine := w.machine(first)
	machine.Annotations = nil
	g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	machine = w.machine(first)
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason, Message: "waiting"})
	g.Expect(w.mgmt.Status().Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	g.Expect(w.infra(first).Spec.LifecycleHooks.PreTerminate).NotTo(BeEmpty(), "its member is the only voter")
	w.provision(second)
	w.hold(second)
	w.reconcile()
	g.Expect(w.etcd.removed).To(Equal([]uint64{1}))
	g.Expect(w.infra(first).Spec.LifecycleHooks.PreTerminate).To(BeEmpty())
}

func TestDeletionOfTheControlPlaneReleasesAllHolds(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	g.Expect(w.mgmt.Delete(t.Context(), w.plane())).To(Succeed())
	w.reconcile()
	g.Expect(w.hasDrainHook(name)).To(BeFalse())
	g.Expect(w.hasHook(name)).To(BeFalse())
	g.Expect(w.infra(name).Spec.LifecycleHooks.PreTerminate).To(BeEmpty())
}

// Of an etcd that is somebody else's there is nothing to guard.
func TestExternalEtcdHoldsNoHost(t *testing.T) {
	g := NewWithT(t)
	plane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "cp"}}
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	g.Expect(addHostHook(plane, infra)).To(Succeed())
	g.Expect(infra.Object["spec"]).To(HaveKey("lifecycleHooks"))
	plane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.Endpoints = []string{"https://10.0.0.9:2379"}
	infra = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	g.Expect(addHostHook(plane, infra)).To(Succeed())
	g.Expect(infra.Object["spec"]).To(BeEmpty())
}
