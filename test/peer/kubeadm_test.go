// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// kubeadm is Cluster API's KubeadmControlPlane on the in-memory backend of its infrastructure for development: no host is
// started, and every duration that it could be given is zero.
type kubeadm struct{}

func (kubeadm) name() string { return "kubeadm" }

func (kubeadm) hosts() time.Duration { return 0 }

func (kubeadm) controlPlane() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kubeadmv1.GroupVersion.WithKind("KubeadmControlPlane"))
	return object
}

func (k kubeadm) objects() []client.Object {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	inMemory := func(kind string, spec map[string]any) client.Object {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetAPIVersion(infrastructure + "/v1beta2")
		object.SetKind(kind)
		object.SetName(k.name())
		return object
	}
	backend := func(of map[string]any) map[string]any {
		return map[string]any{"backend": map[string]any{"inMemory": of}}
	}
	cluster := inMemory("DevCluster", backend(map[string]any{}))
	// Its controller assumes that there are some.
	cluster.SetAnnotations(map[string]string{"quoin.test/bench": ""})
	none := map[string]any{"provisioning": map[string]any{"startupDuration": "0s"}}
	template := inMemory("DevMachineTemplate", map[string]any{"template": map[string]any{
		"spec": backend(map[string]any{"vm": none, "node": none, "apiServer": none, "etcd": none}),
	}})
	// The backend signs with RSA keys only.
	configuration := plane.KubeadmConfigSpec()
	configuration.ClusterConfiguration.EncryptionAlgorithm = ""
	meta := metav1.ObjectMeta{Name: k.name()}
	return []client.Object{
		template, cluster,
		&kubeadmv1.KubeadmControlPlane{
			ObjectMeta: *meta.DeepCopy(),
			Spec: kubeadmv1.KubeadmControlPlaneSpec{
				Replicas: ptr.To[int32](replicas), Version: oldVersion, KubeadmConfigSpec: configuration,
				MachineTemplate: kubeadmv1.KubeadmControlPlaneMachineTemplate{Spec: kubeadmv1.KubeadmControlPlaneMachineTemplateSpec{
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrastructure, Kind: "DevMachineTemplate", Name: k.name()},
				}},
			},
		},
		&clusterv1.Cluster{
			ObjectMeta: *meta.DeepCopy(),
			Spec: clusterv1.ClusterSpec{
				ClusterNetwork: clusterv1.ClusterNetwork{
					Pods:          clusterv1.NetworkRanges{CIDRBlocks: []string{"10.244.0.0/16"}},
					Services:      clusterv1.NetworkRanges{CIDRBlocks: []string{"10.96.0.0/16"}},
					ServiceDomain: "cluster.local",
				},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrastructure, Kind: "DevCluster", Name: k.name()},
				ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: kubeadmv1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: k.name()},
			},
		},
	}
}
