// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

const (
	// DNSBudgetName is that of the PodDisruptionBudget that keeps a drain from evicting all pods of CoreDNS together.
	DNSBudgetName = "quoin-coredns"
	managedBy     = "app.kubernetes.io/managed-by"
	quoin         = "quoin"
)

// DNSBudget is what is to be done about the PodDisruptionBudget of CoreDNS; nothing when it is empty.
type DNSBudget struct {
	// Selector of the pods that no budget guards.
	Selector *metav1.LabelSelector
	// Unwanted says why ours is to go.
	Unwanted string
	// Err is why that is not known.
	Err error
}

// NewDNSBudget is the budget for the pods of a selector. One that is not ready is no loss, and may always go.
func NewDNSBudget(selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: DNSBudgetName,
			Labels: map[string]string{managedBy: quoin}},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow)},
	}
}

// readDNSBudget finds out who guards CoreDNS.
func readDNSBudget(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, reader client.Reader,
) DNSBudget {
	deployment, budgets := &appsv1.Deployment{}, &policyv1.PodDisruptionBudgetList{}
	if err := reader.List(ctx, budgets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return DNSBudget{Err: fmt.Errorf("listing the PodDisruptionBudgets of the workload cluster: %w", err)}
	}
	err := reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: CoreDNS}, deployment)
	switch {
	case apierrors.IsNotFound(err):
		deployment = nil
	case err != nil:
		return DNSBudget{Err: fmt.Errorf("reading Deployment %s of the workload cluster: %w", CoreDNS, err)}
	}
	_, left := controlPlane.Annotations[kcpv1.SkipCoreDNSAnnotation]
	return dnsBudgetOf(deployment, budgets.Items, left)
}

// dnsBudgetOf judges by what budgets select, and not by pods: of those of CoreDNS none is cached here.
func dnsBudgetOf(deployment *appsv1.Deployment, budgets []policyv1.PodDisruptionBudget, left bool) DNSBudget {
	var ours, other *policyv1.PodDisruptionBudget
	for i := range budgets {
		switch budget := &budgets[i]; {
		case budget.Name == DNSBudgetName && budget.Labels[managedBy] == quoin:
			ours = budget
		case budget.Name == DNSBudgetName || deployment != nil && mayShare(budget, deployment):
			other = budget
		}
	}
	switch {
	case ours == nil && (deployment == nil || left || other != nil), ours != nil && ours.DeletionTimestamp != nil:
		return DNSBudget{}
	case ours == nil:
		return DNSBudget{Selector: deployment.Spec.Selector}
	case deployment == nil:
		return DNSBudget{Unwanted: "there is no Deployment " + CoreDNS}
	case other != nil:
		return DNSBudget{Unwanted: fmt.Sprintf("PodDisruptionBudget %s is another one, and no pod of two is ever evicted",
			other.Name)}
	case !equality.Semantic.DeepEqual(ours.Spec.Selector, deployment.Spec.Selector):
		return DNSBudget{Unwanted: "the Deployment selects other pods now"}
	}
	return DNSBudget{}
}

// mayShare reports whether a budget may select a pod that ours would: one of the Deployment, or one that has the
// Deployment's labels and more, as those of another Deployment behind the same Service have.
func mayShare(budget *policyv1.PodDisruptionBudget, deployment *appsv1.Deployment) bool {
	selects := func(by *metav1.LabelSelector, what map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(by)
		return err == nil && selector.Matches(labels.Set(what))
	}
	return selects(budget.Spec.Selector, deployment.Spec.Template.Labels) ||
		budget.Spec.Selector != nil && selects(deployment.Spec.Selector, budget.Spec.Selector.MatchLabels)
}
