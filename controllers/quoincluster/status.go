// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
)

// summarize derives the whole status from the spec and the view.
func summarize(c *infrav1.QuoinCluster, v *observation) {
	c.Status.Hosts = countHosts(v.hosts)
	c.Status.FailureDomains = failureDomains(v.hosts, v.controlPlane)

	endpoint := endpointReady(c, v)
	hosts := hostsAvailable(c.Namespace, c.Status.Hosts, v.unaccepted)
	domains := domainsReachable(v.hosts, v.fleet)
	// Once true it stays, as the contract wants; a conflict that comes later shows in the conditions.
	if endpoint.Status == metav1.ConditionTrue {
		c.Status.Initialization.Provisioned = ptr.To(true)
	}
	ready := metav1.Condition{Type: infrav1.ClusterReadyCondition, Status: endpoint.Status, Reason: endpoint.Reason,
		Message: endpoint.Message}
	switch {
	case !c.DeletionTimestamp.IsZero():
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, clusterv1.DeletingReason, waitingFor(v.machines)
	case ready.Status == metav1.ConditionTrue:
		ready.Reason = clusterv1.ReadyReason
	}
	shown := []metav1.Condition{endpoint, hosts, domains, ready}
	if v.moves != nil {
		shown = append(shown, movable(c, moving.Judge(v.moves.Site)))
	}
	for _, condition := range shown {
		condition.ObservedGeneration = c.Generation
		conditions.Set(c, condition)
	}
}

// endpointReady says whether the endpoint is known, and this cluster's alone.
func endpointReady(c *infrav1.QuoinCluster, v *observation) metav1.Condition {
	condition := metav1.Condition{Type: infrav1.ClusterEndpointReadyCondition, Status: metav1.ConditionFalse}
	known := c.Spec.ControlPlaneEndpoint.Host != "" ||
		(v.cluster != nil && v.cluster.Spec.ControlPlaneEndpoint.IsValid() && keepalivedOf(c) == nil)
	if !known {
		condition.Reason = infrav1.ClusterEndpointMissingReason
		condition.Message = "set spec.controlPlaneEndpoint.host to the address or name of the load balancer"
		if keepalivedOf(c) != nil {
			condition.Message = "set spec.controlPlaneEndpoint.host to a free IP address on the hosts' network; it becomes " +
				"the virtual address"
		}
		return condition
	}
	if message := conflict(c, v.others); message != "" {
		condition.Reason, condition.Message = infrav1.ClusterEndpointConflictReason, message
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, infrav1.ClusterEndpointConfiguredReason
	return condition
}

// conflict says which older QuoinCluster has the endpoint or the virtual router ID already. Both would answer for each
// other: the address by ARP, the router ID by VRRP, where the host with the higher priority takes the other's address
// away.
func conflict(c *infrav1.QuoinCluster, others []infrav1.QuoinCluster) string {
	for i := range others {
		other := &others[i]
		if !older(other, c) {
			continue
		}
		name := other.Namespace + "/" + other.Name
		if sameEndpoint(c, other) {
			return fmt.Sprintf("controlPlaneEndpoint %s is that of QuoinCluster %s; choose another address",
				c.Spec.ControlPlaneEndpoint.Host, name)
		}
		mine, theirs := keepalivedOf(c), keepalivedOf(other)
		if mine != nil && theirs != nil && mine.VirtualRouterID == theirs.VirtualRouterID {
			return fmt.Sprintf("virtualRouterID %d is that of QuoinCluster %s; choose another one from 1 to 255",
				mine.VirtualRouterID, name)
		}
	}
	return ""
}

// sameEndpoint compares addresses as addresses. A name or an external load balancer may serve several clusters on
// different ports; a virtual address belongs to one.
func sameEndpoint(a, b *infrav1.QuoinCluster) bool {
	if a.Spec.ControlPlaneEndpoint.Host == "" ||
		canonical(a.Spec.ControlPlaneEndpoint.Host) != canonical(b.Spec.ControlPlaneEndpoint.Host) {
		return false
	}
	return keepalivedOf(a) != nil || keepalivedOf(b) != nil || port(a) == port(b)
}

func port(c *infrav1.QuoinCluster) int32 {
	if c.Spec.ControlPlaneEndpoint.Port == 0 {
		return infrav1.DefaultAPIServerPort
	}
	return c.Spec.ControlPlaneEndpoint.Port
}

func canonical(host string) string {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// older orders clusters: the older one keeps what both want. After a move all are equally old, and the name decides.
func older(a, b *infrav1.QuoinCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

func keepalivedOf(c *infrav1.QuoinCluster) *infrav1.Keepalived {
	if c.Spec.LoadBalancer.Type != infrav1.LoadBalancerKeepalived {
		return nil
	}
	return c.Spec.LoadBalancer.Keepalived
}

func waitingFor(machines []infrav1.QuoinMachine) string {
	if len(machines) == 0 {
		return "nothing is left"
	}
	var names []string
	for i := range machines {
		names = append(names, machines[i].Name)
	}
	slices.Sort(names)
	return fmt.Sprintf("waiting until the hosts of QuoinMachine %s are reset", listed(names))
}

func patchCluster(ctx context.Context, helper *objectpatch.Helper, c *infrav1.QuoinCluster) error {
	err := helper.Patch(ctx, c,
		infrav1.ClusterReadyCondition, infrav1.ClusterEndpointReadyCondition, infrav1.ClusterHostsAvailableCondition,
		infrav1.ClusterDomainsReachableCondition, infrav1.ClusterMovableCondition, clusterv1.PausedCondition,
	)
	if err != nil {
		return fmt.Errorf("patching QuoinCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
