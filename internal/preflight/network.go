// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// lookAtNetwork looks whether names are resolved while Nodes come and go, whether all agree on where the API server is,
// whether that reaches the kubelets, and whether further Nodes find addresses that nobody else uses. Connectivity asks
// hosts what lies between them.
func lookAtNetwork(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	var findings []quoinv1.Finding
	for _, look := range []func(context.Context, Subject) ([]quoinv1.Finding, error){
		lookAtEndpoint, lookAtAPIServers, lookAtKubelets, lookAtDNS, lookAtRanges,
	} {
		found, err := look(ctx, s)
		if err != nil {
			return "", nil, err
		}
		findings = append(findings, found...)
	}
	return "endpoint and API servers, kubelets, DNS, and ranges of addresses", findings, nil
}

// lookAtEndpoint compares the endpoint that new nodes are given with that of the nodes that there are. A control plane
// that kubeadm did not make does not say.
func lookAtEndpoint(ctx context.Context, s Subject) ([]quoinv1.Finding, error) {
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}
	switch err := s.Workload.Get(ctx, key, stored); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	var configuration struct {
		ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	}
	if err := yaml.Unmarshal([]byte(stored.Data["ClusterConfiguration"]), &configuration); err != nil {
		return nil, fmt.Errorf("read key ClusterConfiguration of ConfigMap %s: %w", key, err)
	}
	given, runs := s.Cluster.Spec.ControlPlaneEndpoint, configuration.ControlPlaneEndpoint
	if runs == "" || given.IsZero() {
		return nil, nil
	}
	if _, _, err := net.SplitHostPort(runs); err != nil {
		runs = net.JoinHostPort(strings.Trim(runs, "[]"), "6443") // as kubeadm takes it
	}
	if asked := net.JoinHostPort(given.Host, strconv.Itoa(int(given.Port))); !strings.EqualFold(asked, runs) {
		return []quoinv1.Finding{blocks("Cluster "+s.Cluster.Name, "OtherEndpoint", fmt.Sprintf(
			"its endpoint is %s, and kubeadm knows %s: nodes that join would ask another address than those that there are",
			asked, runs), "correct spec.controlPlaneEndpoint, or controlPlaneEndpoint in ConfigMap "+key.String())}, nil
	}
	return nil, nil
}

// lookAtAPIServers counts the API servers that pods are sent to.
func lookAtAPIServers(ctx context.Context, s Subject) ([]quoinv1.Finding, error) {
	ready, err := s.readyEndpoints(ctx, metav1.NamespaceDefault, "kubernetes")
	if err != nil {
		return nil, err
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	members := 0
	for i := range machines {
		if util.IsControlPlaneMachine(&machines[i]) && machines[i].Status.NodeRef.IsDefined() {
			members++
		}
	}
	const object = "Service default/kubernetes"
	switch servers := len(ready); {
	case servers == 0:
		return []quoinv1.Finding{blocks(object, "NoAPIServer", "has no endpoint, so no pod reaches an API server",
			"see why the API servers do not announce themselves; their logs name the endpoint reconciler")}, nil
	case members > 0 && servers != members:
		return []quoinv1.Finding{warns(object, "OtherAPIServers", fmt.Sprintf(
			"has %d endpoints, and the control plane %d nodes", servers, members),
			"see to the API servers that are not announced, or to what announces those that are gone")}, nil
	}
	return nil, nil
}

// lookAtDNS looks whether names are resolved, and go on being when a Node is drained.
func lookAtDNS(ctx context.Context, s Subject) ([]quoinv1.Finding, error) {
	const object = "Service kube-system/kube-dns"
	service, key := &corev1.Service{}, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}
	switch err := s.Workload.Get(ctx, key, service); {
	case apierrors.IsNotFound(err):
		return []quoinv1.Finding{warns(object, "NoDNS", "is not there, so it is not known who resolves names",
			"see to the DNS of the Cluster by hand")}, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", object, err)
	}
	ready, err := s.readyEndpoints(ctx, key.Namespace, key.Name)
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, endpoint := range ready {
		nodes[ptr.Deref(endpoint.NodeName, "")] = true
	}
	leaving, err := s.leaving(ctx)
	if err != nil {
		return nil, err
	}
	leaves := slices.ContainsFunc(leaving, func(m *clusterv1.Machine) bool { return nodes[m.Status.NodeRef.Name] })
	switch {
	case len(ready) == 0:
		return []quoinv1.Finding{blocks(object, "NoDNS", "has no endpoint that is ready, so no name is resolved",
			"see to the pods of CoreDNS: kubectl get pods -n kube-system -l k8s-app=kube-dns")}, nil
	case len(nodes) == 1 && leaves:
		return []quoinv1.Finding{warns(object, "OnOneNode", fmt.Sprintf(
			"all %d endpoints are on one Node, and no name is resolved from its drain on until others are ready", len(ready)),
			"have CoreDNS run on two Nodes: kubectl rollout restart -n kube-system deployment/coredns")}, nil
	}
	return nil, nil
}

// readyEndpoints of a Service, each address once.
func (s Subject) readyEndpoints(
	ctx context.Context, namespace, service string,
) (map[string]discoveryv1.Endpoint, error) {
	found := &discoveryv1.EndpointSliceList{}
	if err := s.Workload.List(ctx, found, client.InNamespace(namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", namespace, service, err)
	}
	ready := map[string]discoveryv1.Endpoint{}
	for _, slice := range found.Items {
		if slice.AddressType != found.Items[0].AddressType {
			continue // the same pods by their other address
		}
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) && len(endpoint.Addresses) > 0 {
				ready[endpoint.Addresses[0]] = endpoint
			}
		}
	}
	return ready, nil
}

// namedRange is a range of addresses, and whose.
type namedRange struct {
	of     string
	prefix netip.Prefix
}

// lookAtRanges looks for addresses that two would use, and for room for further Nodes.
func lookAtRanges(ctx context.Context, s Subject) ([]quoinv1.Finding, error) {
	network := s.Cluster.Spec.ClusterNetwork
	var ranges []namedRange
	for of, cidrs := range map[string][]string{"pods": network.Pods.CIDRBlocks, "services": network.Services.CIDRBlocks} {
		for _, block := range cidrs {
			if prefix, err := netip.ParsePrefix(block); err == nil {
				ranges = append(ranges, namedRange{of, prefix.Masked()})
			}
		}
	}
	slices.SortFunc(ranges, func(a, b namedRange) int { return cmp.Compare(a.of, b.of) })
	var findings []quoinv1.Finding
	for i, one := range ranges {
		for _, other := range ranges[i+1:] {
			if one.of != other.of && one.prefix.Overlaps(other.prefix) {
				findings = append(findings, warns("Cluster "+s.Cluster.Name, "RangesOverlap", fmt.Sprintf(
					"%s of %s and %s of %s overlap, so an address may be given twice", one.prefix, one.of, other.prefix, other.of),
					"keep services below those addresses that pods have; only another Cluster is mended for good"))
			}
		}
	}
	nodes, hosts := &corev1.NodeList{}, &infrav1.QuoinHostList{}
	if err := s.Workload.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	if err := s.Management.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("list the QuoinHosts: %w", err)
	}
	shadowed := func(object, address string) {
		at, err := netip.ParseAddr(address)
		for _, one := range ranges {
			if err == nil && one.prefix.Contains(at) {
				findings = append(findings, warns(object, "AddressShadowed", fmt.Sprintf(
					"%s lies in %s of %s, so others may not reach it", address, one.prefix, one.of),
					"give it an address outside, or keep it from the Cluster"))
			}
		}
	}
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				shadowed("Node "+node.Name, address.Address)
			}
		}
	}
	templates := &infrav1.QuoinMachineTemplateList{}
	if err := s.Management.List(ctx, templates, client.InNamespace(s.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("list the QuoinMachineTemplates: %w", err)
	}
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if host.Spec.ConsumerRef == nil && host.Status.Facts != nil &&
			placement.NamespaceAllowed(placement.HostOf(host), s.Cluster.Namespace) &&
			placement.AcceptedByAny(templates.Items, s.Cluster.Namespace, host.Namespace) {
			for _, address := range host.Status.Facts.NodeAddresses {
				shadowed("QuoinHost "+host.Namespace+"/"+host.Name, address)
			}
		}
	}
	return append(findings, lacksPodRange(ranges, nodes.Items)...), nil
}

// lacksPodRange finds a Cluster whose range of pods is used up: where the controller-manager gives each Node a part of
// it, a further Node gets none, and no pod on it an address.
func lacksPodRange(ranges []namedRange, nodes []corev1.Node) []quoinv1.Finding {
	var findings []quoinv1.Finding
	for _, one := range ranges {
		taken, bits := 0, 0
		for _, node := range nodes {
			for _, block := range node.Spec.PodCIDRs {
				if part, err := netip.ParsePrefix(block); err == nil && one.of == "pods" && one.prefix.Contains(part.Addr()) {
					taken, bits = taken+1, part.Bits()
				}
			}
		}
		if most := bits - one.prefix.Bits(); taken > 0 && most < 31 && taken >= 1<<most {
			findings = append(findings, warns("", "NoPodRange", fmt.Sprintf(
				"all %d parts of pods' range %s are taken, and the pods of a further Node get no address", 1<<most, one.prefix),
				"remove a Node first, or have pools remove before they add (maxSurge: 0)"))
		}
	}
	return findings
}
