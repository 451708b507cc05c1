// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldowner"
)

// upgraded is a Cluster whose Machines a test replaces, and a ClusterUpgrade of it.
type upgraded struct {
	*fleet
	*WithT
	t    *testing.T
	pool *clusterv1.MachineDeployment
	of   *quoinv1.ClusterUpgrade
}

// upgrades has the managers carry out a ClusterUpgrade on a real API server, whose webhooks judge each version; the test
// does what Cluster API and hosts would do.
//
// Proves: S0-1, S0-2, S0-3, S0-47, S0-50, S0-53
func upgrades(t *testing.T, config *rest.Config) {
	u := newUpgraded(t, config)
	t.Run("refuses what is no upgrade", func(t *testing.T) {
		g := NewWithT(t)
		wrong := u.of.DeepCopy()
		wrong.Spec.Version = "1.36"
		g.Expect(u.c.Create(t.Context(), wrong)).To(MatchError(ContainSubstring("spec.version")))
		wrong = u.of.DeepCopy()
		wrong.Name = strings.Repeat("a", 201)
		g.Expect(u.c.Create(t.Context(), wrong)).To(MatchError(ContainSubstring("at most 200 characters")))
	})
	u.Expect(u.c.Create(t.Context(), u.of)).To(Succeed())
	u.Expect(u.of.Spec.DeadlineSeconds).To(HaveValue(BeEquivalentTo(86400)))

	u.eventually("Progressing", quoinv1.BlockedReason)
	u.Expect(u.record().Spec.Version).To(BeEmpty(), "a blocking preflight touches nothing")
	byHand := u.record()
	byHand.Spec.Version = "v1.35.4"
	u.told.warnings = nil
	u.Expect(u.c.Update(t.Context(), byHand)).To(Succeed())
	u.Expect(u.told.warnings).To(ConsistOf(ContainSubstring("make a ClusterUpgrade to v1.35.4 instead")))
	byHand.Spec.Version, u.told.warnings = "", nil
	u.Expect(u.c.Update(t.Context(), byHand, client.FieldOwner(fieldowner.Upgrades))).To(Succeed())
	u.Expect(u.told.warnings).To(BeEmpty(), "as a ClusterUpgrade writes it")
	before := u.of.DeepCopy()
	u.of.Spec.Version = "v1.36.4"
	u.Expect(u.c.Patch(t.Context(), u.of, client.MergeFrom(before))).To(MatchError(ContainSubstring("never change")))
	before.DeepCopyInto(u.of)
	u.of.Spec.Skip = skipped("Supply", "Webhooks")
	u.Expect(u.c.Patch(t.Context(), u.of, client.MergeFrom(before))).To(Succeed())

	// The version is set; somebody sets it back.
	u.Eventually(u.wanted, "1m").Should(Equal("v1.36.3"), u.story)
	u.Expect(u.record().Spec.Version).To(Equal("v1.36.3"), "it is written first")
	u.Expect(fieldowner.Last(u.record().ManagedFields, "spec", "version")).To(Equal(fieldowner.Upgrades + " (Update)"))
	u.setPlane("v1.35.4")
	u.eventually("Progressing", quoinv1.RevertedReason)
	u.Expect(conditions.GetMessage(u.of, quoinv1.ClusterUpgradeProgressingCondition)).
		To(MatchRegexp(`was set back from v1.36.3 to v1.35.4 by \S+ \(Update\)`))
	u.setPlane("v1.36.3")
	u.eventually("Progressing", "ControlPlane")

	u.replace("v1.36.3", u.machines...)
	u.settle()
	u.Eventually(func() string {
		u.Expect(u.c.Get(t.Context(), client.ObjectKeyFromObject(u.pool), u.pool)).To(Succeed())
		return u.pool.Spec.Template.Spec.Version
	}, "1m").Should(Equal("v1.36.3"), u.story)
	u.replace("v1.36.3", u.worker())
	u.settle()
	u.eventually("Completed", quoinv1.CompletedReason)
	u.Expect(u.of.Status.Versions).To(ConsistOf(clusterv1.StatusVersion{Version: "v1.36.3", Replicas: 4}))
	u.Expect(u.record().Status.Version).To(Equal("v1.36.3"))
}

func skipped(names ...string) []quoinv1.SkippedCheck {
	var skip []quoinv1.SkippedCheck
	for _, name := range names {
		skip = append(skip, quoinv1.SkippedCheck{Name: name, Reason: "there are no hosts, and the webhooks are ours"})
	}
	return skip
}

func newUpgraded(t *testing.T, config *rest.Config) *upgraded {
	t.Helper()
	u := &upgraded{fleet: newFleet(t, config, "upgrade", "v1.35.4"), WithT: NewWithT(t), t: t}
	u.Expect(u.c.Create(t.Context(), kubeconfigOf(t, u.cluster, config))).To(Succeed())
	u.Expect(u.c.Create(t.Context(), &infrav1.QuoinCluster{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace,
		Name: "upgrade"}, Spec: infrav1.QuoinClusterSpec{ControlPlaneEndpoint: infrav1.APIEndpoint{Host: "192.0.2.77"}}})).
		To(Succeed())
	// It belongs to no Cluster, so its controller leaves it to the test.
	plane := u.plane.DeepCopy()
	u.plane.Annotations = nil
	u.Expect(u.c.Patch(t.Context(), u.plane, client.MergeFrom(plane))).To(Succeed())
	u.pool = u.fleet.pool("blue", "v1.35.4")
	u.pool.Labels = map[string]string{clusterv1.ClusterNameLabel: "upgrade"}
	u.Expect(u.c.Create(t.Context(), u.pool)).To(Succeed())
	u.fleet.worker(t, "w1", "v1.35.4")
	worker := u.worker()
	worker.Labels[clusterv1.MachineDeploymentNameLabel] = "blue"
	u.Expect(u.c.Update(t.Context(), worker)).To(Succeed())
	worker.Status.NodeRef.Name = "w1"
	u.Expect(u.c.Status().Update(t.Context(), worker)).To(Succeed())
	u.settle()
	u.Expect(u.c.Get(t.Context(), client.ObjectKeyFromObject(u.cluster), u.cluster)).To(Succeed())
	u.cluster.Status.Initialization = clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true),
		ControlPlaneInitialized: ptr.To(true)}
	u.Expect(u.c.Status().Update(t.Context(), u.cluster)).To(Succeed())
	u.of = &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "to-v1.36"},
		Spec: quoinv1.ClusterUpgradeSpec{ClusterName: "upgrade", Version: "v1.36.3", Skip: skipped("Webhooks")}}
	return u
}

func (u *upgraded) worker() *clusterv1.Machine {
	u.t.Helper()
	machine := &clusterv1.Machine{}
	u.Expect(u.c.Get(u.t.Context(), client.ObjectKey{Namespace: u.namespace, Name: "w1"}, machine)).To(Succeed())
	return machine
}

// replace has Machines run another version.
func (u *upgraded) replace(version string, machines ...*clusterv1.Machine) {
	u.t.Helper()
	for _, machine := range machines {
		u.Expect(u.c.Get(u.t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		before := client.MergeFrom(machine.DeepCopy())
		machine.Spec.Version = version
		u.Expect(u.c.Patch(u.t.Context(), machine, before)).To(Succeed())
	}
}

// settle has the control plane and the pool tell that all is as it is to be. The managers may write both meanwhile.
func (u *upgraded) settle() {
	u.t.Helper()
	u.read(u.t, metav1.Now().Time)
	u.Expect(u.c.Get(u.t.Context(), client.ObjectKeyFromObject(u.plane), u.plane)).To(Succeed())
	before := client.MergeFrom(u.plane.DeepCopy())
	status := &u.plane.Status
	status.Replicas, status.UpToDateReplicas, status.AvailableReplicas = ptr.To[int32](3), ptr.To[int32](3), ptr.To[int32](3)
	status.Versions = []clusterv1.StatusVersion{{Version: u.machines[0].Spec.Version, Replicas: 3}}
	status.ObservedGeneration, status.Initialization.ControlPlaneInitialized = u.plane.Generation, ptr.To(true)
	for condition, is := range map[string]metav1.ConditionStatus{
		controlplanev1.ControlPlaneAvailableCondition: "True", controlplanev1.ControlPlaneComponentsHealthyCondition: "True",
		controlplanev1.ControlPlaneAddonsUpToDateCondition: "True", controlplanev1.ControlPlaneRollingOutCondition: "False",
		controlplanev1.ControlPlaneScalingUpCondition: "False", controlplanev1.ControlPlaneScalingDownCondition: "False",
		controlplanev1.ControlPlaneRemediatingCondition: "False",
	} {
		conditions.Set(u.plane, metav1.Condition{Type: condition, Status: is, Reason: "Test"})
	}
	u.Expect(u.c.Status().Patch(u.t.Context(), u.plane, before)).To(Succeed())
	u.Expect(u.c.Get(u.t.Context(), client.ObjectKeyFromObject(u.pool), u.pool)).To(Succeed())
	before = client.MergeFrom(u.pool.DeepCopy())
	one := ptr.To[int32](1)
	u.pool.Status.Replicas, u.pool.Status.UpToDateReplicas, u.pool.Status.AvailableReplicas = one, one, one
	u.pool.Status.ObservedGeneration = u.pool.Generation
	u.Expect(u.c.Status().Patch(u.t.Context(), u.pool, before)).To(Succeed())
}

func (u *upgraded) record() *infrav1.QuoinCluster {
	u.t.Helper()
	found := &infrav1.QuoinCluster{}
	u.Expect(u.c.Get(u.t.Context(), client.ObjectKey{Namespace: u.namespace, Name: "upgrade"}, found)).To(Succeed())
	return found
}

// wanted is the version that the control plane is to have.
func (u *upgraded) wanted() string {
	u.t.Helper()
	u.Expect(u.c.Get(u.t.Context(), client.ObjectKeyFromObject(u.plane), u.plane)).To(Succeed())
	return u.plane.Spec.Version
}

func (u *upgraded) setPlane(version string) {
	u.t.Helper()
	u.wanted()
	before := u.plane.DeepCopy()
	u.plane.Spec.Version = version
	u.Expect(u.c.Patch(u.t.Context(), u.plane, client.MergeFrom(before))).To(Succeed())
	u.settle()
}

func (u *upgraded) eventually(condition, reason string) {
	u.t.Helper()
	u.Eventually(func() string {
		u.Expect(u.c.Get(u.t.Context(), client.ObjectKeyFromObject(u.of), u.of)).To(Succeed())
		return conditions.GetReason(u.of, condition)
	}, "2m").Should(Equal(reason), u.story)
}

// story is what people see of it.
func (u *upgraded) story() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", u.of.Status.Step)
	for _, condition := range u.of.Status.Conditions {
		fmt.Fprintf(&text, "%s %s %s: %s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, step := range u.of.Status.Steps {
		fmt.Fprintf(&text, "%s %s %s %s %s\n", step.State, step.Type, step.Object, step.To, step.Message)
	}
	return text.String()
}
