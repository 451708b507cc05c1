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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
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
	stale := NewDNSBudget(&metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "before"}})
	going := NewDNSBudget(selector)
	going.Finalizers, going.DeletionTimestamp = []string{"test/f"}, ptr.To(metav1.Now())
	another := budget(system, "another", &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "metrics-server"}})
	// What the chart of CoreDNS makes, whose pods the Service of kubeadm's selects as well.
	chart := budget(system, "chart", &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns",
		"app.kubernetes.io/instance": "dns"}})
	unguarded := DNSBudget{Selector: selector}
	two := func(name string) DNSBudget {
		return DNSBudget{Unwanted: "PodDisruptionBudget " + name + " is another one, and no pod of two is ever evicted"}
	}
	for name, test := range map[string]struct {
		objects []client.Object
		left    bool
		want    DNSBudget
	}{
		"no CoreDNS":          {nil, false, DNSBudget{}},
		"no CoreDNS any more": {[]client.Object{ours}, false, DNSBudget{Unwanted: "there is no Deployment coredns"}},
		"nobody":              {[]client.Object{deployment}, false, unguarded},
		"left to its user":    {[]client.Object{deployment}, true, DNSBudget{}},
		"ours":                {[]client.Object{deployment, ours, another}, false, DNSBudget{}},
		"ours of other pods":  {[]client.Object{deployment, stale}, false, DNSBudget{Unwanted: "the Deployment selects other pods now"}},
		"ours, which goes":    {[]client.Object{deployment, going, theirs}, false, DNSBudget{}},
		"theirs of our name":  {[]client.Object{deployment, budget(system, DNSBudgetName, nil)}, false, DNSBudget{}},
		"theirs":              {[]client.Object{deployment, theirs}, false, DNSBudget{}},
		"both":                {[]client.Object{deployment, ours, theirs}, false, two("theirs")},
		"both, though left":   {[]client.Object{deployment, ours, theirs}, true, two("theirs")},
		"that of the chart":   {[]client.Object{deployment, ours, chart}, false, two("chart")},
		"that of all pods":    {[]client.Object{deployment, ours, budget(system, "all", &metav1.LabelSelector{})}, false, two("all")},
		"that of no pods":     {[]client.Object{deployment, budget(system, "none", nil)}, false, unguarded},
		"that of a namespace": {[]client.Object{deployment, budget("default", "theirs", selector)}, false, unguarded},
		"that of another app": {[]client.Object{deployment, another}, false, unguarded},
	} {
		t.Run(name, func(t *testing.T) {
			g, controlPlane := NewWithT(t), &controlplanev1.QuoinControlPlane{}
			if test.left {
				controlPlane.Annotations = map[string]string{kcpv1.SkipCoreDNSAnnotation: ""}
			}
			reader := clienttest.Unmanaged(inside).WithObjects(test.objects...).Build()
			g.Expect(readDNSBudget(t.Context(), controlPlane, reader)).To(Equal(test.want))
		})
	}
	for _, of := range []runtime.Object{&policyv1.PodDisruptionBudgetList{}, &appsv1.Deployment{}} {
		found := readDNSBudget(t.Context(), &controlplanev1.QuoinControlPlane{},
			&down{Reader: clienttest.Unmanaged(inside).WithObjects(deployment).Build(), of: of})
		NewWithT(t).Expect(found.Err).To(MatchError(ContainSubstring("down")))
	}
}

// Who guards CoreDNS is read with the rest of the cluster, and our budget lets one pod go at a time.
func TestTheBudgetOfCoreDNSIsReadWithTheCluster(t *testing.T) {
	g := NewWithT(t)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: CoreDNS},
		Spec: appsv1.DeploymentSpec{Selector: selector}}
	w, _ := (&Sources{Workloads: &workload{live: cluster(deployment).Build()}, Watch: watched}).
		readWorkload(t.Context(), joined())
	g.Expect(w.Err).NotTo(HaveOccurred())
	g.Expect(w.DNSBudget).To(Equal(DNSBudget{Selector: selector}))
	g.Expect(NewDNSBudget(selector).Spec.MaxUnavailable.IntValue()).To(Equal(1))
}
