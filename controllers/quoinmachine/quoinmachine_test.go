// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/needs"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

type world struct {
	t      *testing.T
	g      *WithT
	client client.WithWatch
	r      *Reconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	scheme := clienttest.Scheme(clusterv1.AddToScheme, corev1.AddToScheme, infrav1.AddToScheme, quoinv1.AddToScheme,
		controlplanev1.AddToScheme)
	w := &world{t: t, g: NewWithT(t)}
	builder := clienttest.Indexed(scheme)
	w.client = builder.WithObjects(objects...).
		WithStatusSubresource(&infrav1.QuoinHost{}, &infrav1.QuoinMachine{}, &clusterv1.Machine{}, &clusterv1.Cluster{}).
		WithIndex(&infrav1.QuoinHost{}, infrav1.HostConsumerNamespaceField,
			consumer(func(ref *infrav1.ConsumerReference) string { return ref.Namespace })).
		WithIndex(&infrav1.QuoinHost{}, infrav1.HostConsumerNameField, consumer(func(ref *infrav1.ConsumerReference) string {
			return ref.Name
		})).Build()
	w.r = &Reconciler{Client: w.client, APIReader: w.client, Clock: clock.RealClock{},
		Withholds: needs.Hosts{Reader: w.client}.Claim}
	return w
}

// consumer selects hosts by a field of their claim, as the API server does.
func consumer(field func(*infrav1.ConsumerReference) string) client.IndexerFunc {
	return func(o client.Object) []string {
		if ref := o.(*infrav1.QuoinHost).Spec.ConsumerRef; ref != nil {
			return []string{field(ref)}
		}
		return nil
	}
}

func (w *world) reconcile(name string) ctrl.Result {
	w.t.Helper()
	var result ctrl.Result
	// The finalizer and the Paused condition each take a reconcile of their own.
	for range 3 {
		var err error
		result, err = w.r.Reconcile(context.Background(), request(name))
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	return result
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}}
}

func (w *world) machine(name string) *infrav1.QuoinMachine {
	w.t.Helper()
	m := &infrav1.QuoinMachine{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, m)).To(Succeed())
	return m
}

func (w *world) host(name string) *infrav1.QuoinHost {
	w.t.Helper()
	h := &infrav1.QuoinHost{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, h)).To(Succeed())
	return h
}

func (w *world) updateHost(name string, change func(*infrav1.QuoinHost)) {
	w.t.Helper()
	h := w.host(name)
	change(h)
	status := h.Status.DeepCopy()
	w.g.Expect(w.client.Update(context.Background(), h)).To(Succeed())
	h.Status = *status
	w.g.Expect(w.client.Status().Update(context.Background(), h)).To(Succeed())
}

func (w *world) expect(name, kind string, status metav1.ConditionStatus, reason string, says ...string) {
	w.t.Helper()
	c := conditions.Get(w.machine(name), kind)
	w.g.Expect(c).NotTo(BeNil(), kind)
	w.g.Expect(c.Status).To(Equal(status), c.Message)
	w.g.Expect(c.Reason).To(Equal(reason), c.Message)
	for _, text := range says {
		w.g.Expect(c.Message).To(ContainSubstring(text))
	}
}

func (w *world) says(name, kind string) string { return conditions.GetMessage(w.machine(name), kind) }

func setCondition(h *infrav1.QuoinHost, kind string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(h, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

func host(name, domain string) *infrav1.QuoinHost {
	h := &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"role": "worker"}},
		Spec:       infrav1.QuoinHostSpec{FailureDomain: domain},
		Status: infrav1.QuoinHostStatus{
			State: infrav1.HostStateAvailable,
			Facts: &infrav1.HostFacts{Hostname: name, NodeAddresses: []string{"10.0.0.11"}},
		},
	}
	setCondition(h, infrav1.HostReadyCondition, metav1.ConditionTrue, infrav1.HostAvailableReason, "")
	return h
}

func cluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c1"},
		Status: clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{
			InfrastructureProvisioned: ptr.To(true)}},
	}
}

func owned(name, uid string) (*clusterv1.Machine, *infrav1.QuoinMachine) {
	labels := map[string]string{clusterv1.ClusterNameLabel: "c1"}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(uid), Labels: labels,
			Finalizers: []string{clusterv1.MachineFinalizer}},
		Spec: clusterv1.MachineSpec{
			ClusterName: "c1", Version: "v1.35.4", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name + "-bootstrap")},
		},
	}
	quoinMachine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name,
			UID: types.UID(uid)}},
	}}
	return machine, quoinMachine
}

const uid1 = "0123abcd-0000-0000-0000-000000000000"

func TestAMachineClaimsAFreeHostAndShowsItsWayToANode(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", "rack-a"))
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).
		To(Equal(&infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}))
	m := w.machine("m1")
	w.g.Expect(m.Spec.ProviderID).To(Equal("quoin://team/h1/0123abcd"))
	w.g.Expect(m.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	w.g.Expect(m.Status.HostRef).To(Equal(&infrav1.HostReference{Namespace: "team", Name: "h1"}))
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionTrue, infrav1.MachineHostClaimedReason)
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineWaitingForBootstrapDataReason,
		"host team/h1")

	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateProvisioning
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason,
			"v1.35.4 on h1: step 3 of 5, kubeadm-join")
	})
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason,
		"host team/h1: v1.35.4 on h1: step 3 of 5, kubeadm-join")
	w.g.Expect(w.machine("m1").Status.Initialization.Provisioned).To(BeNil())

	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateProvisioned
		h.Status.AddonVersions = []string{"v1.35.4"}
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionTrue, infrav1.HostProvisionedReason, "")
	})
	w.reconcile("m1")
	m = w.machine("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	w.g.Expect(*m.Status.Initialization.Provisioned).To(BeTrue())
	w.g.Expect(m.Status.FailureDomain).To(Equal("rack-a"))
	w.g.Expect(m.Status.AddonVersions).To(Equal([]string{"v1.35.4"}))
	w.g.Expect(m.Status.Addresses).To(Equal([]clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.11"}, {Type: clusterv1.MachineHostName, Address: "h1"},
	}))
}

func TestNoHostIsClaimedBeforeTheClustersInfrastructureIsReady(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	c := cluster()
	c.Status.Initialization.InfrastructureProvisioned = nil
	w := newWorld(t, c, machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineWaitingForClusterReason,
		"Cluster c1")
}

func TestAMachineTakesNoHostFromOthersBeforeItHasBootstrapData(t *testing.T) {
	worker, quoinWorker := owned("w1", uid1)
	worker.Spec.Bootstrap.DataSecretName = nil
	member, quoinMember := owned("cp1", "99999999-0000-0000-0000-000000000000")
	w := newWorld(t, cluster(), worker, quoinWorker, member, quoinMember, host("h1", ""))
	w.reconcile("w1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.expect("w1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineWaitingForBootstrapDataReason,
		"bootstrap data of Machine team/w1")
	w.reconcile("cp1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef.Name).
		To(Equal("cp1"), "the control plane, for which the worker waits, gets the host")

	w.g.Expect(w.client.Create(context.Background(), host("h2", ""))).To(Succeed())
	worker = w.core("w1")
	worker.Spec.Bootstrap.DataSecretName = ptr.To("w1-bootstrap")
	w.g.Expect(w.client.Update(context.Background(), worker)).To(Succeed())
	w.reconcile("w1")
	w.g.Expect(w.host("h2").Spec.ConsumerRef.Name).To(Equal("w1"))
}

func TestAMachineMadeAheadTakesNoHostBeforeItIsAdmitted(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Annotations = map[string]string{infrav1.HoldClaimAnnotation: ""}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", "r1"), host("h2", "r2"))
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.g.Expect(w.host("h2").Spec.ConsumerRef).To(BeNil())
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineHeldReason,
		infrav1.HoldClaimAnnotation)

	machine = w.core("m1")
	machine.Annotations, machine.Spec.FailureDomain = nil, "r2"
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.host("h2").Spec.ConsumerRef.Name).To(Equal("m1"))

	// Too late to hold anything.
	machine = w.core("m1")
	machine.Annotations = map[string]string{infrav1.HoldClaimAnnotation: ""}
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionTrue, infrav1.MachineHostClaimedReason)
}

func TestAnUnknownHostSelectorSaysWhyNoHostMatches(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "nothing"}}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), host("h2", ""))
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason,
		"no free host matches: 2 not selected by role=nothing")
}

func TestASelectorThatCannotBeReadIsACondition(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.HostSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "role", Operator: "Sometimes"}}}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineSelectorInvalidReason, "Sometimes",
		"machine template")
}

func TestTheMachinesFailureDomainIsKept(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.FailureDomain = "rack-b"
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", "rack-a"), host("h2", "rack-b"))
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal("h2"))
}

func TestMachinesOfAClusterSpreadOverFailureDomains(t *testing.T) {
	machine1, quoinMachine1 := owned("m1", uid1)
	machine2, quoinMachine2 := owned("m2", "99999999-0000-0000-0000-000000000000")
	w := newWorld(t, cluster(), machine1, quoinMachine1, machine2, quoinMachine2, host("h1", "rack-a"),
		host("h2", "rack-a"), host("h3", "rack-b"))
	w.reconcile("m1")
	w.reconcile("m2")
	w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal("h1"))
	w.g.Expect(w.machine("m2").Status.HostRef.Name).To(Equal("h3"))
}

func TestAHostThatChangedMeanwhileIsNotClaimed(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "quoinhosts"}, o.GetName(), errors.New("changed"))
		},
	})
	result := w.reconcile("m1")
	w.g.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(BeEmpty())
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineWaitingForHostReason,
		"trying again")
}

func TestAManagerKilledBetweenClaimAndProviderIDFindsItsClaim(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	claimed := host("h2", "")
	claimed.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	stale := host("h3", "")
	stale.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "77777777"}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), claimed, stale)
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(Equal("quoin://team/h2/0123abcd"),
		"neither a second host nor that of an earlier Machine")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
}

func TestAfterAMoveTheProviderIDFindsTheHost(t *testing.T) {
	// A move gives every object another UID and drops every status.
	machine, quoinMachine := owned("m1", "55555555-0000-0000-0000-000000000000")
	quoinMachine.Spec.ProviderID = "quoin://team/h1/0123abcd"
	moved := host("h1", "")
	moved.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	w := newWorld(t, cluster(), machine, quoinMachine, moved, host("h2", ""))
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").Status.HostRef.Name).To(Equal("h1"))
	w.g.Expect(w.machine("m1").Spec.ProviderID).To(Equal("quoin://team/h1/0123abcd"))
	w.g.Expect(w.host("h2").Spec.ConsumerRef).To(BeNil())
}

func TestAFailedOrInterruptedBootstrapIsTheReasonOfReady(t *testing.T) {
	for _, reason := range []string{infrav1.HostStepFailedReason, infrav1.HostBootstrapInterruptedReason} {
		machine, quoinMachine := owned("m1", uid1)
		w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
		w.reconcile("m1")
		w.updateHost("h1", func(h *infrav1.QuoinHost) {
			setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, reason, "the Machine must be replaced")
			// The way to the host does not hide what is final.
			setCondition(h, infrav1.HostReachableCondition, metav1.ConditionFalse, infrav1.HostUnreachableReason,
				"cannot reach it")
		})
		w.reconcile("m1")
		w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, reason, "the Machine must be replaced")
	}
}

func TestWhatAHostOfAnotherNamespaceDoesNotTellIsToldHere(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	told := w.machine("m1")
	conditions.Set(told, metav1.Condition{Type: infrav1.MachineBootstrapDataRanCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostStepFailedReason, Message: "error: no such disk"})
	w.g.Expect(w.client.Status().Update(t.Context(), told)).To(Succeed())
	for reason, says := range map[string]string{infrav1.HostStepFailedReason: "host team/h1: error: no such disk",
		infrav1.HostDeadReason: "host team/h1: see QuoinMachine"} {
		w.updateHost("h1", func(h *infrav1.QuoinHost) {
			setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, reason, "see QuoinMachine team/m1")
		})
		w.reconcile("m1")
		w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, reason, says)
	}
	w.g.Expect(conditions.Has(w.machine("m1"), infrav1.MachineBootstrapDataRanCondition)).To(BeTrue(), "it is not ours")
}

func TestAnUnreachableHostIsTheReasonWhileTheNodeIsBeingMadeButNotAfterwards(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason, "step 3")
		setCondition(h, infrav1.HostReachableCondition, metav1.ConditionFalse, infrav1.HostUnreachableReason,
			"cannot reach 192.0.2.11:22 over SSH")
	})
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.HostUnreachableReason,
		"host team/h1: cannot reach 192.0.2.11:22")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionTrue, infrav1.HostProvisionedReason, "")
	})
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
}

func TestAddonImagesThatAreMissingDoNotMakeTheMachineUnready(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.AddonVersions = []string{"v1.35.4", "v1.36.3"}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.AddonVersions = []string{"v1.35.4"}
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionTrue, infrav1.HostProvisionedReason, "")
		setCondition(h, infrav1.HostAddonImagesCondition, metav1.ConditionFalse, infrav1.HostStepFailedReason,
			"no space left")
	})
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineAddonImagesCondition, metav1.ConditionFalse, infrav1.MachineWaitingForImagesReason,
		"lacks the add-on images of v1.36.3", "no space left")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason)
	w.updateHost("h1", func(h *infrav1.QuoinHost) { h.Status.AddonVersions = append(h.Status.AddonVersions, "v1.36.3") })
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineAddonImagesCondition, metav1.ConditionTrue, infrav1.MachineImagesPresentReason)
}

// delete is what Cluster API does: it deletes the Machine's infrastructure when the deletion of the Machine has come so
// far.
func (w *world) delete(name string) {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, machine)).To(Succeed())
	w.g.Expect(w.client.Delete(context.Background(), machine)).To(Succeed())
	w.g.Expect(w.client.Delete(context.Background(), w.machine(name))).To(Succeed())
}

func (w *world) deleted(name string) bool {
	err := w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, &infrav1.QuoinMachine{})
	return apierrors.IsNotFound(err)
}

func TestAMachineGoesOnlyAfterItsHostWasVerifiedToBeClean(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.delete("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateQuarantined
		setCondition(h, infrav1.HostReadyCondition, metav1.ConditionFalse, infrav1.HostNotCleanReason,
			"after the reset: process etcd runs")
		// Clean as it was before the claim.
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostCleanReason, "")
	})
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineReleasingReason,
		"host team/h1, Quarantined: after the reset: process etcd runs")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.Operation = &infrav1.HostOperation{ID: "reset-0123abcd-2", Phase: "Succeeded"}
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason, "")
	})
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil(), "the host's controller ends the claim, when the Machine is "+
		"gone as well")
}

func TestAMachineWithoutAHostGoesAtOnce(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine)
	w.reconcile("m1")
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestAClaimThatTheCacheHasNotSeenKeepsADeletedMachine(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Finalizers = []string{infrav1.MachineFinalizer}
	now := metav1.NewTime(time.Now())
	quoinMachine.DeletionTimestamp = &now
	machine.DeletionTimestamp = &now
	claimed := host("h1", "")
	claimed.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	w := newWorld(t, cluster(), machine, quoinMachine, claimed)
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*infrav1.QuoinHostList); ok {
				return nil
			}
			return c.List(ctx, list, options...)
		},
	})
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse())
}

func TestAPausedClusterClaimsNothing(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	c := cluster()
	c.Spec.Paused = ptr.To(true)
	w := newWorld(t, c, machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.expect("m1", clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason)
}
