// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// A control plane without Machines is asked what it runs. One that is not there, or that nobody let us read, tells
// nothing; one that cannot be read is an error.
func TestAControlPlaneThatTellsItsVersions(t *testing.T) {
	entry := func(version any) any { return map[string]any{"version": version} }
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "others"}, "c1", nil)
	for name, c := range map[string]struct {
		kind           string
		servers        []string
		status         map[string]any
		gone           bool
		fails          error
		want           []string
		unread, broken string
	}{
		"several": {status: map[string]any{"versions": []any{entry("v1.35.4"), entry("v1.36.3")}, "version": "v1.35.4"},
			want: []string{"v1.35.4", "v1.36.3"}},
		"the oldest":      {status: map[string]any{"version": "v1.35.4"}, want: []string{"v1.35.4"}},
		"none":            {status: map[string]any{}},
		"nothing to read": {status: map[string]any{"versions": []any{"v1.36.3", entry(""), entry(int64(1))}}},
		"with Machines, which tell": {servers: []string{"v1.34.1"}, status: map[string]any{"version": "v1.35.4"},
			want: []string{"v1.34.1"}},
		"ours, without Machines":  {kind: "QuoinControlPlane", status: map[string]any{"version": "v1.35.4"}},
		"no reference":            {kind: "-", status: map[string]any{"version": "v1.35.4"}},
		"that is gone":            {gone: true, unread: "not found"},
		"that nobody let us read": {fails: forbidden, unread: "forbidden"},
		"that does not answer":    {fails: context.DeadlineExceeded, broken: "read the control plane of Cluster c1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := clienttest.Scheme(apiextensionsv1.AddToScheme)
			objects := []client.Object{&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
				Name: "others.controlplane.example.com", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}}
			if !c.gone {
				objects = append(objects, &unstructured.Unstructured{Object: map[string]any{"kind": "Other",
					"apiVersion": "controlplane.example.com/v1", "status": c.status,
					"metadata": map[string]any{"namespace": "prod", "name": "c1"}}})
			}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, under client.WithWatch,
					key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, is := object.(*unstructured.Unstructured); is && c.fails != nil {
						return c.fails
					}
					return under.Get(ctx, key, object, options...)
				}}).Build()
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1"}}
			if c.kind == "" {
				c.kind = "Other"
			}
			if c.kind != "-" {
				cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: c.kind, Name: "c1",
					APIGroup: "controlplane.example.com"}
			}
			world, unread, err := observed.WithHosted(t.Context(), reader, cluster, skew.World{APIServers: c.servers,
				Components: []skew.Running{{Object: "Machine w1"}}})
			if c.broken != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.broken)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(world.APIServers).To(Equal(c.want))
			g.Expect(world.Components).To(HaveLen(1))
			g.Expect(unread).To(ContainSubstring(c.unread))
			g.Expect(unread == "").To(Equal(c.unread == ""), unread)
		})
	}
}

func TestWhatKubeadmIsToldOfAControlPlane(t *testing.T) {
	configuration := &bootstrapv1.ClusterConfiguration{FeatureGates: map[string]bool{"A": true}}
	configuration.Etcd.Local.ImageTag = "3.6.5-0"
	NewWithT(t).Expect(observed.KubeadmOf("v1.36.3", configuration)).To(Equal(skew.Kubeadm{Version: "v1.36.3",
		EtcdTag: "3.6.5-0", FeatureGates: map[string]bool{"A": true}}))
}
