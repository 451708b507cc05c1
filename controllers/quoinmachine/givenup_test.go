// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
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

// letGo is a host of which a person said that its Machine may go although it is not clean.
func letGo(h *infrav1.QuoinHost) {
	h.Status.State = infrav1.HostStateQuarantined
	setCondition(h, infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostReleasedUncleanReason,
		"a person let Machine team/m1 go; the kubelet may still run")
	setCondition(h, infrav1.HostFencedCondition, metav1.ConditionFalse, infrav1.HostNotFencedReason, "it may run")
}

func TestAMachineGoesWithoutACleanHostAtAPersonsWord(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	recorder := events.NewFakeRecorder(10)
	w.r.Recorder = recorder
	w.reconcile("m1")
	w.delete("m1")
	w.updateHost("h1", letGo)
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil(), "the host's controller ends the claim")
	var told string
	for len(recorder.Events) > 0 {
		told += <-recorder.Events
	}
	w.g.Expect(told).To(And(ContainSubstring("Warning "+infrav1.HostReleasedUncleanReason),
		ContainSubstring("the kubelet may still run")))
}

func TestAHookHoldsTheMachineOfAHostThatWasLetGoUnclean(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	quoinMachine.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: controlplanev1.HookName,
		Owner: "QuoinControlPlane/cp"}}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.delete("m1")
	w.updateHost("h1", letGo)
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeFalse(), "its etcd member is in the member list")
	w.edit("m1", func(m *infrav1.QuoinMachine) { m.Spec.LifecycleHooks = infrav1.LifecycleHooks{} })
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
}

func TestNoVolumeIsFreedWhereAHostWasLetGoUnclean(t *testing.T) {
	w, workload := deadWorld(t, func(_ *clusterv1.Machine, h *infrav1.QuoinHost, _ *corev1.Node) { letGo(h) })
	w.reconcile("m1")
	w.g.Expect(w.client.Delete(context.Background(), w.machine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.deleted("m1")).To(BeTrue())
	w.g.Expect(taints(t, workload)).To(Equal([]string{"kept:NoSchedule"}))
}
