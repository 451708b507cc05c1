// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// How Machines leave is shown by the scripts whose names begin with drain.
func TestMachinesLeaveAsScriptsTell(t *testing.T) {
	paths, err := filepath.Glob("testdata/scripts/drain*.txt")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(paths).To(HaveLen(7))
	for _, path := range paths {
		f := newFleet()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "begin" {
				f = newFleet()
				return ""
			}
			return f.command(t, d)
		})
	}
}

func TestDrainsAreAskedForByPolicyOrGroup(t *testing.T) {
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{}
	asks := func() bool {
		guards, err := Guards(policy, "blue", nil)
		g.Expect(err).NotTo(HaveOccurred())
		return guards
	}
	g.Expect(asks()).To(BeFalse())
	policy.Strategy = &quoinv1.RolloutStrategy{DrainAndTerminate: ptr.To(false)}
	g.Expect(asks()).To(BeTrue())
	policy.Strategy, policy.Drain = nil, &quoinv1.RolloutDrain{OnTimeout: quoinv1.RolloutDrainProceed}
	g.Expect(asks()).To(BeTrue())
	policy.Groups = []quoinv1.RolloutGroup{{Name: "one",
		MachineDeployments: quoinv1.RolloutSelector{Names: []string{"green"}}}}
	g.Expect(asks()).To(BeFalse(), "no group selects it")
	policy.Groups[0].MachineDeployments.Names = []string{"blue"}
	g.Expect(asks()).To(BeTrue())
	policy.Drain = nil
	g.Expect(asks()).To(BeFalse())
	policy.Groups[0].Drain = &quoinv1.RolloutDrain{OnTimeout: quoinv1.RolloutDrainProceed}
	g.Expect(asks()).To(BeTrue(), "its group asks")
	policy.Drain, policy.Groups[0].Drain = policy.Groups[0].Drain, nil
	policy.Groups[0].MachineDeployments = quoinv1.RolloutSelector{Labels: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{}}}}
	_, err := Guards(policy, "blue", nil)
	g.Expect(err).To(HaveOccurred())

	d := drainOf(policy.Drain, nil)
	g.Expect([]float64{d.timeout.Minutes(), d.delay.Seconds(), d.interval.Seconds()}).To(Equal([]float64{20, 5, 15}))
	d = drainOf(&quoinv1.RolloutDrain{}, nil)
	g.Expect(d.onTimeout).To(Equal(quoinv1.RolloutDrainFail))
	g.Expect(d.timeout.Minutes()).To(BeEquivalentTo(15))
	d = drainOf(&quoinv1.RolloutDrain{PostDrainDelaySeconds: ptr.To[int32](0)}, nil)
	g.Expect(d.delay).To(BeZero())
}

// What Cluster API says while it waits at the pre-terminate hooks says nothing about the pods.
func TestAMachineTellsHowItLeaves(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{}
	g.Expect(Hooked(machine)).To(BeFalse())
	SetHooks(machine)
	machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Message: "Drain not completed yet"}}
	leave := LeaveOf(machine)
	g.Expect(leave.PreDrain && leave.PreTerminate).To(BeTrue())
	g.Expect(leave.Says).To(Equal("Drain not completed yet"))
	machine.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: metav1.Now()}
	g.Expect(LeaveOf(machine).Says).To(BeEmpty())
	DropHooks(machine)
	g.Expect(Hooked(machine)).To(BeFalse())
}
