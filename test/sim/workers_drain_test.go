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

// runGuarded runs a pod of an app on the Node, <app>-0, that a disruption budget <app>-never does not let go of.
func (c *court) runGuarded(name, node string) {
	c.t.Helper()
	workload, err := c.workload(whole)
	if err != nil {
		c.t.Fatal(err)
	}
	app := map[string]string{"app": name}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-0", Labels: app},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: name, Image: name}}}}
	if _, err := workload.CoreV1().Pods("default").Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	budgets := workload.PolicyV1().PodDisruptionBudgets("default")
	budget, err := budgets.Create(c.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-never"},
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

// Two pools are edited at once, each with a pod that a disruption budget never lets go of, with Cluster API's own
// controllers. A MachineDrainRule leaves the pod of the second pool where it is, and no rule that of the first. Cluster
// API gives the first drain up after a second, as the template says, and the host is kept all the same: the policy
// names pool, Machine, Node, budget and pod, since when, and what to do, and the second pool is rolled out meanwhile.
// When the budget goes the first ends by itself as well, and nothing of ours stays.
//
// Proves: S0-72, S3-11, S3-14, S3-15, S3-16, C7, K-6
func TestADrainThatABudgetForbidsIsStalledAndGoesOnWithoutIt(t *testing.T) {
	t.Parallel()
	court := newPool(t, "draining", 1, 3, func(spec *quoinv1.RolloutPolicySpec) {
		spec.Drain.TimeoutSeconds = ptr.To[int32](2)
	})
	court.addPool("blue", 1)
	court.until("blue", func() string { return court.lacksPool("blue", time.Time{}, 1) })
	court.create(&clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "draining", Name: "agents"},
		Spec: clusterv1.MachineDrainRuleSpec{
			Drain: clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorSkip},
			Pods: []clusterv1.MachineDrainRulePodSelector{{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}}}})
	var name, node string
	for pool, app := range map[string]string{"amber": "db", "blue": "agent"} {
		old, _ := court.workers(pool, time.Now().Add(time.Hour))
		court.until("hooks of "+pool, func() string {
			if _, is := court.guardedMachine(old[0].Name).Annotations[quoinv1.RolloutPreDrainHookAnnotation]; !is {
				return "there are none"
			}
			return ""
		})
		court.runGuarded(app, old[0].Status.NodeRef.Name)
		if pool == "amber" {
			name, node = old[0].Name, old[0].Status.NodeRef.Name
		}
	}
	judges := []*poolJudge{court.judgePool("amber", 1, 2), court.judgePool("blue", 1, 2)}

	// The API server counts seconds.
	time.Sleep(1100 * time.Millisecond)
	edit := metav1.NewTime(time.Now().Truncate(time.Second))
	after := edit.UTC().Format(time.RFC3339)
	court.patchPool("amber", fmt.Sprintf(
		`{"spec":{"rollout":{"after":%q},"template":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":1}}}}}`, after))
	court.patchPool("blue", fmt.Sprintf(`{"spec":{"rollout":{"after":%q}}}`, after))
	lacksName := func() string {
		stalled := conditions.Get(court.policy(), quoinv1.RolloutPolicyStalledCondition)
		if stalled == nil || stalled.Reason != quoinv1.DrainFailedReason {
			return "it is not stalled" + court.describeWorkers()
		}
		deletion := court.guardedMachine(name).Status.Deletion
		for _, part := range []string{"MachineDeployment amber", name, node, "default/db-0",
			deletion.NodeDrainStartTime.UTC().Format(time.RFC3339), "loosen what protects them"} {
			if !strings.Contains(stalled.Message, part) {
				return "it does not name " + part + ": " + stalled.Message
			}
		}
		return ""
	}
	court.until("saying what does not let go", func() string {
		if lack := lacksName(); lack != "" {
			return lack
		}
		message := conditions.GetMessage(court.policy(), quoinv1.RolloutPolicyStalledCondition)
		if !strings.Contains(message, "db-never") {
			return "it does not name the budget: " + message
		}
		if court.guardedMachine(name).Status.Deletion.WaitForPreTerminateHookStartTime.IsZero() {
			return "Cluster API drains still"
		}
		return ""
	})
	court.until("blue beside it", func() string { return court.lacksPool("blue", edit.Time, 1) })
	court.until("amber, still stalled", lacksName)
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

	budgets := workload.PolicyV1().PodDisruptionBudgets("default")
	if err := budgets.Delete(t.Context(), "db-never", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	court.untilOver("amber", edit.Time, 1, true)
	court.until("not being stalled", func() string {
		return conditions.GetMessage(court.policy(), quoinv1.RolloutPolicyStalledCondition)
	})
	for _, judge := range judges {
		judge.end()
	}
}
