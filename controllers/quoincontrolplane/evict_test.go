// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// replacedWorld has two Machines: first, which is deleted, may leave and was never drained, and its replacement. A pod
// runs on the node of first. evictions counts the calls of the Eviction API; while blocked, a disruption budget refuses
// them.
type evictionWorld struct {
	*world
	first     string
	blocked   bool
	evictions int
}

func newEvictionWorld(t *testing.T) *evictionWorld {
	w := &evictionWorld{world: newWorld(t, 1)}
	w.workload = interceptor.NewClient(w.workload.(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, resource string, object, sub client.Object,
			options ...client.SubResourceCreateOption) error {
			if resource == "eviction" {
				w.evictions++
				if w.blocked {
					return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 1)
				}
			}
			return c.SubResource(resource).Create(ctx, object, sub, options...)
		},
	})
	w.first = initialized(t, w.world)
	w.g.Expect(w.workload.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "app"}})).To(Succeed())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "one"},
		Spec: corev1.PodSpec{NodeName: "n-" + w.first}}
	w.g.Expect(w.workload.Create(t.Context(), pod)).To(Succeed())
	w.g.Expect(w.mgmt.Delete(t.Context(), w.machine(w.first))).To(Succeed())
	w.undrained(w.first)
	w.reconcile()
	second := other(w.world, w.first)
	w.provision(second)
	w.hold(second)
	return w
}

func (w *evictionWorld) podIsThere() bool {
	err := w.workload.Get(w.t.Context(), client.ObjectKey{Namespace: "app", Name: "one"}, &corev1.Pod{})
	w.g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err == nil
}

func (w *evictionWorld) node() (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, w.workload.Get(w.t.Context(), client.ObjectKey{Name: "n-" + w.first}, node)
}

// The only control-plane Machine is deleted by a person. Cluster API sees none that stays and skips the drain.
//
// Proves: S2-1, S2-20
func TestANodeThatClusterAPIDidNotDrainIsDrainedBeforeItsMemberGoes(t *testing.T) {
	w := newEvictionWorld(t)
	w.blocked = true
	w.reconcile()
	node, err := w.node()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(node.Spec.Unschedulable).To(BeTrue(), "cordoned")
	w.g.Expect(w.evictions).To(BeNumerically(">", 0))
	w.g.Expect(w.etcd.removed).To(BeEmpty(), "the kubelet drains by way of its own API server and etcd member")
	w.g.Expect(w.hasHook(w.first)).To(BeTrue())
	w.g.Expect(w.machine(w.first).Annotations).To(HaveKey(controlplanev1.EvictionStartedAnnotation))

	w.blocked = false
	w.reconcile()
	w.g.Expect(w.podIsThere()).To(BeFalse())
	w.g.Expect(w.machine(w.first).Annotations).To(HaveKey(controlplanev1.EvictionEndedAnnotation))
	w.g.Expect(w.etcd.removed).To(Equal([]uint64{1}))
	w.g.Expect(w.hasHook(w.first)).To(BeFalse())
	_, err = w.node()
	w.g.Expect(err).NotTo(HaveOccurred(), "the replacement stays, so Cluster API deletes the Node after the host")
}

func TestAnEvictionEndsWhenItsTimeIsOver(t *testing.T) {
	w := newEvictionWorld(t)
	w.blocked = true
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](60)
	})
	w.reconcile()
	w.g.Expect(w.etcd.removed).To(BeEmpty())
	machine := w.machine(w.first)
	machine.Annotations[controlplanev1.EvictionStartedAnnotation] = time.Now().Add(-2 * time.Minute).UTC().
		Format(time.RFC3339)
	w.g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	w.g.Expect(w.etcd.removed).To(Equal([]uint64{1}))
	w.g.Expect(w.podIsThere()).To(BeTrue())
}

func TestAnExcludedNodeIsNotEvicted(t *testing.T) {
	w := newEvictionWorld(t)
	machine := w.machine(w.first)
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
	w.g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	w.g.Expect(w.evictions).To(BeZero())
	w.g.Expect(w.etcd.removed).To(Equal([]uint64{1}))
}

// Every control-plane Machine is being deleted: Cluster API will not delete the Node either.
//
// Proves: S2-19
func TestANodeThatClusterAPIWillNotDeleteIsDeleted(t *testing.T) {
	w, _ := three(t)
	g := w.g
	g.Expect(w.machines()).To(HaveLen(3))
	w.noSpare()
	for _, machine := range w.machines() {
		g.Expect(w.mgmt.Delete(t.Context(), &machine)).To(Succeed())
		w.undrained(machine.Name)
	}
	w.reconcile()
	g.Expect(w.etcd.removed).To(HaveLen(1), "one at a time")
	released := ""
	for _, machine := range w.machines() {
		if !w.hasHook(machine.Name) {
			released = machine.Name
		}
	}
	g.Expect(released).NotTo(BeEmpty())
	err := w.workload.Get(t.Context(), client.ObjectKey{Name: "n-" + released}, &corev1.Node{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the host would come back under the old Node")
}

// Somebody took the label off a Machine by which the control plane knows it. Its member seems to be nobody's, and is
// not.
func TestTheMemberOfAMachineWithoutItsLabelStays(t *testing.T) {
	w, names := three(t)
	machine := w.machine(names[1])
	label := machine.Labels[clusterv1.MachineControlPlaneLabel]
	delete(machine.Labels, clusterv1.MachineControlPlaneLabel)
	w.g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	for range 3 {
		_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		w.g.Expect(err).To(MatchError(ContainSubstring("give the Machine its label")))
	}
	w.g.Expect(w.etcd.removed).To(BeEmpty())
	w.g.Expect(w.machines()).To(HaveLen(3))

	machine = w.machine(names[1])
	machine.Labels[clusterv1.MachineControlPlaneLabel] = label
	w.g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	w.g.Expect(w.machines()).To(HaveLen(3))
	w.g.Expect(w.etcd.removed).To(BeEmpty())
}

// A Machine's finalizer was stripped: its QuoinMachine is collected, and its Node stays behind.
func TestWhatAMachineThatVanishedLeavesIsSeenOut(t *testing.T) {
	w, names := three(t)
	g, second := w.g, names[1]
	infra := w.infra(second)
	infra.Finalizers = []string{infrav1.MachineFinalizer}
	infra.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: "n-" + second}}
	status := infra.Status.DeepCopy()
	g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
	infra.Status = *status
	g.Expect(w.mgmt.Status().Update(t.Context(), infra)).To(Succeed())
	machine := w.machine(second)
	machine.Finalizers = nil
	g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	g.Expect(w.mgmt.Delete(t.Context(), machine)).To(Succeed())
	w.reconcile()
	g.Expect(w.etcd.removed).To(BeEmpty(), "its member is not nobody's before its QuoinMachine is collected")
	g.Expect(w.mgmt.Delete(t.Context(), infra)).To(Succeed())
	node := &corev1.Node{}
	g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Name: "n-" + second}, node)).To(Succeed())
	node.Labels = map[string]string{observe.ControlPlaneNodeLabel: ""}
	node.Annotations = map[string]string{clusterv1.MachineAnnotation: second, clusterv1.ClusterNameAnnotation: "c",
		clusterv1.ClusterNamespaceAnnotation: namespace}
	node.Spec.ProviderID = infra.Spec.ProviderID
	g.Expect(w.workload.Update(t.Context(), node)).To(Succeed())

	w.reconcile()
	g.Expect(w.etcd.removed).To(BeEmpty(), "a host is free, so another one votes first")
	w.noSpare()
	w.reconcile()
	g.Expect(w.etcd.removed).To(Equal([]uint64{2}), "its member left as any other does")
	g.Expect(w.infra(second).Spec.LifecycleHooks.PreTerminate).To(BeEmpty(), "and nothing keeps its host")

	infra = w.infra(second)
	infra.Finalizers = nil
	g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
	host := w.hostOf(second)
	host.Spec.ConsumerRef = nil
	g.Expect(w.mgmt.Update(t.Context(), host)).To(Succeed())
	w.once()
	g.Expect(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node)).
		To(Succeed(), "its kubelet still reports")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	g.Expect(w.workload.Status().Update(t.Context(), node)).To(Succeed())
	w.reconcile()
	g.Expect(apierrors.IsNotFound(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node))).To(BeTrue())
}
