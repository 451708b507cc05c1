// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Proves: S0-23, R2
//
// A control plane without Machines tells by itself what it runs, and pools are judged by that. One that cannot be read
// keeps nobody from anything.
func TestAPoolOfAHostedControlPlane(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "others"}, "c1", nil)
	for name, c := range map[string]struct {
		pool                     string
		gone, machines           bool
		fails                    error
		refusal, warning, broken string
	}{
		"of its version":                 {pool: "v1.35.4"},
		"on the way to its next version": {pool: "v1.36.3", warning: "no host is claimed"},
		"too new":                        {pool: "v1.37.0", refusal: "R2"},
		"too old":                        {pool: "v1.31.0", refusal: "bring it to v1.32 or later"},
		"with Machines, which tell":      {pool: "v1.37.0", machines: true, warning: "no host is claimed"},
		"that is not there":              {pool: "v1.37.0", gone: true, warning: "not judged"},
		"that nobody let us read":        {pool: "v1.37.0", fails: forbidden, warning: "not judged"},
		"whose API server is ill":        {pool: "v1.35.4", fails: context.DeadlineExceeded, broken: "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
			g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
				Name: "others.controlplane.example.com", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1"}}
			cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.example.com",
				Kind: "Other", Name: "c1"}
			objects := []client.Object{crd, cluster}
			hosted := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.example.com/v1",
				"kind": "Other", "metadata": map[string]any{"namespace": "prod", "name": "c1"},
				"status": map[string]any{"versions": []any{map[string]any{"version": "v1.35.4", "replicas": int64(1)}}}}}
			if !c.gone {
				objects = append(objects, hosted)
			}
			if c.machines {
				machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp", Labels: map[string]string{
					clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}}}
				machine.Spec.ClusterName, machine.Spec.Version, machine.Status.NodeRef.Name = "c1", "v1.36.3", "cp"
				objects = append(objects, machine)
			}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, under client.WithWatch,
					key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, is := object.(*unstructured.Unstructured); is && c.fails != nil {
						return c.fails
					}
					return under.Get(ctx, key, object, options...)
				}}).Build()
			deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue"}}
			deployment.Spec.ClusterName, deployment.Spec.Template.Spec.Version = "c1", c.pool
			webhook := &VersionWebhook{Reader: reader, decoder: admission.NewDecoder(scheme)}
			response := webhook.handleDeployment(t.Context(), update(t, deployment))
			g.Expect(response.Allowed).To(Equal(c.refusal == "" && c.broken == ""))
			g.Expect(response.Result.Message).To(ContainSubstring(c.refusal + c.broken))
			if c.warning == "" {
				g.Expect(response.Warnings).To(BeEmpty())
			} else {
				g.Expect(response.Warnings).To(ConsistOf(ContainSubstring(c.warning)))
			}
		})
	}
}
