// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// A Machine that joins is no failure of those that serve: nothing is known of it before its Node, and nothing is
// expected of it before its host has run the bootstrap data.
func TestComponentsAreWellWhileAMachineJoins(t *testing.T) {
	const components = controlplanev1.ControlPlaneComponentsHealthyCondition
	w := newWorld(t, 3)
	g := w.g
	w.reconcile()
	g.Expect(w.condition(components)).To(And(HaveField("Status", metav1.ConditionUnknown),
		HaveField("Message", ContainSubstring("kubeadm init"))))
	first := initialized(t, w)
	second := other(w, first)
	g.Expect(w.condition(components).Status).To(Equal(metav1.ConditionTrue), "%s is without a host", second)

	w.claim(second)
	machine := w.machine(second)
	machine.Spec.ProviderID = w.infra(second).Spec.ProviderID
	g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	g.Expect(w.condition(components)).To(And(HaveField("Status", metav1.ConditionUnknown),
		HaveField("Reason", "HealthUnknown"), HaveField("Message", ContainSubstring(machine.Spec.ProviderID))))

	g.Expect(w.workload.Delete(t.Context(), readyPod("kube-scheduler-n-"+first))).To(Succeed())
	w.reconcile()
	g.Expect(w.condition(components)).To(And(HaveField("Status", metav1.ConditionFalse),
		HaveField("Reason", "NotHealthy"), HaveField("Message", And(ContainSubstring("kube-scheduler"),
			ContainSubstring(machine.Spec.ProviderID)))))
}

// An available control plane says what it lacks, once that is no flicker.
func TestAvailableSaysWhatIsLacking(t *testing.T) {
	w, names := three(t)
	g := w.g
	available := func() metav1.Condition { return w.condition(controlplanev1.ControlPlaneAvailableCondition) }
	well := And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", BeEmpty()))
	g.Expect(available()).To(well)
	for _, ill := range []struct {
		condition, message string
		befall             func()
	}{
		{controlplanev1.MachineSchedulerPodHealthyCondition, "* 2 of 3 Machines have all components", func() {
			g.Expect(w.workload.Delete(t.Context(), readyPod("kube-scheduler-n-"+names[2]))).To(Succeed())
		}},
		{controlplanev1.MachineEtcdMemberHealthyCondition, "* 2 of 3 etcd members are healthy, 2 are needed", func() {
			g.Expect(w.workload.Create(t.Context(), readyPod("kube-scheduler-n-"+names[2]))).To(Succeed())
			w.reconcile()
			w.etcd.members[2].Alarms = []string{"NOSPACE"}
		}},
	} {
		ill.befall()
		w.reconcile()
		g.Expect(available()).To(well, ill.condition)
		machine := w.machine(names[2])
		for i := range machine.Status.Conditions {
			if machine.Status.Conditions[i].Type == ill.condition {
				machine.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
			}
		}
		g.Expect(w.mgmt.Status().Update(t.Context(), machine)).To(Succeed())
		w.reconcile()
		g.Expect(available()).To(And(HaveField("Status", metav1.ConditionTrue),
			HaveField("Message", HavePrefix(ill.message))))
	}
}

// An alarm CORRUPT outlives its member, and etcd takes no writes until somebody has looked at the data of the others.
func TestAnAlarmOfAMemberThatIsGoneIsSaid(t *testing.T) {
	w, _ := three(t)
	w.etcd.corrupt = []uint64{0xbeef}
	w.once()
	w.g.Expect(w.condition(controlplanev1.ControlPlaneEtcdClusterHealthyCondition)).To(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.EtcdMemberUnhealthyReason),
		HaveField("Message", And(ContainSubstring("member beef, which is not in the list any more"),
			ContainSubstring(quorum.CheckData)))))
	for _, member := range w.plane().Status.Etcd.Members {
		w.g.Expect(member.State).To(Equal("Healthy"), "its data may be whole")
	}
	w.etcd.corrupt = nil
	w.once()
	w.g.Expect(w.condition(controlplanev1.ControlPlaneEtcdClusterHealthyCondition).Status).To(Equal(metav1.ConditionTrue))
}
