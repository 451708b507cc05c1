// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func endpoints(namespace, service string, family discoveryv1.AddressType, of ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: service + "-" + string(family), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family, Endpoints: of}
}

func endpoint(address, node string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
}

// lan is a Cluster of which nothing is to be said.
type lan struct {
	servers, dns []client.Object
	kubeadm      string
	cluster      *clusterv1.Cluster
	nodes        []*corev1.Node
	host         *infrav1.QuoinHost
	// kubelets is what those of ready Nodes say.
	kubelets error
}

func newLAN() *lan {
	n := &lan{cluster: &clusterv1.Cluster{}, kubeadm: "controlPlaneEndpoint: 192.0.2.10:6443\n"}
	n.servers = []client.Object{endpoints("default", "kubernetes", "IPv4", endpoint("192.0.2.1", "cp", true))}
	n.dns = []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}},
		endpoints("kube-system", "kube-dns", "IPv4", endpoint("10.0.1.1", "cp", true), endpoint("10.0.2.1", "w", true)),
	}
	n.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
	n.cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.0.0.0/22", "fd00:1::/48"}
	n.cluster.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.96.0.0/12"}
	for i, name := range []string{"cp", "w"} {
		one := node(name)
		one.Spec.PodCIDRs = []string{fmt.Sprintf("10.0.%d.0/24", i+1)}
		one.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: corev1.NodeHostName, Address: name}}
		n.nodes = append(n.nodes, one)
	}
	n.host = &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "spare"}}
	n.host.Status.Facts = &infrav1.HostFacts{NodeAddresses: []string{"192.0.2.9"}}
	return n
}

func (n *lan) subject(t *testing.T) Subject {
	workload := append(append([]client.Object{}, n.servers...), n.dns...)
	if n.kubeadm != "" {
		workload = append(workload, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
			Data:       map[string]string{"ClusterConfiguration": n.kubeadm}})
	}
	for _, node := range n.nodes {
		workload = append(workload, node)
	}
	s := subject(t, []client.Object{machine("cp", "v1.35.4", true), machine("w", "v1.35.4", false), n.host}, workload)
	s.Cluster.Spec = n.cluster.Spec
	s.Kubelet = func(context.Context, string) error { return n.kubelets }
	return s
}

func TestNetwork(t *testing.T) {
	const api, dns = " Service default/kubernetes ", " Service kube-system/kube-dns "
	for name, c := range map[string]struct {
		change func(n *lan)
		want   []string
	}{
		"well": {change: func(*lan) {}},
		"kubeadm knows another endpoint": {change: func(n *lan) { n.kubeadm = "controlPlaneEndpoint: 192.0.2.11:6443\n" },
			want: []string{"Block Cluster c1 OtherEndpoint"}},
		"kubeadm knows another port": {change: func(n *lan) { n.kubeadm = "controlPlaneEndpoint: 192.0.2.10:8443\n" },
			want: []string{"Block Cluster c1 OtherEndpoint"}},
		"kubeadm knows no port":     {change: func(n *lan) { n.kubeadm = "controlPlaneEndpoint: 192.0.2.10\n" }},
		"kubeadm knows no endpoint": {change: func(n *lan) { n.kubeadm = "clusterName: c1\n" }},
		"there is no kubeadm":       {change: func(n *lan) { n.kubeadm = "" }},
		"kubelets that are not reached": {change: func(n *lan) {
			n.kubelets, n.nodes[1].Status.Conditions = apierrors.NewServiceUnavailable("dial tcp"), []corev1.NodeCondition{ready}
		}, want: []string{"Warn Node w KubeletNotReached"}},
		"of IPv6": {change: func(n *lan) {
			n.cluster.Spec.ControlPlaneEndpoint.Host = "fd00::10"
			n.kubeadm = "controlPlaneEndpoint: '[fd00::10]'\n"
		}},
		"no API server is announced": {change: func(n *lan) { n.servers = nil }, want: []string{"Block" + api + "NoAPIServer"}},
		"one that is gone is announced": {change: func(n *lan) {
			n.servers = []client.Object{endpoints("default", "kubernetes", "IPv4", endpoint("192.0.2.1", "cp", true),
				endpoint("192.0.2.2", "gone", true))}
		}, want: []string{"Warn" + api + "OtherAPIServers"}},
		"there is no DNS": {change: func(n *lan) { n.dns = nil }, want: []string{"Warn" + dns + "NoDNS"}},
		"no DNS is ready": {change: func(n *lan) {
			n.dns[1] = endpoints("kube-system", "kube-dns", "IPv4", endpoint("10.0.1.1", "cp", false))
		}, want: []string{"Block" + dns + "NoDNS"}},
		"DNS on one Node": {change: func(n *lan) {
			n.dns[1] = endpoints("kube-system", "kube-dns", "IPv4", endpoint("10.0.2.1", "w", true), endpoint("10.0.2.2", "w", true))
		}, want: []string{"Warn" + dns + "OnOneNode"}},
		"DNS on one Node that stays": {change: func(n *lan) {
			n.dns[1] = endpoints("kube-system", "kube-dns", "IPv4", endpoint("10.0.2.1", "stray", true))
		}},
		"API servers of two families": {change: func(n *lan) {
			n.servers = append(n.servers, endpoints("default", "kubernetes", "IPv6", endpoint("fd00::1", "cp", true)))
		}},
		"services among pods": {change: func(n *lan) {
			n.cluster.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.0.2.0/24"}
		}, want: []string{"Warn Cluster c1 RangesOverlap"}},
		"a Node among pods": {change: func(n *lan) { n.nodes[0].Name, n.nodes[0].Status.Addresses[0].Address = "in", "10.0.3.7" },
			want: []string{"Warn Node in AddressShadowed"}},
		"a free host among services": {change: func(n *lan) { n.host.Status.Facts.NodeAddresses = []string{"10.97.0.9"} },
			want: []string{"Warn QuoinHost prod/spare AddressShadowed"}},
		"a host of others among services": {change: func(n *lan) {
			n.host.Namespace, n.host.Status.Facts.NodeAddresses = "elsewhere", []string{"10.97.0.9"}
		}},
		"a host that is not accepted among services": {change: func(n *lan) {
			n.host.Namespace, n.host.Spec.ConsumerNamespaces = "hostile", []string{"*"}
			n.host.Status.Facts.NodeAddresses = []string{"10.97.0.9"}
		}},
		"a host in use among services": {change: func(n *lan) {
			n.host.Status.Facts.NodeAddresses, n.host.Spec.ConsumerRef = []string{"10.97.0.9"}, &infrav1.ConsumerReference{Machine: "w"}
		}},
		"no room for a further Node": {change: func(n *lan) { n.cluster.Spec.ClusterNetwork.Pods.CIDRBlocks[0] = "10.0.0.0/23"; more(n) },
			want: []string{"Warn  NoPodRange"}},
		"Nodes whose ranges somebody else gives": {change: func(n *lan) {
			n.cluster.Spec.ClusterNetwork.Pods.CIDRBlocks[0] = "10.0.0.0/24"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLAN()
			c.change(n)
			for _, finding := range expect(t, lookAtNetwork, n.subject(t), c.want...) {
				NewWithT(t).Expect(finding.Fix).NotTo(BeEmpty())
			}
		})
	}
}

// more makes the Nodes take all that there is of 10.0.0.0/23.
func more(n *lan) {
	n.nodes[0].Spec.PodCIDRs, n.nodes[1].Spec.PodCIDRs = []string{"10.0.0.0/24"}, []string{"10.0.1.0/24", "fd00:1::/64"}
}

func TestAnEndpointWithoutAConditionIsReady(t *testing.T) {
	slice := endpoints("default", "kubernetes", "IPv4", discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}})
	ready, err := subject(t, nil, []client.Object{slice}).readyEndpoints(t.Context(), "default", "kubernetes")
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ready).To(HaveKey("192.0.2.1"))
	g.Expect(ready["192.0.2.1"].NodeName).To(Equal((*string)(nil)))
	g.Expect(ptr.Deref(ready["192.0.2.1"].Conditions.Ready, true)).To(BeTrue())
}
