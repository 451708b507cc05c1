// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// runGuarded runs a pod on the Node that a disruption budget never lets go of.
func (c *court) runGuarded(node string) {
	c.t.Helper()
	workload, err := c.workload(whole)
	if err != nil {
		c.t.Fatal(err)
	}
	app := map[string]string{"app": "db"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0", Labels: app},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "db", Image: "db"}}}}
	if _, err := workload.CoreV1().Pods("default").Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	budgets := workload.PolicyV1().PodDisruptionBudgets("default")
	budget, err := budgets.Create(c.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "never"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: app}}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1,
		DesiredHealthy: 1, ExpectedPods: 1}
	if _, err := budgets.UpdateStatus(c.t.Context(), budget, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// guardedMachine is the Machine whose Node the guarded pod runs on, as it is.
func (c *court) guardedMachine(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	if err := c.plane.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.options.name, Name: name}, machine); err != nil {
		c.t.Errorf("the guarded Machine: %v", err)
	}
	return machine
}

// A disruption budget that never lets go, with Cluster API's own controllers: they give the drain up after a second, as
// the template says, and the host is kept all the same. The policy names Machine, budget and pod. When the budget goes
// the rollout ends by itself, and no hook stays.
//
// Proves: S0-72, S3-11, S3-14, S3-15, S3-16, C7
func TestADrainThatABudgetForbidsIsStalledAndGoesOnWithoutIt(t *testing.T) {
	t.Parallel()
	court := newCourt(t, courtOptions{name: "draining", replicas: 1, hosts: 3, strategy: surge, admission: true, workers: true})
	court.untilWhole("coming up")
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "draining", Name: "workers"}}
	policy.Spec.ClusterName = court.key.Name
	policy.Spec.Drain = &quoinv1.RolloutDrain{TimeoutSeconds: ptr.To[int32](2), PostDrainDelaySeconds: ptr.To[int32](1),
		IntervalSeconds: ptr.To[int32](1)}
	court.create(policy)
	court.addPool("amber", 1)
	court.until("amber", func() string { return court.lacksPool("amber", time.Time{}, 1) })
	old, _ := court.workers("amber", time.Now().Add(time.Hour))
	name, node := old[0].Name, old[0].Status.NodeRef.Name
	court.until("its hooks", func() string {
		if _, is := court.guardedMachine(name).Annotations[quoinv1.RolloutPreDrainHookAnnotation]; !is {
			return "there are none"
		}
		return ""
	})
	court.runGuarded(node)

	// The API server counts seconds.
	time.Sleep(1100 * time.Millisecond)
	edit := metav1.NewTime(time.Now().Truncate(time.Second))
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "draining", Name: "amber"}}
	if err := court.plane.Client.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"spec":{"rollout":{"after":%q},"template":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":1}}}}}`,
		edit.UTC().Format(time.RFC3339)))); err != nil {
		t.Fatal(err)
	}
	court.until("saying what does not let go", func() string {
		stalled := conditions.Get(court.policy(), quoinv1.RolloutPolicyStalledCondition)
		if stalled == nil || stalled.Reason != quoinv1.DrainFailedReason {
			return "it is not stalled" + court.describeWorkers()
		}
		for _, part := range []string{name, "default/db-0", "never"} {
			if !strings.Contains(stalled.Message, part) {
				return "it does not name " + part + ": " + stalled.Message
			}
		}
		if court.guardedMachine(name).Status.Deletion.WaitForPreTerminateHookStartTime.IsZero() {
			return "Cluster API drains still"
		}
		return ""
	})
	workload, err := court.workload(whole)
	if err != nil {
		t.Fatal(err)
	}
	held, err := workload.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, excluded := held.Labels[corev1.LabelNodeExcludeBalancers]
	if !held.Spec.Unschedulable || !excluded || !strings.Contains(fmt.Sprint(held.Spec.Taints), quoinv1.RolloutTaintKey) {
		t.Errorf("Node %s is not cordoned, out of load balancers and tainted: %v %v", node, held.Labels, held.Spec)
	}

	if err := workload.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "never", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	court.until("amber", func() string { return court.lacksPool("amber", edit.Time, 1) })
	court.until("not being stalled", func() string {
		return conditions.GetMessage(court.policy(), quoinv1.RolloutPolicyStalledCondition)
	})
}
