// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// lookAtDisruption looks for what the drains of the Nodes that leave would wait for without end, or longer than they
// may, and whether there is room for the pods that they evict.
func lookAtDisruption(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	drains, err := s.rehearse(ctx)
	if err != nil {
		return "", nil, err
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := s.Workload.List(ctx, budgets); err != nil {
		return "", nil, fmt.Errorf("list the PodDisruptionBudgets: %w", err)
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return "", nil, err
	}
	together := map[string]int{}
	for i := range pools {
		surge, unavailable := bounds(&pools[i])
		together[pools[i].Name] = surge + unavailable
	}
	findings, err := s.judgeRoom(ctx, drains, pools)
	if err != nil {
		return "", nil, err
	}
	guards, evicted := guardsOf(budgets.Items), 0
	for _, drain := range drains {
		evicted += len(drain.evicted)
		for _, pod := range drain.evicted {
			if two := guard(guards[pod.Namespace], pod, drain.machine); len(two) > 1 {
				findings = append(findings, softened(blocks("Pod "+pod.Namespace+"/"+pod.Name, "TwoBudgets",
					fmt.Sprintf("PodDisruptionBudgets %s select it, and no pod of more than one is ever evicted",
						strings.Join(two, " and ")), "have one of them select others"), drain.machine))
			}
		}
		findings = append(findings, judgeAwaited(drain)...)
	}
	for _, inNamespace := range guards {
		for _, guard := range inNamespace {
			findings = append(findings, guard.judge(together)...)
		}
	}
	message := fmt.Sprintf("drains of %d Nodes, which would evict %d pods, and %d PodDisruptionBudgets", len(drains),
		evicted, len(budgets.Items))
	return message, findings, nil
}

// judgeAwaited finds pods that a drain leaves alone until they end, and that never do.
func judgeAwaited(drain drained) []quoinv1.Finding {
	var findings []quoinv1.Finding
	for _, pod := range drain.awaited {
		if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			findings = append(findings, softened(blocks("Pod "+pod.Namespace+"/"+pod.Name, "NeverEnds",
				"a drain waits until it ends by itself, as its label or a MachineDrainRule says, and it is always restarted",
				"delete it when its Node is cordoned, or have the drain evict it"), drain.machine))
		}
	}
	return findings
}

// softened is a finding that keeps no drain for ever, when all the Machines give up draining after a time. What was
// waited for ends then all the same.
func softened(finding quoinv1.Finding, machines ...*clusterv1.Machine) quoinv1.Finding {
	var longest int32
	for _, machine := range machines {
		limit := ptr.Deref(machine.Spec.Deletion.NodeDrainTimeoutSeconds, 0)
		if limit == 0 {
			return finding
		}
		longest = max(longest, limit)
	}
	finding.Verdict = quoinv1.VerdictWarn
	finding.Message += fmt.Sprintf("; the drain gives up after %s, and ends the pods without asking",
		time.Duration(longest)*time.Second)
	return finding
}

// guarding is a budget with the pods that it guards against a drain.
type guarding struct {
	budget   *policyv1.PodDisruptionBudget
	selector labels.Selector
	pods     int
	// machines have the pods, so many each.
	machines map[*clusterv1.Machine]int
}

// guardsOf are the budgets by namespace. One whose selector cannot be read guards nothing.
func guardsOf(budgets []policyv1.PodDisruptionBudget) map[string][]*guarding {
	guards := map[string][]*guarding{}
	for i := range budgets {
		if selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector); err == nil {
			guards[budgets[i].Namespace] = append(guards[budgets[i].Namespace],
				&guarding{budget: &budgets[i], selector: selector, machines: map[*clusterv1.Machine]int{}})
		}
	}
	return guards
}

// guard counts the pod at the budget that its eviction asks, and returns the names of all that select it. The API
// server evicts no pod of more than one (registry/core/pod/storage/eviction.go).
func guard(guards []*guarding, pod *corev1.Pod, machine *clusterv1.Machine) []string {
	switch pod.Status.Phase {
	case corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed:
		return nil // evicted without a question
	case corev1.PodRunning, corev1.PodUnknown:
	}
	var by []*guarding
	var names []string
	for _, one := range guards {
		if one.selector.Matches(labels.Set(pod.Labels)) {
			by, names = append(by, one), append(names, one.budget.Name)
		}
	}
	if len(by) == 1 && by[0].asked(pod) {
		by[0].pods++
		by[0].machines[machine]++
	}
	return names
}

// asked reports whether the budget is asked before the pod is evicted. Of one that is not ready it may say that it need
// not be.
func (g *guarding) asked(pod *corev1.Pod) bool {
	if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		return true
	}
	status := g.budget.Status
	if ptr.Deref(g.budget.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow {
		return false
	}
	return status.CurrentHealthy < status.DesiredHealthy || status.DesiredHealthy == 0
}

// judge says what of the budget keeps the drains.
func (g *guarding) judge(together map[string]int) []quoinv1.Finding {
	if g.pods == 0 {
		return nil
	}
	status := g.budget.Status
	object := fmt.Sprintf("PodDisruptionBudget %s/%s", g.budget.Namespace, g.budget.Name)
	synced := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	finding := warns(object, "TooFewHealthy", fmt.Sprintf("%d of %d pods are healthy, and a drain waits for %d",
		status.CurrentHealthy, status.ExpectedPods, status.DesiredHealthy+1), "see to the pods that are not ready")
	switch owner := metav1.GetControllerOf(g.budget); {
	case status.ObservedGeneration < g.budget.Generation:
		finding = blocks(object, "Unobserved", "was edited, and nobody has counted its pods since: none is evicted before",
			"make another PreflightCheck in a minute; if it stays so, see to the kube-controller-manager")
	case synced != nil && synced.Reason == policyv1.SyncFailedReason:
		finding = blocks(object, "SyncFailed", fmt.Sprintf("its pods cannot be counted, so none of %d is evicted: %s", g.pods,
			synced.Message), "correct the budget as the message says")
	case status.DisruptionsAllowed > 0:
		return g.judgeTogether(object, together)
	case status.ExpectedPods == 0:
		finding = blocks(object, "NotCounted", fmt.Sprintf("expects no pods, and %d that a drain would evict are its own",
			g.pods), "make another PreflightCheck in a minute; if it stays so, correct its selector")
	case status.DesiredHealthy >= status.ExpectedPods && owner != nil:
		finding = warns(object, "HeldByOwner", fmt.Sprintf(
			"wants all of its %d pods; %s %s owns it and may give way when a Node is cordoned, and else a drain never ends",
			status.ExpectedPods, owner.Kind, owner.Name), "see what "+owner.Kind+" "+owner.Name+" does at a drain")
	case status.DesiredHealthy >= status.ExpectedPods:
		finding = blocks(object, "AllowsNoDisruption",
			fmt.Sprintf("wants all of its %d pods, so a drain of their Nodes never ends", status.ExpectedPods),
			"raise the replicas, or allow one disruption")
	}
	machines := make([]*clusterv1.Machine, 0, len(g.machines))
	for machine := range g.machines {
		machines = append(machines, machine)
	}
	return []quoinv1.Finding{softened(finding, machines...)}
}

// judgeTogether finds a pool of which more Nodes leave at a time than the budget lets go: their drains wait for one
// another.
func (g *guarding) judgeTogether(object string, together map[string]int) []quoinv1.Finding {
	counts := map[string][]int{}
	for machine, pods := range g.machines {
		counts[*group(machine)] = append(counts[*group(machine)], pods)
	}
	var findings []quoinv1.Finding
	for pool, pods := range counts {
		slices.SortFunc(pods, func(a, b int) int { return cmp.Compare(b, a) })
		nodes, leaving := min(together[pool], len(pods)), 0
		for _, count := range pods[:nodes] {
			leaving += count
		}
		if allowed := int(g.budget.Status.DisruptionsAllowed); nodes > 1 && leaving > allowed {
			findings = append(findings, warns(object, "LeaveTogether", fmt.Sprintf(
				"%d Nodes of MachineDeployment %s leave at a time, with up to %d of its pods, and it lets %d go: their drains "+
					"wait for one another", nodes, pool, leaving, allowed),
				"let the pool go slower (maxSurge, maxUnavailable), or allow more disruptions"))
		}
	}
	return findings
}
