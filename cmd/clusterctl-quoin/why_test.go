// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// What a Cluster waits for is found from its conditions down to those of a host, and of what may hold it.
func TestWhySomethingWaits(t *testing.T) {
	g := NewWithT(t)
	at := metav1.NewTime(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: at}
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uuid.NewUUID(),
			Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}}
	}
	crd := func(plural, group, version string) client.Object {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group,
			Labels: map[string]string{clusterv1.GroupVersion.String(): version}}}
	}
	plane := &controlplanev1.QuoinControlPlane{ObjectMeta: meta("prod-cp")}
	cluster := &clusterv1.Cluster{ObjectMeta: meta("prod"),
		Spec: clusterv1.ClusterSpec{ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "prod-cp"}}}
	cluster.SetConditions([]metav1.Condition{
		condition(clusterv1.AvailableCondition, metav1.ConditionTrue, "Available", ""),
		condition(clusterv1.ClusterRollingOutCondition, metav1.ConditionTrue, "RollingOut",
			"* MachineDeployment blue:\n  * 1 of 3"),
		condition(clusterv1.PausedCondition, metav1.ConditionFalse, "NotPaused", "")})
	machine := &clusterv1.Machine{ObjectMeta: meta("prod-cp-1"), Spec: clusterv1.MachineSpec{ClusterName: "prod",
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
			Kind: "QuoinMachine", Name: "prod-cp-1"}}}
	machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	machine.SetConditions([]metav1.Condition{
		condition(clusterv1.ReadyCondition, metav1.ConditionFalse, "NotReady", "sums up"),
		condition(clusterv1.InfrastructureReadyCondition, metav1.ConditionFalse, "WaitingForHost",
			"the host does not answer")})
	infra := &infrav1.QuoinMachine{ObjectMeta: meta("prod-cp-1")}
	infra.Status.HostRef = &infrav1.HostReference{Namespace: "pool", Name: "rack-1"}
	infra.SetConditions([]metav1.Condition{
		condition(infrav1.MachineDrainedCondition, metav1.ConditionFalse, infrav1.MachineNotDeletingReason, "")})
	host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "pool", Name: "rack-1"}}
	host.SetConditions([]metav1.Condition{
		condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostInUseReason, ""),
		condition(clusterv1.ReadyCondition, metav1.ConditionUnknown, "Unreachable", "no route")})
	policy := &quoinv1.RolloutPolicy{ObjectMeta: meta("careful"), Spec: quoinv1.RolloutPolicySpec{ClusterName: "prod"}}
	policy.Status.Conditions = []metav1.Condition{
		condition("Progressing", metav1.ConditionFalse, "Held", "the window opens on Saturday")}
	other := policy.DeepCopy()
	other.Name, other.Spec.ClusterName = "others", "edge"
	upgrade := &quoinv1.ClusterUpgrade{ObjectMeta: meta("to-1.36"), Spec: quoinv1.ClusterUpgradeSpec{ClusterName: "prod"}}
	upgrade.Status.Conditions = []metav1.Condition{
		condition("Progressing", metav1.ConditionFalse, "Held", "awaits a window")}
	deleted := upgrade.DeepCopy()
	deleted.Name, deleted.DeletionTimestamp, deleted.Finalizers = "gives-way", &at, []string{"somebody/waits"}
	moved := upgrade.DeepCopy()
	moved.Name, moved.Annotations = "is-elsewhere", map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}

	scheme := runtime.NewScheme()
	g.Expect(errors.Join(addSchemes(scheme), controlplanev1.AddToScheme(scheme))).To(Succeed())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, plane, machine, infra, host, policy, other,
		upgrade, deleted,
		moved,
		crd("quoinmachines", infrav1.GroupVersion.Group, "v1alpha1"),
		crd("quoincontrolplanes", controlplanev1.GroupVersion.Group, "v1alpha1")).Build()
	whole, rules, err := readSubjects(t.Context(), c, "ns", "prod")
	g.Expect(err).NotTo(HaveOccurred())
	draw := func(s *subject, rules []*subject) string {
		var out bytes.Buffer
		g.Expect(show(&out, "", nil, holdTable(holdsOf(s, rules)))).To(Succeed())
		return out.String()
	}
	g.Expect(draw(whole, rules)).To(Equal(
		`OBJECT                  CONDITION                  SINCE                 REASON          MESSAGE
Cluster/prod            RollingOut=True            2026-11-26 12:00:00Z  RollingOut      * MachineDeployment blue:
                                                                                           * 1 of 3
Machine/prod-cp-1       InfrastructureReady=False  2026-11-26 12:00:00Z  WaitingForHost  the host does not answer
QuoinHost/rack-1        Ready=Unknown              2026-11-26 12:00:00Z  Unreachable     no route
RolloutPolicy/careful   Progressing=False          2026-11-26 12:00:00Z  Held            the window opens on Saturday
ClusterUpgrade/to-1.36  Progressing=False          2026-11-26 12:00:00Z  Held            awaits a window
`))
	leaves := &subject{deleting: true, kind: "QuoinMachine", name: "prod-cp-1", conditions: infra.Status.Conditions}
	g.Expect(draw(leaves, nil)).To(ContainSubstring("Drained=False"))
	one, err := whole.find("quoinhost/rack-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(draw(one, nil)).To(ContainSubstring("no route"))
	g.Expect(draw(&subject{kind: "Machine"}, nil)).To(Equal("nothing is waited for\n"))
	var none bytes.Buffer
	g.Expect(show(&none, "json", holdsOf(&subject{}, nil), nil)).To(Succeed())
	g.Expect(none.String()).To(Equal("[]\n"))
	_, err = whole.find("machine/other")
	g.Expect(err).To(MatchError(ContainSubstring("no part of Cluster prod")))
	_, err = whole.find("prod-cp-1")
	g.Expect(err).To(MatchError(ContainSubstring("kind/name")))
	_, _, err = readSubjects(t.Context(), c, "ns", "none")
	g.Expect(err).To(MatchError(ContainSubstring("reading Cluster none")))
}

// What a RolloutPolicy or a recovery says of itself holds something in one of its states only: others are of what is
// done, and of what is as it should be.
func TestWhatIsDoneHoldsNothing(t *testing.T) {
	for condition, holds := range map[metav1.Condition]bool{
		{Type: quoinv1.RolloutPolicyProgressingCondition, Status: metav1.ConditionFalse,
			Reason: quoinv1.UpToDateReason}: false,
		{Type: quoinv1.RolloutPolicyProgressingCondition, Status: metav1.ConditionFalse,
			Reason: quoinv1.HeldReason}: true,
		{Type: quoinv1.RolloutPolicyProgressingCondition, Status: metav1.ConditionFalse,
			Reason: quoinv1.AnotherPolicyReason}: true,
		{Type: quoinv1.RolloutPolicyStalledCondition, Status: metav1.ConditionFalse, Reason: quoinv1.OnTimeReason}:     false,
		{Type: quoinv1.RolloutPolicyStalledCondition, Status: metav1.ConditionTrue, Reason: quoinv1.DrainFailedReason}: true,
		{Type: quoinv1.RolloutPolicyOrderConflictCondition, Status: metav1.ConditionFalse,
			Reason: quoinv1.NoConflictReason}: false,
		{Type: quoinv1.RolloutPolicyOrderConflictCondition, Status: metav1.ConditionTrue,
			Reason: quoinv1.TopologyOrderReason}: true,
		{Type: quoinv1.RolloutPolicyRolledBackCondition, Status: metav1.ConditionFalse,
			Reason: quoinv1.NothingRolledBackReason}: false,
		{Type: quoinv1.RolloutPolicyRolledBackCondition, Status: metav1.ConditionFalse,
			Reason: quoinv1.RollbackRefusedReason}: true,
		{Type: quoinv1.RolloutPolicyRolledBackCondition, Status: metav1.ConditionTrue,
			Reason: quoinv1.RolledBackReason}: true,
		{Type: controlplanev1.ControlPlaneRecoveringCondition, Status: metav1.ConditionTrue,
			Reason: controlplane.ReasonRecovering}: true,
		{Type: controlplanev1.ControlPlaneRecoveringCondition, Status: metav1.ConditionFalse,
			Reason: controlplane.ReasonRecoveryRefused}: true,
		{Type: controlplanev1.ControlPlaneRecoveringCondition, Status: metav1.ConditionFalse,
			Reason: controlplane.ReasonRecovered}: false,
		{Type: controlplanev1.ControlPlaneRecoveringCondition, Status: metav1.ConditionFalse,
			Reason: controlplane.ReasonRecoveryVoid}: false,
	} {
		shown := holdsOf(&subject{conditions: []metav1.Condition{condition}}, nil)
		NewWithT(t).Expect(len(shown) == 1).To(Equal(holds), "%s=%s %s", condition.Type, condition.Status, condition.Reason)
	}
}
