// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// A drain leaves a pod of CoreDNS: there is a budget from the beginning, made again when somebody deletes it, and gone
// when somebody makes one of their own, also while a Machine leaves.
//
// Proves: S0-42
func TestCoreDNSIsEvictedPodByPod(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	budget := func() (*policyv1.PodDisruptionBudget, error) {
		found := &policyv1.PodDisruptionBudget{}
		return found, w.workload.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: observe.DNSBudgetName}, found)
	}
	made, err := budget()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made.Spec).To(Equal(policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow)}))

	g.Expect(w.workload.Delete(t.Context(), made)).To(Succeed())
	w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.Rollout.After = metav1.NewTime(w.r.Clock.Now()) })
	w.once()
	_, err = budget()
	g.Expect(err).NotTo(HaveOccurred(), "before anything is replaced")
	g.Expect(w.machines()).To(HaveLen(1))

	w.once()
	theirs := made.DeepCopy()
	theirs.Name, theirs.ResourceVersion = "theirs", ""
	g.Expect(w.workload.Create(t.Context(), theirs)).To(Succeed())
	w.once()
	_, err = budget()
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	g.Expect(err).To(HaveOccurred())
	w.reconcile()
	_, err = budget()
	g.Expect(err).To(HaveOccurred(), "it stays away beside another one")
}
