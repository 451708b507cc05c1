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

// An outdated Machine that is broken for longer than a Machine may take makes room for a new one that Cluster API waits
// for, whatever write the process dies at.
func TestAnOutdatedMachineThatIsBrokenMakesRoom(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint("killed at every write of ", every), func(t *testing.T) {
			w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"),
				hostedBy("new-0", "quoin://"+namespace+"/host-2/new-0"), hostedBy("new-1", ""))
			policy, broken := w.policy(), w.machine("old-1")
			w.adjust(policy, func() {
				policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(1))}
				policy.Spec.DeadlineSeconds = ptr.To[int32](1800)
			})
			w.adjust(broken, func() { broken.Finalizers = []string{clusterv1.MachineFinalizer} })
			for _, name := range []string{"old-0", "old-1", "new-0"} {
				w.joins(name)
			}
			w.read(broken, "old-1")
			for _, condition := range []string{clusterv1.MachineNodeHealthyCondition, clusterv1.MachineAvailableCondition} {
				conditions.Set(broken, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Gone",
					LastTransitionTime: metav1.NewTime(w.clock.Now())})
			}
			w.Expect(w.client.Status().Update(t.Context(), broken)).To(Succeed())
			w.clock.Step(time.Minute)
			w.kills = func(write int) bool { return every > 0 && write%every == 0 && write < 40 }
			w.reconcile()
			w.Expect(w.machine("old-1").DeletionTimestamp.IsZero()).To(BeTrue())
			w.Expect(w.poolMessage()).To(ContainSubstring("Machine old-1 is of an earlier template and not available since"))
			w.Expect(w.reconcile().RequeueAfter).To(Equal(29 * time.Minute))
			w.clock.Step(29 * time.Minute)
			w.reconcile()
			w.Expect(w.leaving()).To(Equal([]string{"old-1"}))
		})
	}
}
