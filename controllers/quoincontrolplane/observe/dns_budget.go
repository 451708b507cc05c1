// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// DNSBudgetName is that of the PodDisruptionBudget that keeps a drain from evicting all pods of CoreDNS together.
const DNSBudgetName = "quoin-coredns"

// DNSBudget is who guards CoreDNS.
type DNSBudget struct {
	// Selector of the pods; nil unless CoreDNS is there, is not left to its user, and has no budget at all.
	Selector *metav1.LabelSelector
	// Other is the budget of somebody else that selects the same pods as ours. Neither of two lets a pod be evicted.
	Other string
}

// NewDNSBudget is the budget for the pods of a selector. One that is not ready is no loss, and may always go.
func NewDNSBudget(selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: DNSBudgetName},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow)},
	}
}

// readDNSBudget finds out who guards CoreDNS.
func readDNSBudget(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, reader client.Reader,
) (DNSBudget, error) {
	deployment, budgets := &appsv1.Deployment{}, &policyv1.PodDisruptionBudgetList{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: CoreDNS}, deployment)
	if err != nil {
		if err = client.IgnoreNotFound(err); err != nil {
			err = fmt.Errorf("reading Deployment %s of the workload cluster: %w", CoreDNS, err)
		}
		return DNSBudget{}, err
	}
	if err := reader.List(ctx, budgets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return DNSBudget{}, fmt.Errorf("listing the PodDisruptionBudgets of the workload cluster: %w", err)
	}
	_, left := controlPlane.Annotations[kcpv1.SkipCoreDNSAnnotation]
	return dnsBudgetOf(deployment, budgets.Items, left), nil
}

func dnsBudgetOf(deployment *appsv1.Deployment, budgets []policyv1.PodDisruptionBudget, left bool) DNSBudget {
	ours, other := false, ""
	for i := range budgets {
		if budgets[i].Name == DNSBudgetName {
			ours = true
		} else if selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector); err == nil &&
			selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
			other = budgets[i].Name
		}
	}
	switch {
	case ours:
		return DNSBudget{Other: other}
	case other == "" && !left:
		return DNSBudget{Selector: deployment.Spec.Selector}
	}
	return DNSBudget{}
}
