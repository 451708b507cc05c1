// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// rolledOut is a Machine of MachineDeployment blue, and a policy for that.
func rolledOut(t *testing.T) (*world, *quoinv1.RolloutPolicy) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "blue"}
	quoinMachine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}}
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "workers"}}
	policy.Spec.ClusterName = "c1"
	policy.Status.MachineDeployments = []quoinv1.RolloutProgress{{Name: "blue", Message: "MachineDeployment amber comes first"}}
	w := newWorld(t, cluster(), machine, quoinMachine, blue, policy, host("h1", ""))
	return w, policy
}

func (w *world) waitsForRollout(message string) {
	w.t.Helper()
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForRolloutReason,
		message)
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
}

func (w *world) claims() {
	w.t.Helper()
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

// A template gives its annotations to every Machine, so an admission is for one Machine alone.
func TestAWorkerUnderAPolicyClaimsNoHostUntilItIsAdmitted(t *testing.T) {
	w, policy := rolledOut(t)
	w.waitsForRollout("RolloutPolicy workers: MachineDeployment amber comes first")
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip), "health checks count from the creation")
	w.g.Expect(w.r.waitingForRollout(t.Context(), policy)).To(ConsistOf(request("m1")))
	w.change("m1", func(m *clusterv1.Machine) {
		m.Annotations[quoinv1.RolloutAdmittedAnnotation] = "2026-11-23T08:00:00Z somebody-else"
	})
	w.waitsForRollout("amber comes first")
	w.change("m1", func(m *clusterv1.Machine) {
		m.Annotations[quoinv1.RolloutAdmittedAnnotation] = rollout.Admission(m, time.Now())
	})
	w.claims()
	w.g.Expect(w.r.waitingForRollout(t.Context(), policy)).To(BeEmpty())
}

// What every Machine waits for first is said first: one that is admitted meanwhile costs no status more than without a
// policy.
func TestAnAdmissionThatComesBeforeTheBootstrapDataCostsNoStatus(t *testing.T) {
	w, _ := rolledOut(t)
	data := ptr.To("m1-bootstrap")
	w.change("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = nil })
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse,
		infrav1.MachineWaitingForBootstrapDataReason, "waiting for the bootstrap data")
	w.change("m1", func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = data })
	w.waitsForRollout("amber comes first")
}

func TestNothingWaitsForAPolicyThatIsGone(t *testing.T) {
	w, policy := rolledOut(t)
	w.waitsForRollout("amber comes first")
	w.g.Expect(w.client.Delete(t.Context(), policy)).To(Succeed())
	w.claims()
}

func TestAPolicyHoldsWhatItSelects(t *testing.T) {
	w, policy := rolledOut(t)
	group := quoinv1.RolloutGroup{Name: "g", MachineDeployments: quoinv1.RolloutSelector{Labels: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}}}
	policy.Spec.Groups = []quoinv1.RolloutGroup{group}
	w.g.Expect(w.client.Update(t.Context(), policy)).To(Succeed())
	w.waitsForRollout("correct the selector")
	policy.Spec.Groups[0].MachineDeployments.Labels.MatchExpressions[0].Operator = metav1.LabelSelectorOpExists
	w.g.Expect(w.client.Update(t.Context(), policy)).To(Succeed())
	w.claims()
}
