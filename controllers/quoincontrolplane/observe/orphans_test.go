// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// bereaved is a QuoinMachine whose Machine is gone, and which our hook keeps.
func bereaved(name string) infrav1.QuoinMachine {
	infra := infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		CreationTimestamp: metav1.NewTime(noon.Add(-3000)), DeletionTimestamp: ptr.To(metav1.NewTime(noon.Add(-2000))),
		OwnerReferences: []metav1.OwnerReference{{Kind: "QuoinControlPlane", UID: "plane"}, {Kind: "Machine", UID: "uid"}}}}
	infra.Spec.ProviderID = infrav1.ProviderID("hosts", "h", "1")
	infra.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: "another"},
		{Name: controlplanev1.HookName, Owner: "QuoinControlPlane/plane"}}
	infra.Status.Initialization.Provisioned = ptr.To(true)
	infra.Status.FailureDomain = "rack"
	infra.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.9"},
		{Type: clusterv1.MachineHostName, Address: "n-o"}, {Type: clusterv1.MachineExternalIP, Address: "203.0.113.9"}}
	return infra
}

// A member whose Machine is gone leaves as any other does, through a Machine that stands for it while our hook keeps
// the host.
func TestAQuoinMachineThatOutlivesItsMachineKeepsOne(t *testing.T) {
	scheme := clienttest.Scheme(clusterv1.AddToScheme)
	alive := func(infra *infrav1.QuoinMachine) { infra.DeletionTimestamp = nil }
	for name, test := range map[string]struct {
		infra    []func(*infrav1.QuoinMachine)
		change   func(*Lists)
		live     []client.Object
		down     bool
		orphaned bool
		err      string
	}{
		"its Machine is gone": {orphaned: true},
		"it moves": {infra: []func(*infrav1.QuoinMachine){func(infra *infrav1.QuoinMachine) {
			note(infra, clusterctlv1.DeleteForMoveAnnotation)
		}}},
		"its Machine is there": {change: func(l *Lists) { l.Machines.Owned["a"].Spec.InfrastructureRef.Name = "o" }},
		"nothing keeps it": {infra: []func(*infrav1.QuoinMachine){func(infra *infrav1.QuoinMachine) {
			infra.Spec.LifecycleHooks.PreTerminate = infra.Spec.LifecycleHooks.PreTerminate[:1]
		}}},
		"another control plane keeps it": {infra: []func(*infrav1.QuoinMachine){func(infra *infrav1.QuoinMachine) {
			infra.Spec.LifecycleHooks.PreTerminate[1].Owner = "QuoinControlPlane/another"
		}}},
		"it is collected next":          {infra: []func(*infrav1.QuoinMachine){alive}, orphaned: true},
		"it is going, whoever is there": {down: true, orphaned: true},
		"its Machine is still to come": {infra: []func(*infrav1.QuoinMachine){alive, func(infra *infrav1.QuoinMachine) {
			infra.Spec.ProviderID = ""
		}}},
		"it has run nothing": {infra: []func(*infrav1.QuoinMachine){alive, func(infra *infrav1.QuoinMachine) {
			infra.Status.Initialization.Provisioned = nil
		}}},
		"all is deleted": {infra: []func(*infrav1.QuoinMachine){alive}, change: func(l *Lists) {
			l.ControlPlane.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
		}},
		"its Machine is nobody's": {infra: []func(*infrav1.QuoinMachine){alive},
			live: []client.Object{&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "o"}}},
			err: "a Machine o is there that is none of this control plane's, and its QuoinMachine is held for it: give the " +
				"Machine its label cluster.x-k8s.io/control-plane back, and an owner reference to QuoinControlPlane plane"},
		"nobody knows of its Machine": {infra: []func(*infrav1.QuoinMachine){alive}, down: true,
			err: "reading the Machine of QuoinMachine o: down"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			infra, inv := bereaved("o"), joined()
			for _, change := range test.infra {
				change(&infra)
			}
			inv.ControlPlane.Name = "plane"
			lists := &Lists{Subject: inv.Subject, Machines: Machines{Owned: inv.Machines},
				quoinMachines: []infrav1.QuoinMachine{{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, infra}}
			if test.change != nil {
				test.change(lists)
			}
			sources := &Sources{Clock: clocktesting.NewFakePassiveClock(noon),
				Live: clienttest.Unmanaged(scheme).WithObjects(test.live...).Build()}
			if test.down {
				sources.Live = unreadable()
			}
			found, err := sources.orphaned(t.Context(), lists, lists.Machines.Owned)
			switch {
			case test.err != "":
				g.Expect(err).To(MatchError(test.err))
			case test.orphaned:
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found).To(HaveExactElements(HaveField("Name", "o")))
			default:
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found).To(BeEmpty())
			}
		})
	}
}

// It is as its Machine would be at the end of its deletion.
func TestAMachineThatStandsForOneThatIsGone(t *testing.T) {
	g, subject := NewWithT(t), joined().Subject
	subject.ControlPlane.Name = "plane"
	infra := bereaved("o")
	made := subject.syntheticMachine(&infra, noon)
	g.Expect(conditions.IsTrue(made, clusterv1.MachineDeletingCondition)).To(BeTrue())
	g.Expect(conditions.GetReason(made, clusterv1.MachineDeletingCondition)).To(
		Equal(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason))
	want := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "o", UID: "uid",
		CreationTimestamp: infra.CreationTimestamp, DeletionTimestamp: infra.DeletionTimestamp,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: "",
			clusterv1.MachineControlPlaneNameLabel: "plane"},
		Annotations: map[string]string{controlplanev1.EvictionEndedAnnotation: ""}}}
	want.Spec = clusterv1.MachineSpec{ClusterName: "c", Version: "v1.36.3", ProviderID: infra.Spec.ProviderID,
		FailureDomain: "rack", InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachine", Name: "o"}}
	want.Status.Addresses, want.Status.NodeRef.Name = infra.Status.Addresses, "n-o"
	made.Status.Conditions, want.Status.Conditions = nil, nil
	g.Expect(made).To(Equal(want))

	infra.Status.Initialization.Provisioned, infra.DeletionTimestamp = nil, nil
	made = subject.syntheticMachine(&infra, noon)
	g.Expect(made.Status.NodeRef.Name+made.Spec.ProviderID).To(BeEmpty(), "it has run nothing")
	g.Expect(made.DeletionTimestamp.Time).To(Equal(noon))
}
