// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestAMachineWhoseHostWasAbandonedGoesWithoutAReset(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		h.Status.State = infrav1.HostStateQuarantined
		setCondition(h, infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostAbandonedReason, "a person stated it")
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostAbandonedReason,
			"the host was abandoned; delete Machine team/m1")
	})
	w.reconcile("m1")
	w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.HostAbandonedReason,
		"delete Machine team/m1")
	w.delete("m1")
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestAMachineOfADeadHostGoesWithoutAResetOnceTheHostIsGivenUp(t *testing.T) {
	for _, reason := range []string{infrav1.HostDeadReason, infrav1.HostReturnedReason} {
		machine, quoinMachine := owned("m1", uid1)
		w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
		w.reconcile("m1")
		w.delete("m1")
		w.updateHost("h1", func(h *infrav1.QuoinHost) {
			h.Status.State = infrav1.HostStateCleaning
			setCondition(h, infrav1.HostReadyCondition, metav1.ConditionFalse, infrav1.HostUnreachableReason,
				"no answer since noon; it is being powered off")
		})
		w.reconcile("m1")
		w.g.Expect(w.deleted("m1")).To(BeFalse(), "silence alone frees nothing")
		w.expect("m1", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineReleasingReason, "powered off")

		w.updateHost("h1", func(h *infrav1.QuoinHost) {
			h.Status.State = infrav1.HostStateQuarantined
			setCondition(h, infrav1.HostCleanCondition, metav1.ConditionFalse, reason, "it was not reset")
		})
		w.reconcile("m1")
		w.g.Expect(w.deleted("m1")).To(BeTrue())
		w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil(), "the host's controller ends the claim")
	}
}
