// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

func TestScale(t *testing.T) {
	for name, c := range map[string]struct {
		of      *controlplanev1.QuoinControlPlane
		to      int32
		refusal string
	}{
		"to 3":                    {controlPlane(), 3, ""},
		"to 2":                    {controlPlane(), 2, "spec.replicas: Forbidden: 2 replicas with stacked etcd"},
		"to 0":                    {controlPlane(), 0, "at least one replica"},
		"to 2 with external etcd": {controlPlane(externalEtcd), 2, ""},
		"to 0 with external etcd": {controlPlane(externalEtcd), 0, "at least one replica"},
		"to 2 while it goes":      {controlPlane(deleting), 2, ""},
		"of nothing":              {nil, 3, "read QuoinControlPlane prod/cp"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := clienttest.Scheme(controlplanev1.AddToScheme, autoscalingv1.AddToScheme)
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if c.of != nil {
				builder = builder.WithObjects(c.of)
			}
			webhook := &ScaleWebhook{Client: builder.Build(), decoder: admission.NewDecoder(scheme)}
			scale, err := json.Marshal(&autoscalingv1.Scale{
				TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
				Spec:     autoscalingv1.ScaleSpec{Replicas: c.to}})
			g.Expect(err).NotTo(HaveOccurred())

			response := webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Namespace: "prod", Name: "cp", Object: runtime.RawExtension{Raw: scale}}})

			g.Expect(response.Allowed).To(Equal(c.refusal == ""))
			if c.refusal != "" {
				g.Expect(response.Result.Message).To(ContainSubstring(c.refusal))
			}
		})
	}
}

func TestScaleOfSomethingElse(t *testing.T) {
	g := NewWithT(t)
	webhook := &ScaleWebhook{decoder: admission.NewDecoder(runtime.NewScheme())}
	g.Expect(webhook.Handle(t.Context(), admission.Request{}).Result.Code).To(BeEquivalentTo(400))
}
