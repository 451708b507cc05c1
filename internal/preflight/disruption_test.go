// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shop is the namespace of the pods.
func shop() client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
}

// web is a pod on the Node, with the label app: web.
func web(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}}}
	pod.Spec.NodeName, pod.Spec.RestartPolicy, pod.Status.Phase = node, corev1.RestartPolicyAlways, corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: ptr.To(true)}}
	}
}

func labeled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func unready(pod *corev1.Pod) { pod.Status.Conditions = nil }

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// budget of the pods with the label app: web.
func budget(name string, allowed, healthy, desired, expected int32) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	b.Status = policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: healthy,
		DesiredHealthy: desired, ExpectedPods: expected}
	return b
}

func TestDisruptionHeedsWhatADrainWouldEvict(t *testing.T) {
	const never = "Block PodDisruptionBudget shop/web AllowsNoDisruption"
	all := budget("web", 0, 1, 1, 1)
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		rules []client.Object
		with  func(machine *clusterv1.Machine)
		want  []string
	}{
		"a pod":                        {pod: web("a", "w"), want: []string{never}},
		"on a Node that stays":         {pod: web("a", "stays")},
		"on a Node that nobody raises": {pod: web("a", "stray")},
		"of a DaemonSet":               {pod: web("a", "w", ownedBy("DaemonSet", "agent"))},
		"of a DaemonSet that is gone":  {pod: web("a", "w", ownedBy("DaemonSet", "gone")), want: []string{never}},
		"static": {pod: web("a", "w", func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
		})},
		"that succeeded":              {pod: web("a", "w", inPhase(corev1.PodSucceeded))},
		"that failed":                 {pod: web("a", "w", inPhase(corev1.PodFailed))},
		"that was never started":      {pod: web("a", "w", inPhase(corev1.PodPending))},
		"of another application":      {pod: web("a", "w", labeled("app", "other"))},
		"that is not to be drained":   {pod: web("a", "w", labeled(clusterv1.PodDrainLabel, "skip"))},
		"that is awaited and ends":    {pod: web("a", "w", labeled(clusterv1.PodDrainLabel, "wait-completed"), ends)},
		"that is awaited and goes on": {pod: web("a", "w", labeled(clusterv1.PodDrainLabel, "wait-completed")), want: []string{"Block Pod shop/a NeverEnds"}},
		"that a rule leaves alone":    {pod: web("a", "w"), rules: []client.Object{drainRule("c1", clusterv1.MachineDrainRuleDrainBehaviorSkip)}},
		"that a rule of another Cluster leaves alone": {pod: web("a", "w"), want: []string{never},
			rules: []client.Object{drainRule("c2", clusterv1.MachineDrainRuleDrainBehaviorSkip)}},
		"that a rule has drained last": {pod: web("a", "w"), want: []string{never},
			rules: []client.Object{drainRule("c1", clusterv1.MachineDrainRuleDrainBehaviorDrain)}},
		"on a Machine that is not drained": {pod: web("a", "w"), with: func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{clusterv1.ExcludeNodeDrainingAnnotation: ""}
		}},
		"on a Machine that gives up": {pod: web("a", "w"), want: []string{"Warn PodDisruptionBudget shop/web AllowsNoDisruption"},
			with: func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](600) }},
	} {
		t.Run(name, func(t *testing.T) {
			worker := machine("w", "v1.35.4", false)
			if c.with != nil {
				c.with(worker)
			}
			agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent"}}
			s := subject(t, append(c.rules, worker, machine("stays", "v1.36.3", false)),
				[]client.Object{shop(), all, agent, c.pod})
			s.Cluster.Labels = map[string]string{"name": "c1"}
			for _, finding := range expect(t, lookAtDisruption, s, c.want...) {
				if finding.Verdict == "Warn" {
					NewWithT(t).Expect(finding.Message).To(HaveSuffix("; the drain gives up after 10m0s, and ends the pods without asking"))
				}
			}
		})
	}
}

func ends(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }

func drainRule(cluster string, behavior clusterv1.MachineDrainRuleDrainBehavior) *clusterv1.MachineDrainRule {
	rule := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
	rule.Spec.Drain.Behavior = behavior
	if behavior == clusterv1.MachineDrainRuleDrainBehaviorDrain {
		rule.Spec.Drain.Order = ptr.To[int32](10)
	}
	rule.Spec.Machines = []clusterv1.MachineDrainRuleMachineSelector{{
		ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": cluster}}}}
	rule.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	return rule
}

// Another pod, which a drain evicts at once, is there to be waited for by those with a later order.
func TestDisruptionHeedsPodsThatAreEvictedLater(t *testing.T) {
	first := web("first", "w", labeled("app", "first"))
	expect(t, lookAtDisruption, subject(t,
		[]client.Object{machine("w", "v1.35.4", false), drainRule("c1", clusterv1.MachineDrainRuleDrainBehaviorSkip)},
		[]client.Object{shop(), first, web("a", "w"), budget("web", 0, 1, 1, 1)}),
		"Block PodDisruptionBudget shop/web AllowsNoDisruption")
	s := subject(t,
		[]client.Object{machine("w", "v1.35.4", false), drainRule("c1", clusterv1.MachineDrainRuleDrainBehaviorDrain)},
		[]client.Object{shop(), first, web("a", "w"), budget("web", 0, 1, 1, 1)})
	s.Cluster.Labels = map[string]string{"name": "c1"}
	expect(t, lookAtDisruption, s, "Block PodDisruptionBudget shop/web AllowsNoDisruption")
}

func TestDisruptionHeedsWhatABudgetSays(t *testing.T) {
	const object = " PodDisruptionBudget shop/web "
	failed := []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.SyncFailedReason, Message: "found no controllers"}}
	for name, c := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		change func(budget *policyv1.PodDisruptionBudget)
		pod    []func(*corev1.Pod)
		want   []string
	}{
		"lets one go":     {budget: budget("web", 1, 3, 2, 3)},
		"lets nobody go":  {budget: budget("web", 0, 3, 3, 3), want: []string{"Block" + object + "AllowsNoDisruption"}},
		"one is ill":      {budget: budget("web", 0, 2, 2, 3), want: []string{"Warn" + object + "TooFewHealthy"}},
		"counts nobody":   {budget: budget("web", 0, 0, 0, 0), want: []string{"Block" + object + "NotCounted"}},
		"is not observed": {budget: budget("web", 1, 3, 2, 3), want: []string{"Block" + object + "Unobserved"}, change: func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 }},
		"cannot be counted": {budget: budget("web", 0, 3, 2, 3), want: []string{"Block" + object + "SyncFailed"},
			change: func(b *policyv1.PodDisruptionBudget) { b.Status.Conditions = failed }},
		"belongs to somebody": {budget: budget("web", 0, 1, 1, 1), want: []string{"Warn" + object + "HeldByOwner"},
			change: func(b *policyv1.PodDisruptionBudget) {
				b.OwnerReferences = []metav1.OwnerReference{{Kind: "Database", Name: "db", Controller: ptr.To(true)}}
			}},
		"selects nothing": {budget: budget("web", 0, 1, 1, 1), change: func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }},
		"cannot be read": {budget: budget("web", 0, 1, 1, 1), change: func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchLabels["app"] = "no label!"
		}},
		"of a pod that is not ready, and enough are": {budget: budget("web", 0, 2, 2, 2), pod: []func(*corev1.Pod){unready}},
		"of a pod that is not ready, and too few are": {budget: budget("web", 0, 1, 2, 3), pod: []func(*corev1.Pod){unready},
			want: []string{"Warn" + object + "TooFewHealthy"}},
		"of a pod that is not ready and may go then": {budget: budget("web", 0, 1, 2, 3), pod: []func(*corev1.Pod){unready},
			change: func(b *policyv1.PodDisruptionBudget) {
				b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.budget)
			}
			expect(t, lookAtDisruption, subject(t, []client.Object{machine("w", "v1.35.4", false)},
				[]client.Object{shop(), web("a", "w", c.pod...), c.budget}), c.want...)
		})
	}
}

// The API server evicts no pod of two budgets, whatever they allow.
func TestDisruptionHeedsTwoBudgetsOfAPod(t *testing.T) {
	every := budget("every", 5, 6, 1, 6)
	every.Spec.Selector = &metav1.LabelSelector{}
	elsewhere := budget("elsewhere", 5, 6, 1, 6)
	elsewhere.Namespace = "other"
	findings := expect(t, lookAtDisruption, subject(t, []client.Object{machine("w", "v1.35.4", false)}, []client.Object{shop(),
		budget("web", 1, 3, 2, 3), every, elsewhere, web("a", "w"), web("b", "w", labeled("app", "other")),
		web("c", "w", func(pod *corev1.Pod) { pod.Labels = nil })}), "Block Pod shop/a TwoBudgets")
	NewWithT(t).Expect(findings[0].Message).To(ContainSubstring("PodDisruptionBudgets every and web select it"))
}

func TestDisruptionSumsWhatLeavesTogether(t *testing.T) {
	const warns = "Warn PodDisruptionBudget shop/web LeaveTogether"
	of := func(n int32) *intstr.IntOrString { return ptr.To(intstr.FromInt32(n)) }
	for name, c := range map[string]struct {
		surge, unavailable *intstr.IntOrString
		allowed            int32
		want               []string
	}{
		"one by default":              {allowed: 1},
		"two by surge":                {surge: of(2), allowed: 1, want: []string{warns}},
		"two that may go":             {surge: of(2), allowed: 3},
		"two, the fullest of three":   {surge: of(2), allowed: 2, want: []string{warns}},
		"three by both":               {surge: of(2), unavailable: of(1), allowed: 3, want: []string{warns}},
		"more than there are Nodes":   {surge: of(9), allowed: 4},
		"two thirds of three, by one": {surge: of(0), unavailable: ptr.To(intstr.FromString("70%")), allowed: 2, want: []string{warns}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
			pool.Spec.Replicas = ptr.To[int32](3)
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = c.surge
			pool.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = c.unavailable
			management, workload := []client.Object{pool}, []client.Object{shop(), budget("web", c.allowed, 4, 4-c.allowed, 4)}
			for i, on := range []string{"w1", "w2", "w3", "w3"} {
				workload = append(workload, web(fmt.Sprint(i), on))
			}
			for _, name := range []string{"w1", "w2", "w3"} {
				management = append(management, machine(name, "v1.35.4", false))
			}
			expect(t, lookAtDisruption, subject(t, management, workload), c.want...)
		})
	}
}
