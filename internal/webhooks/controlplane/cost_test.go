// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/cachetest"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/estatetest"
)

// besideMachines reads the objects of Kubernetes elsewhere.
type besideMachines struct {
	client.Reader
	other client.Reader
	nodes []corev1.Node
}

func (r besideMachines) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	if _, is := object.(*corev1.ConfigMap); is {
		return r.other.Get(ctx, key, object, options...)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

func (r besideMachines) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if nodes, is := list.(*corev1.NodeList); is {
		nodes.Items = r.nodes
		return nil
	}
	return r.Reader.List(ctx, list, options...)
}

// BenchmarkVersionAdmission is the admission of a control plane's next version beside 5,000 workers, 50 other Clusters
// and a management cluster of 5,000 Nodes, without the time in which an API server lists them.
func BenchmarkVersionAdmission(b *testing.B) {
	for _, c := range []struct{ policy, name, at, to, kubelet string }{
		{"Kubernetes", "legal", "v1.36.3", "v1.37.0", "v1.36.1"},
		{"Kubernetes", "refused", "v1.36.3", "v1.37.0", "v1.33.1"},
		{"Distribution", "legal", "v1.29.4", "v1.30.0", "v1.28.6"},
		{"Distribution", "refused", "v1.29.4", "v1.30.0", "v1.27.8"},
	} {
		b.Run(c.policy+"/"+c.name, func(b *testing.B) {
			cached, other := cachetest.New(b), fake.NewClientBuilder()
			estate := estatetest.Estate{Tool: c.to, Clusters: map[string]string{"c1": c.at}}
			for i := range 50 {
				estate.Clusters[fmt.Sprintf("other-%d", i)] = c.at
			}
			for _, object := range estate.Objects("prod") {
				switch object := object.(type) {
				case *clusterv1.Cluster:
					object.Annotations[skew.PolicyAnnotation] = c.policy
					cached.Put(object)
				case *clusterv1.Machine:
					cached.Put(object)
				case *corev1.ConfigMap:
					other.WithObjects(object)
				}
			}
			nodes := make([]corev1.Node, 5000)
			for i := range nodes {
				nodes[i].Status.NodeInfo.MachineID = fmt.Sprint(i)
				worker := estatetest.Machine("prod", "c1", fmt.Sprintf("w%d", i), c.kubelet)
				worker.Labels[clusterv1.MachineDeploymentNameLabel] = fmt.Sprintf("md-%d", i%50)
				worker.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: c.kubelet}
				cached.Put(worker)
			}
			webhook := &ControlPlaneWebhook{Reader: besideMachines{cached, other.Build(), nodes}}
			ofCluster := func(o *controlplanev1.QuoinControlPlane) {
				o.ObjectMeta = metav1.ObjectMeta{Namespace: "prod", Name: "cp",
					Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}
			}
			before, after := controlPlane(ofCluster, version(c.at), running(c.at)), controlPlane(ofCluster, version(c.to))
			for b.Loop() {
				if _, err := webhook.ValidateUpdate(b.Context(), before, after); (err != nil) != (c.name == "refused") {
					b.Fatal(err)
				}
			}
		})
	}
}
