// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// A policy for the whole Cluster does not reach the Machines of its control plane, whatever it lets workers do.
func TestTheControlPlaneInheritsNothing(t *testing.T) {
	member := machineOf("member", "v2")
	member.OwnerReferences = []metav1.OwnerReference{{APIVersion: "controlplane.cluster.x-k8s.io/v1alpha1",
		Kind: "QuoinControlPlane", Name: "c1", UID: "cp", Controller: ptr.To(true)}}
	member.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""), member, hostedBy("member", ""))
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(4))}
	})
	before := w.machine("member")
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.Expect(w.machine("member")).To(Equal(before))
	w.Expect(w.policy().Status.MachineDeployments).To(HaveLen(1))
	w.Expect(rollout.Gated(w.machine("member"))).To(BeFalse())
}

// A topology that is edited later says that it has another order; the rollout goes on.
func TestAnotherOrderOfTheTopologyIsSaid(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(BeTrue())
	amber := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "amber",
		Labels: map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "a"}}}
	amber.Spec = clusterv1.MachineDeploymentSpec{ClusterName: "c1", Replicas: ptr.To[int32](1), Template: template("v1")}
	w.make(amber)
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() {
		blue.Labels = map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "b"}
	})
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() {
		cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: "v1.36.3"}
		cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Name: "b"}, {Name: "a"}}
	})
	w.reconcile()
	w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(BeTrue())
	w.Expect(conditions.GetMessage(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(
		ContainSubstring("amber comes before blue here"))
	w.adjust(cluster, func() {
		cluster.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation: "2"}
	})
	w.reconcile()
	w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(BeTrue())
}
