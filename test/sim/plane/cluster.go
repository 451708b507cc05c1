// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// ClusterOptions of AddCluster. Namespace is that of the site.
type ClusterOptions struct {
	Namespace, Name string
	// Host and Port are the control-plane endpoint.
	Host string
	Port int32
	// Replicas and Version of the control plane.
	Replicas int32
	Version  string
	Care     controlplanev1.QuoinControlPlaneCare
	// Artifacts of the hosts.
	Artifacts infrav1.Artifacts
}

// AddCluster makes the objects of a Cluster and returns the key that they share.
func (s *Site) AddCluster(ctx context.Context, o ClusterOptions) (client.ObjectKey, error) {
	o.Namespace = s.options.Namespace
	for _, object := range ClusterObjects(o) {
		if err := s.plane.Client.Create(ctx, object); err != nil {
			return client.ObjectKey{}, fmt.Errorf("making %T %s/%s: %w", object, o.Namespace, o.Name, err)
		}
	}
	return client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, nil
}

// ClusterObjects are a Cluster with a control plane and no workers, as the cluster template makes it, in the order of
// their making. All have one name.
func ClusterObjects(o ClusterOptions) []client.Object {
	meta := metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}
	return []client.Object{
		&infrav1.QuoinMachineTemplate{
			ObjectMeta: *meta.DeepCopy(),
			Spec:       infrav1.QuoinMachineTemplateSpec{Template: infrav1.QuoinMachineTemplateResource{Spec: infrav1.QuoinMachineSpec{Artifacts: o.Artifacts}}},
		},
		&infrav1.QuoinCluster{
			ObjectMeta: *meta.DeepCopy(),
			Spec: infrav1.QuoinClusterSpec{
				ControlPlaneEndpoint: infrav1.APIEndpoint{Host: o.Host, Port: o.Port},
				LoadBalancer:         infrav1.LoadBalancer{Type: infrav1.LoadBalancerExternal},
			},
		},
		&controlplanev1.QuoinControlPlane{
			ObjectMeta: *meta.DeepCopy(),
			Spec: controlplanev1.QuoinControlPlaneSpec{
				Replicas: ptr.To(o.Replicas), Version: o.Version, QuoinControlPlaneCare: o.Care,
				MachineTemplate: controlplanev1.QuoinControlPlaneMachineTemplate{Spec: controlplanev1.QuoinControlPlaneMachineTemplateSpec{
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: o.Name},
				}},
				KubeadmConfigSpec: KubeadmConfigSpec(),
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
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinCluster", Name: o.Name},
				ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: o.Name},
			},
		},
	}
}

// KubeadmConfigSpec is what the cluster templates give kubeadm, with keys that are made fast.
func KubeadmConfigSpec() bootstrapv1.KubeadmConfigSpec {
	registration := bootstrapv1.NodeRegistrationOptions{Name: "{{ ds.meta_data.local_hostname }}"}
	endpoint := bootstrapv1.APIEndpoint{AdvertiseAddress: "{{ ds.meta_data.node_ip }}"}
	return bootstrapv1.KubeadmConfigSpec{
		ClusterConfiguration: bootstrapv1.ClusterConfiguration{ImageRepository: "quoin.test", EncryptionAlgorithm: bootstrapv1.EncryptionAlgorithmECDSAP256},
		InitConfiguration:    bootstrapv1.InitConfiguration{LocalAPIEndpoint: endpoint, NodeRegistration: registration},
		JoinConfiguration: bootstrapv1.JoinConfiguration{
			ControlPlane: &bootstrapv1.JoinControlPlane{LocalAPIEndpoint: endpoint}, NodeRegistration: registration,
		},
	}
}
