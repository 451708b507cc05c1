// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const lostID = "quoin://team/gone/0123abcd"

// hostless is a QuoinMachine that a move brought without its host.
func hostless(t *testing.T) *world {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.ProviderID = lostID
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	return w
}

func TestAMachineWhoseHostIsAbsentIsNotAdvisedToBeDeleted(t *testing.T) {
	w := hostless(t)
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineHostLostReason, "team/gone")
	w.g.Expect(w.says("m1", infrav1.MachineReadyCondition)).NotTo(ContainSubstring("delete Machine"))
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil(), "no second host")
}

func TestAMachineWhoseHostIsAbsentStaysWhenItIsDeleted(t *testing.T) {
	w := hostless(t)
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse(), "its node lives on, and nobody has reset it")
}

func (w *world) word(name, value string) {
	w.t.Helper()
	m := w.machine(name)
	m.Annotations = map[string]string{infrav1.AbandonAnnotation: value}
	w.g.Expect(w.client.Update(context.Background(), m)).To(Succeed())
}

func TestAMachineWhoseHostIsAbsentGoesAtAPersonsWord(t *testing.T) {
	w := hostless(t)
	w.delete("m1")
	w.word("m1", "")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse(), "the word must name the host")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineHostLostReason,
		"annotate quoinmachine m1 "+infrav1.AbandonAnnotation+"="+lostID, "its reset was verified")
	w.word("m1", lostID)
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestAMachineThatAPersonGaveUpIsToBeReplaced(t *testing.T) {
	w := hostless(t)
	w.word("m1", lostID)
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineHostLostReason,
		"delete Machine m1 so that another one replaces it")
}

func TestAHostThatArrivesLateIsReleasedAsUsual(t *testing.T) {
	w := hostless(t)
	w.delete("m1")
	w.reconcile("m1")
	arrived := host("gone", "")
	arrived.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	arrived.Status.State = infrav1.HostStateCleaning
	w.g.Expect(w.client.Create(context.Background(), arrived)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse())
	w.updateHost("gone", func(h *infrav1.QuoinHost) {
		h.Status.Operation = &infrav1.HostOperation{ID: "reset-0123abcd", Phase: "Succeeded"}
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionTrue, infrav1.HostReleasePendingReason, "")
	})
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

// A host that is here looks after itself, whoever has it now: nothing of the machine is left to wait for.
func TestAMachineWhoseHostIsAnothersByNowGoes(t *testing.T) {
	w := hostless(t)
	w.g.Expect(w.client.Create(context.Background(), host("gone", ""))).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineHostLostReason,
		"not claimed by this QuoinMachine any more")
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestAPausedMachineSaysThatItsHostIsOnItsWay(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.ProviderID = lostID
	c := cluster()
	c.Spec.Paused = ptr.To(true)
	w := newWorld(t, c, machine, quoinMachine)
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineMovingReason,
		"QuoinHost team/gone", lostID)
	version := w.machine("m1").ResourceVersion
	w.reconcile("m1")
	w.g.Expect(w.machine("m1").ResourceVersion).To(Equal(version), "it is said once")

	arrived := host("gone", "")
	arrived.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m1", Machine: "m1", Claim: "0123abcd"}
	w.g.Expect(w.client.Create(context.Background(), arrived)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.says("m1", infrav1.MachineReadyCondition)).To(BeEmpty())
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKeyFromObject(c), c)).To(Succeed())
	c.Spec.Paused = nil
	w.g.Expect(w.client.Update(context.Background(), c)).To(Succeed())
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionTrue, infrav1.MachineHostClaimedReason)
}
