// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// An outdated Machine that is broken and keeps a new one from its room is named, with since when it is, and stalls the
// rollout after as long as a Machine may take. Nothing is deleted.
func TestABrokenOutdatedMachineStallsTheRollout(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"),
		hostedBy("new-0", "quoin://"+namespace+"/host-2/new-0"), hostedBy("new-1", ""))
	policy, broken := w.policy(), &clusterv1.Machine{}
	w.adjust(policy, func() {
		policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(1))}
		policy.Spec.DeadlineSeconds = ptr.To[int32](1800)
	})
	for _, name := range []string{"old-0", "old-1", "new-0"} {
		w.joins(name)
	}
	w.clock.Step(time.Hour)
	w.read(broken, "old-1")
	for _, condition := range []string{clusterv1.MachineNodeHealthyCondition, clusterv1.MachineAvailableCondition} {
		conditions.Set(broken, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Gone",
			LastTransitionTime: metav1.NewTime(w.clock.Now())})
	}
	w.Expect(w.client.Status().Update(t.Context(), broken)).To(Succeed())
	says := fmt.Sprintf("Machine old-1 is of an earlier template and not in service since %s (NodeHealthy is False "+
		"(Gone))", w.clock.Now().UTC().Format(time.RFC3339))
	w.clock.Step(time.Minute)
	w.Expect(w.reconcile().RequeueAfter).To(Equal(30 * time.Minute))
	w.Expect(w.poolMessage()).To(ContainSubstring(says))
	w.Expect(w.poolMessage()).To(ContainSubstring("kubectl -n %s delete machine old-1", namespace))
	w.clock.Step(29 * time.Minute)
	w.Expect(w.reconcile().RequeueAfter).To(Equal(time.Minute), "so long is nothing else making room")
	w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).NotTo(ContainSubstring("old-1"))
	w.clock.Step(time.Minute)
	w.reconcile()
	w.Expect(w.message(quoinv1.RolloutPolicyStalledCondition)).To(ContainSubstring(says))
	w.Expect(w.leaving()).To(BeEmpty())
}
