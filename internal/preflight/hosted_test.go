// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// A control plane without Machines tells by itself what it runs, and a way begins there.
func TestVersionPathOfAHostedControlPlane(t *testing.T) {
	g := NewWithT(t)
	scheme := clienttest.Scheme(clusterv1.AddToScheme, apiextensionsv1.AddToScheme)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "others.controlplane.example.com",
		Labels: map[string]string{"cluster.x-k8s.io/v1beta1": "v1"}}}
	hosted := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.example.com/v1", "kind": "Other",
		"metadata": map[string]any{"namespace": "prod", "name": "c1"}, "status": map[string]any{"version": "v1.35.4"}}}
	s := subject(t, nil, nil)
	s.Management = fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd, hosted,
		client.Object(machine("w", "v1.34.1", false))).Build()
	s.Cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.example.com",
		Kind: "Other", Name: "c1"}
	message, findings, err := lookAtVersionPath(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(findings).To(BeEmpty())
	g.Expect(message).To(ContainSubstring("control plane v1.35.4 -> v1.36.3: one minor at a time"))

	// Its annotation leaves kube-proxy alone as well, where it may be read.
	s.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "Kubernetes-1.24"}
	s.Workload = subject(t, nil, []client.Object{estatetest.KubeProxy("v1.34.4")}).Workload
	expect(t, lookAtVersionPath, s, "Block  NoVersionPath")
	hosted.SetAnnotations(map[string]string{kcpv1.SkipKubeProxyAnnotation: ""})
	objects := []client.Object{crd, hosted, machine("w", "v1.34.1", false), machine("cp", "v1.35.4", true)}
	for _, last := range []int{3, 4} { // hosted, and with Machines
		s.Management = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects[:last]...).Build()
		expect(t, lookAtVersionPath, s)
	}
	s.Management = fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd, objects[2], objects[3]).Build()
	expect(t, lookAtVersionPath, s, "Block  NoVersionPath")
}
