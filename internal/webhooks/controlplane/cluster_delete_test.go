// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func TestClusterDeletion(t *testing.T) {
	const protect, confirm = controlplanev1.ProtectAnnotation, controlplanev1.ConfirmDeletionAnnotation
	for name, c := range map[string]struct {
		annotations   map[string]string
		deleting      bool
		namespaceGoes bool
		namespaceGone bool
		refusal       string
	}{
		"a Cluster like any other":         {},
		"a protected one":                  {annotations: map[string]string{protect: ""}, refusal: confirm + ": c (it has none)"},
		"one that is protected for naught": {annotations: map[string]string{protect: "", confirm: "c"}},
		"one confirmed by another name":    {annotations: map[string]string{protect: "", confirm: "d"}, refusal: `it says "d"`},
		"one confirmed with true":          {annotations: map[string]string{protect: "", confirm: "true"}, refusal: `it says "true"`},
		"one that was moved away":          {annotations: map[string]string{protect: "", clusterctlv1.DeleteForMoveAnnotation: ""}},
		"one that is being deleted":        {annotations: map[string]string{protect: ""}, deleting: true},
		"one whose Namespace goes":         {annotations: map[string]string{protect: ""}, namespaceGoes: true},
		"one whose Namespace is gone":      {annotations: map[string]string{protect: ""}, namespaceGone: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
			g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
			if c.namespaceGoes {
				goes(namespace)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if !c.namespaceGone {
				builder = builder.WithObjects(namespace)
			}
			cluster := &clusterv1.Cluster{
				TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c", Annotations: c.annotations}}
			if c.deleting {
				goes(cluster)
			}
			raw, err := json.Marshal(cluster)
			g.Expect(err).NotTo(HaveOccurred())
			webhook := &ClusterDeletionWebhook{Reader: builder.Build(), decoder: admission.NewDecoder(scheme)}

			response := webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Delete, Namespace: "prod", OldObject: runtime.RawExtension{Raw: raw}}})

			g.Expect(response.Allowed).To(Equal(c.refusal == ""))
			if c.refusal != "" {
				g.Expect(response.Result.Message).To(And(ContainSubstring(c.refusal), ContainSubstring("Cluster c is protected")))
			}
		})
	}
}

func TestClusterDeletionThatCannotBeJudged(t *testing.T) {
	g := NewWithT(t)
	webhook := &ClusterDeletionWebhook{decoder: admission.NewDecoder(runtime.NewScheme())}
	g.Expect(webhook.Handle(t.Context(), admission.Request{}).Result.Code).To(BeEquivalentTo(400))
}
