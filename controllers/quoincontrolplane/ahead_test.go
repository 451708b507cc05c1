// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

func isHeld(machine client.Object) bool {
	_, held := machine.GetAnnotations()[infrav1.HoldClaimAnnotation]
	return held
}

// admitted are the Machines that may have a host.
func (w *world) admitted() []clusterv1.Machine {
	w.t.Helper()
	return slices.DeleteFunc(w.machines(), func(machine clusterv1.Machine) bool { return isHeld(&machine) })
}

// ahead names the one Machine that was made ahead.
func (w *world) ahead() string {
	w.t.Helper()
	held := slices.DeleteFunc(w.machines(), func(machine clusterv1.Machine) bool { return !isHeld(&machine) })
	w.g.Expect(held).To(HaveLen(1))
	return held[0].Name
}

// spareIn makes a host of a failure domain that is free.
func (w *world) spareIn(domain string) {
	w.t.Helper()
	w.spare("spare-" + domain)
	host := &infrav1.QuoinHost{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "spare-" + domain}, host)).
		To(Succeed())
	host.Spec.FailureDomain = domain
	w.g.Expect(w.mgmt.Update(w.t.Context(), host)).To(Succeed())
	cluster := &clusterv1.Cluster{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster)).To(Succeed())
	cluster.Status.FailureDomains = []clusterv1.FailureDomain{{Name: domain, ControlPlane: ptr.To(true)}}
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), cluster)).To(Succeed())
}

// draining is a control plane of three of which the first Machine is drained, because all are outdated and no host is
// free.
func draining(t *testing.T) (w *world, names []string, leaver, ahead string) {
	t.Helper()
	w, names = three(t)
	w.reconcile()
	w.noSpare()
	w.edit(outdate)
	w.reconcile()
	for _, name := range names {
		if !w.machine(name).DeletionTimestamp.IsZero() {
			leaver = name
		}
	}
	ahead = w.ahead()
	return w, names, leaver, ahead
}

// The next Machine gets all but a host while the one before it is drained, and counts for nothing until it may join.
func TestTheNextMachineIsMadeAhead(t *testing.T) {
	w, _, leaver, ahead := draining(t)
	g := w.g
	w.reconcile()
	g.Expect(w.ahead()).To(Equal(ahead), "one is enough")
	config := &bootstrapv1.KubeadmConfig{}
	g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: ahead}, config)).To(Succeed())
	g.Expect(config.Spec.JoinConfiguration.ControlPlane).NotTo(BeNil(), "its bootstrap data can be made")
	g.Expect(w.machine(ahead).Spec.FailureDomain).To(BeEmpty())
	g.Expect(w.hasDrainHook(ahead)).To(BeTrue())
	g.Expect(w.plane().Status.Replicas).To(HaveValue(BeEquivalentTo(3)))
	g.Expect(w.plane().Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(0)))
	g.Expect(w.plane().Status.Operation).To(And(HaveField("Type", controlplanev1.OperationRollout),
		HaveField("Machine", leaver)))

	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"team": "a"}
	})
	w.reconcile()
	g.Expect(w.machine(ahead).Labels).To(HaveKeyWithValue("team", "a"))
	g.Expect(w.ahead()).To(Equal(ahead), "what is propagated admits nobody")

	w.drained(leaver)
	w.once()
	g.Expect(w.etcd.members).To(HaveLen(2))
	g.Expect(w.ahead()).To(Equal(ahead), "it joins when the other is out")
	w.spareIn("r1")
	w.reconcile()
	g.Expect(w.hasHook(leaver)).To(BeFalse())
	g.Expect(w.machine(ahead)).To(WithTransform(func(m *clusterv1.Machine) bool { return isHeld(m) }, BeFalse()))
	g.Expect(w.machine(ahead).Spec.FailureDomain).To(Equal("r1"), "where it goes is said when it may")
	g.Expect(w.machine(ahead).Labels).To(HaveKeyWithValue("team", "a"))
	g.Expect(w.plane().Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(1)))
	g.Expect(w.admitted()).To(HaveLen(4), "the one that left is still there, and no other is made")
}

// joins lets a step of the Machine's bootstrap data run on its host since a while, or ends them.
func (w *world) joins(name string, phase string, step string, since time.Duration) {
	w.t.Helper()
	host := &infrav1.QuoinHost{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: "hosts", Name: "h-" + name}, host)).To(Succeed())
	host.Status.Operation = &infrav1.HostOperation{ID: infrav1.ProvisionOperation("1"), Phase: phase, Step: step,
		Since: ptr.To(metav1.NewTime(time.Now().Add(-since)))}
	w.g.Expect(w.mgmt.Status().Update(w.t.Context(), host)).To(Succeed())
}

// A host is news for its control plane when kubeadm join begins there, and then only.
func TestAJoinThatBeginsIsNewsForItsControlPlane(t *testing.T) {
	w, names, joins, _ := joiningFourth(t)
	host := &infrav1.QuoinHost{}
	w.g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: "hosts", Name: "h-" + joins}, host)).To(Succeed())
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: joins, Machine: joins}
	before, began, goesOn := host.DeepCopy(), host.DeepCopy(), host.DeepCopy()
	before.Status.Operation = &infrav1.HostOperation{Step: "pre-kubeadm"}
	began.Status.Operation = &infrav1.HostOperation{Step: infrav1.HostOperationStepJoin}
	goesOn.Status.Operation = &infrav1.HostOperation{Step: infrav1.HostOperationStepJoin,
		Phase: infrav1.HostOperationRunning}
	news := hostBeganToJoin()
	w.g.Expect(news.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: began})).To(BeTrue())
	w.g.Expect(news.Update(event.UpdateEvent{ObjectOld: began, ObjectNew: goesOn})).To(BeFalse())
	w.g.Expect(news.Update(event.UpdateEvent{ObjectOld: goesOn, ObjectNew: before})).To(BeFalse())

	w.g.Expect(w.r.controlPlaneOfHost(t.Context(), host)).To(ConsistOf(HaveField("Name", w.plane().Name)))
	host.Spec.ConsumerRef.Machine = "nobody"
	w.g.Expect(w.r.controlPlaneOfHost(t.Context(), host)).To(BeEmpty())
	host.Spec.ConsumerRef.Machine = names[0]
	machine := w.machine(names[0])
	delete(machine.Labels, clusterv1.MachineControlPlaneLabel)
	w.g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	w.g.Expect(w.r.controlPlaneOfHost(t.Context(), host)).To(BeEmpty(), "a worker's")
	host.Spec.ConsumerRef = nil
	w.g.Expect(w.r.controlPlaneOfHost(t.Context(), host)).To(BeEmpty())
}

// joiningFourth is a control plane of three that are outdated, and of a fourth Machine with a host at the address.
func joiningFourth(t *testing.T) (w *world, names []string, joins, address string) {
	t.Helper()
	w, names = three(t)
	w.reconcile()
	w.edit(outdate)
	w.reconcile()
	joins = w.fresh(names...)
	address = w.claim(joins)
	return w, names, joins, address
}

// Where a surge goes on with another Machine, that one is made as soon as kubeadm runs for the one before it, and joins
// when an old one has left.
func TestTheNextMachineIsMadeBesideAJoin(t *testing.T) {
	w, names, joins, address := joiningFourth(t)
	g := w.g
	w.joins(joins, infrav1.HostOperationRunning, "pre-kubeadm", 0)
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(4), "who knows how long that takes")
	plane := w.plane()
	plane.Status.Operation.Since.Time = plane.Status.Operation.Since.Add(-time.Hour)
	g.Expect(w.mgmt.Status().Update(t.Context(), plane)).To(Succeed())
	since := w.plane().Status.Operation.Since
	g.Expect(since.Time).To(BeTemporally("<", time.Now().Add(-time.Minute)))
	w.joins(joins, infrav1.HostOperationRunning, infrav1.HostOperationStepJoin, 0)
	w.reconcile()
	ahead := w.ahead()
	g.Expect(w.plane().Status.Operation).To(And(HaveField("Type", controlplanev1.OperationRollout),
		HaveField("WaitingOn", "WaitingForMachine "+joins), HaveField("Since", since)), "it waits as before")
	g.Expect(w.plane().Status.Replicas).To(HaveValue(BeEquivalentTo(4)))
	for _, name := range names {
		g.Expect(w.machine(name).DeletionTimestamp).To(BeNil(), "nobody leaves before it votes")
	}

	w.joins(joins, infrav1.HostOperationSucceeded, "", 0)
	w.bootstrapped(joins, address)
	w.hold(joins)
	w.reconcile()
	leaver := strings.Fields(w.plane().Status.Operation.WaitingOn)[1]
	g.Expect(w.machine(leaver).DeletionTimestamp).NotTo(BeNil())
	g.Expect(w.ahead()).To(Equal(ahead), "it waits until the old one is out")
	w.drained(leaver)
	w.reconcile()
	g.Expect(isHeld(w.machine(ahead))).To(BeFalse())
	g.Expect(w.machines()).To(HaveLen(5))
}

// Of a host that went silent while kubeadm ran there, nobody learns that its join is over. One Machine was made ahead
// beside it; when that is too old, none is made any more.
func TestNoMachineIsMadeBesideAJoinThatTakesLong(t *testing.T) {
	w, names, joins, _ := joiningFourth(t)
	w.joins(joins, infrav1.HostOperationRunning, infrav1.HostOperationStepJoin, observe.KubeadmIsNew+time.Second)
	w.reconcile()
	w.g.Expect(w.machines()).To(HaveLen(len(names) + 1))
}

// What could not be made beside a join may be made in the drain that follows, without a pause.
func TestAFailureBesideAJoinIsNoneOfTheNextDrain(t *testing.T) {
	w, names, joins, address := joiningFourth(t)
	w.joins(joins, infrav1.HostOperationRunning, infrav1.HostOperationStepJoin, 0)
	w.fail = "create QuoinMachine"
	for range 5 {
		w.once()
	}
	w.g.Expect(w.machines()).To(HaveLen(len(names) + 1))
	w.g.Expect(w.plane().Status.Operation.WaitingOn).To(Equal("WaitingForMachine " + joins))
	w.fail = ""
	w.reconcile()
	w.g.Expect(w.machines()).To(HaveLen(len(names)+1), "not again so soon")

	w.joins(joins, infrav1.HostOperationSucceeded, "", 0)
	w.bootstrapped(joins, address)
	w.hold(joins)
	w.reconcile()
	w.g.Expect(w.plane().Status.Operation.WaitingOn).To(HavePrefix(controlplane.ReasonDraining))
	w.ahead()
}

// One that was made ahead and cannot be admitted is deleted when it could be, and nothing holds it. The drain waits for
// none of that.
func TestAMachineMadeAheadIsDropped(t *testing.T) {
	for name, change := range map[string]func(w *world, ahead string){
		"outdated": func(w *world, _ string) {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"echo another"}
			})
		},
		"given up by a health check": func(w *world, ahead string) {
			machine := w.machine(ahead)
			conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition,
				Status: metav1.ConditionFalse,
				Reason: clusterv1.MachineHealthCheckNodeStartupTimeoutReason, Message: "it has no Node since 10m"})
			w.g.Expect(w.mgmt.Status().Update(w.t.Context(), machine)).To(Succeed())
		},
		"made long ago": func(w *world, ahead string) {
			machine := w.machine(ahead)
			machine.CreationTimestamp = metav1.NewTime(time.Now().Add(-observe.PreCreatedLife - time.Minute))
			w.g.Expect(w.mgmt.Update(w.t.Context(), machine)).To(Succeed())
		},
		"without its QuoinMachine": func(w *world, ahead string) {
			infra := w.infra(ahead)
			infra.Finalizers = []string{"somebody/waits"}
			w.g.Expect(w.mgmt.Update(w.t.Context(), infra)).To(Succeed())
			w.g.Expect(w.mgmt.Delete(w.t.Context(), infra)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, names, leaver, ahead := draining(t)
			change(w, ahead)
			w.reconcile()
			w.g.Expect(w.ahead()).To(Equal(ahead), "it holds nothing up while the other is drained")

			w.drained(leaver)
			w.reconcile()
			w.g.Expect(w.hasHook(leaver)).To(BeFalse())
			fresh := w.fresh(append(names, ahead)...)
			w.g.Expect(isHeld(w.machine(fresh))).To(BeFalse(), "another joins in its place")
			w.g.Expect(w.machine(ahead).DeletionTimestamp).To(BeNil(), "it holds nothing up while the other leaves")

			w.gone(leaver)
			w.reconcile()
			w.g.Expect(w.machine(ahead).DeletionTimestamp).NotTo(BeNil())
			w.g.Expect(w.hasHook(ahead)).To(BeFalse())
			w.g.Expect(w.plane().Status.Operation.WaitingOn).To(Equal("WaitingForMachine "+fresh),
				"nobody waits until it is gone")
		})
	}
}

// A Machine that cannot be made ahead holds nothing up: it is made later. Nor is it tried at every look, or told of.
func TestWhatCannotBeMadeAheadIsMadeLater(t *testing.T) {
	for _, failure := range []string{"create QuoinMachine", "apply a Machine made ahead"} {
		t.Run(failure, func(t *testing.T) {
			w, names := three(t)
			g := w.g
			w.reconcile()
			w.noSpare()
			w.edit(outdate)
			w.fail = failure
			for range 20 {
				w.once()
				if operation := w.plane().Status.Operation; operation != nil {
					g.Expect(operation.Type).To(Equal(controlplanev1.OperationRollout))
				}
			}
			g.Expect(w.plane().Status.Operation.WaitingOn).To(HavePrefix(controlplane.ReasonDraining))
			g.Expect(w.machines()).To(HaveLen(len(names)))
			parts := &infrav1.QuoinMachineList{}
			g.Expect(w.mgmt.List(t.Context(), parts)).To(Succeed())
			g.Expect(parts.Items).To(HaveLen(len(names)), "nothing is left of it")

			w.fail = ""
			w.reconcile()
			g.Expect(w.machines()).To(HaveLen(len(names)), "not again so soon")
			w.drained(strings.Fields(w.plane().Status.Operation.WaitingOn)[1])
			w.reconcile()
			g.Expect(w.admitted()).To(HaveLen(len(names)+1), "it joins all the same")
		})
	}
}

// In a machine template the annotation would hold every Machine for ever.
func TestATemplateHoldsNoMachine(t *testing.T) {
	w := newWorld(t, 1, func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Annotations = map[string]string{infrav1.HoldClaimAnnotation: "", "mine": "stays"}
	})
	name := initialized(t, w)
	w.g.Expect(w.machine(name).Annotations).To(And(HaveKey("mine"), Not(HaveKey(infrav1.HoldClaimAnnotation))))
}

// A control plane that is deleted takes the Machine along that was made ahead.
func TestADeletedControlPlaneTakesTheMachineMadeAheadAlong(t *testing.T) {
	w, _, _, ahead := draining(t)
	w.g.Expect(w.mgmt.Delete(t.Context(), w.plane())).To(Succeed())
	w.reconcile()
	w.g.Expect(w.machine(ahead).DeletionTimestamp).NotTo(BeNil())
	w.g.Expect(w.hasHook(ahead)).To(BeFalse())
}

// A Machine that has a host all the same, as an infrastructure provider of another release may give it one, is a part
// of the control plane, and its join is waited for.
func TestAMachineMadeAheadThatHasAHostCounts(t *testing.T) {
	w, _, leaver, ahead := draining(t)
	infra := w.infra(ahead)
	infra.Spec.ProviderID = "quoin://hosts/h-x/9"
	w.g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
	w.reconcile()
	w.g.Expect(w.plane().Status.Replicas).To(HaveValue(BeEquivalentTo(4)))
	w.g.Expect(isHeld(w.machine(ahead))).To(BeFalse())
	w.g.Expect(w.machine(leaver).DeletionTimestamp).NotTo(BeNil())
}

// The Node of a Machine that has joined is found by its provider ID, before Cluster API names it.
func TestANodeIsFoundByItsProviderID(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	first := initialized(t, w)
	second := other(w, first)
	w.provision(second)
	machine := w.machine(second)
	machine.Status.NodeRef = clusterv1.MachineNodeReference{}
	g.Expect(w.mgmt.Status().Update(t.Context(), machine)).To(Succeed())
	node := &corev1.Node{}
	g.Expect(w.workload.Get(t.Context(), client.ObjectKey{Name: "n-" + second}, node)).To(Succeed())
	node.Labels = map[string]string{observe.ControlPlaneNodeLabel: ""}
	for _, id := range []string{"", "quoin://hosts/h-" + second + "/0"} {
		node.Spec.ProviderID = id
		g.Expect(w.workload.Update(t.Context(), node)).To(Succeed())
		w.reconcile()
		g.Expect(w.machines()).To(HaveLen(2), "a Node of provider ID %q is that of another Machine", id)
	}

	node.Spec.ProviderID = w.infra(second).Spec.ProviderID
	g.Expect(w.workload.Update(t.Context(), node)).To(Succeed())
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3), "it works, so the third can join")
	g.Expect(w.machine(second).Status.NodeRef.IsDefined()).To(BeFalse(), "Cluster API writes that")
}
