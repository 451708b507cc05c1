// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// Proves: S0-42
func TestWhoGuardsCoreDNS(t *testing.T) {
	pods := map[string]string{"k8s-app": "kube-dns", "tier": "dns"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: CoreDNS},
		Spec: appsv1.DeploymentSpec{Selector: selector, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Labels: pods}}}}
	budget := func(namespace, name string, selector *metav1.LabelSelector) client.Object {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}}
	}
	system := metav1.NamespaceSystem
	ours, theirs := NewDNSBudget(selector), budget(system, "theirs", &metav1.LabelSelector{MatchLabels: pods})
	for name, test := range map[string]struct {
		objects []client.Object
		left    bool
		want    DNSBudget
	}{
		"no CoreDNS":         {nil, false, DNSBudget{}},
		"nobody":             {[]client.Object{deployment}, false, DNSBudget{Selector: selector}},
		"left to its user":   {[]client.Object{deployment}, true, DNSBudget{}},
		"ours":               {[]client.Object{deployment, ours}, false, DNSBudget{}},
		"theirs":             {[]client.Object{deployment, theirs}, false, DNSBudget{}},
		"both":               {[]client.Object{deployment, ours, theirs}, false, DNSBudget{Other: "theirs"}},
		"both, though left":  {[]client.Object{deployment, ours, theirs}, true, DNSBudget{Other: "theirs"}},
		"that of all pods":   {[]client.Object{deployment, ours, budget(system, "all", &metav1.LabelSelector{})}, false, DNSBudget{Other: "all"}},
		"that of no pods":    {[]client.Object{deployment, budget(system, "none", nil)}, false, DNSBudget{Selector: selector}},
		"that of other pods": {[]client.Object{deployment, budget("default", "theirs", selector)}, false, DNSBudget{Selector: selector}},
		"that of another add-on": {[]client.Object{deployment, budget(system, "other",
			&metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "metrics-server"}})}, false, DNSBudget{Selector: selector}},
	} {
		t.Run(name, func(t *testing.T) {
			g, controlPlane := NewWithT(t), &controlplanev1.QuoinControlPlane{}
			if test.left {
				controlPlane.Annotations = map[string]string{kcpv1.SkipCoreDNSAnnotation: ""}
			}
			found, err := readDNSBudget(t.Context(), controlPlane, clienttest.Unmanaged(inside).WithObjects(test.objects...).Build())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(Equal(test.want))
		})
	}
	for _, reader := range []client.Reader{unreadable(), &down{Reader: clienttest.Unmanaged(inside).WithObjects(deployment).Build(),
		of: &policyv1.PodDisruptionBudgetList{}}} {
		_, err := readDNSBudget(t.Context(), &controlplanev1.QuoinControlPlane{}, reader)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("down")))
	}
}
