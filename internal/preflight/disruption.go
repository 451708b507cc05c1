// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// lookAtDisruption looks for what a drain would wait for without end, and for data that stays on a host that goes.
func lookAtDisruption(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := s.Workload.List(ctx, budgets); err != nil {
		return "", nil, fmt.Errorf("list the PodDisruptionBudgets: %w", err)
	}
	volumes := &corev1.PersistentVolumeList{}
	if err := s.Workload.List(ctx, volumes); err != nil {
		return "", nil, fmt.Errorf("list the PersistentVolumes: %w", err)
	}
	var findings []quoinv1.Finding
	for i := range budgets.Items {
		findings = append(findings, judgeBudget(&budgets.Items[i])...)
	}
	for i := range volumes.Items {
		findings = append(findings, judgeVolume(&volumes.Items[i])...)
	}
	message := fmt.Sprintf("%d PodDisruptionBudgets and %d PersistentVolumes", len(budgets.Items), len(volumes.Items))
	return message, findings, nil
}

// judgeBudget tells a budget that no drain can ever keep from one whose pods are not well just now.
func judgeBudget(budget *policyv1.PodDisruptionBudget) []quoinv1.Finding {
	status := budget.Status
	if status.ExpectedPods == 0 || status.DisruptionsAllowed > 0 {
		return nil
	}
	object := fmt.Sprintf("PodDisruptionBudget %s/%s", budget.Namespace, budget.Name)
	if status.DesiredHealthy >= status.ExpectedPods {
		return []quoinv1.Finding{blocks(object, "AllowsNoDisruption",
			fmt.Sprintf("wants all of its %d pods, so a drain of their Nodes never ends", status.ExpectedPods),
			"raise the replicas, or allow one disruption")}
	}
	return []quoinv1.Finding{warns(object, "TooFewHealthy",
		fmt.Sprintf("%d of %d pods are healthy, and a drain waits for %d", status.CurrentHealthy, status.ExpectedPods,
			status.DesiredHealthy+1), "see to the pods that are not ready")}
}

// judgeVolume finds data that lies on one Node's own disk: the Node's host is reset when its Machine is replaced.
func judgeVolume(volume *corev1.PersistentVolume) []quoinv1.Finding {
	if volume.Spec.Local == nil && volume.Spec.HostPath == nil || volume.Spec.ClaimRef == nil {
		return nil
	}
	claim := volume.Spec.ClaimRef
	return []quoinv1.Finding{blocks("PersistentVolume "+volume.Name, "LocalData", fmt.Sprintf(
		"holds the data of claim %s/%s on the disk of one Node, and its pods lose them when that is replaced",
		claim.Namespace, claim.Name),
		"bring the data elsewhere; or, if they may be lost or another replica has them, skip this check and say so")}
}
