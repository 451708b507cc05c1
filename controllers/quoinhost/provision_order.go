// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"net/netip"

	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
)

// provisionOrder gathers what makes a node of the host, from the objects alone.
func (r *reconciliation) provisionOrder(ctx context.Context, id string) (ProvisionOrder, error) {
	c, machine, facts := r.claim, r.claim.machine, r.host.Status.Facts
	order := ProvisionOrder{
		ID: id, Owner: r.ownerRecord(), Artifacts: r.artifacts(machine.Spec.Version), Role: artifacts.Worker,
		ProviderID: r.host.ProviderID(), NodeAddresses: facts.NodeAddresses,
	}
	for _, disk := range r.host.Spec.Disks {
		order.Disks = append(order.Disks, cloudinit.DiskRole{ID: disk.ID, Role: cloudinit.Role(disk.Role)})
	}
	data, err := r.controller.bootstrapData(ctx, machine)
	if err != nil {
		return order, err
	}
	order.Bootstrap, err = cloudinit.Parse(data, instanceData(r.host, order.ProviderID))
	if err != nil {
		return order, &bootstrapDataError{quotes: true, err: fmt.Errorf("the bootstrap data of Machine %s/%s: %w",
			machine.Namespace, machine.Name, err)}
	}
	if !util.IsControlPlaneMachine(machine) {
		order.Artifacts, err = r.joining(ctx, order.Artifacts)
		return order, err
	}
	order.Role = artifacts.ControlPlane
	if err := r.joinable(ctx); err != nil {
		return order, err
	}
	if c.quoinCluster == nil || c.quoinCluster.Spec.LoadBalancer.Type != infrav1.LoadBalancerKeepalived {
		return order, nil
	}
	if order.VirtualAddress, err = virtualAddress(c.quoinCluster, r.host); err != nil {
		return order, err
	}
	order.ClaimedByUs, err = r.controller.peerProvisioned(ctx, c)
	return order, err
}

// virtualAddress is the host's part in the cluster's virtual address. It has the full prefix length: routes to the
// subnet come from the host's own address, and a virtual address must not attract the host's own traffic.
func virtualAddress(cluster *infrav1.QuoinCluster, host *infrav1.QuoinHost) (*keepalived.Config, error) {
	addresses := virtualAddressesOf(cluster)
	if len(addresses) == 0 || cluster.Spec.LoadBalancer.Keepalived == nil {
		return nil, &endpointError{fmt.Sprintf("QuoinCluster %s/%s has loadBalancer.type Keepalived, but its "+
			"controlPlaneEndpoint.host is not an IP address; set one that is free", cluster.Namespace, cluster.Name)}
	}
	keepalivedSpec := cluster.Spec.LoadBalancer.Keepalived
	config := &keepalived.Config{
		Interface: keepalivedSpec.Interface, VirtualRouterID: int(keepalivedSpec.VirtualRouterID),
		Addresses: addresses, Port: portOf(cluster),
	}
	if config.Interface == "" {
		config.Interface = host.Spec.NodeNetwork.Interface
	}
	if config.Interface == "" {
		config.Interface = host.Status.Facts.DefaultInterface
	}
	return config, nil
}

func virtualAddressesOf(cluster *infrav1.QuoinCluster) []netip.Prefix {
	if cluster == nil || cluster.Spec.LoadBalancer.Type != infrav1.LoadBalancerKeepalived {
		return nil
	}
	address, err := netip.ParseAddr(cluster.Spec.ControlPlaneEndpoint.Host)
	if err != nil {
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}
}

func portOf(cluster *infrav1.QuoinCluster) int {
	if cluster == nil || cluster.Spec.ControlPlaneEndpoint.Port == 0 {
		return infrav1.DefaultAPIServerPort
	}
	return int(cluster.Spec.ControlPlaneEndpoint.Port)
}

// virtualAddresses of the claim's cluster, for hosts of its control plane.
func (r *reconciliation) virtualAddresses() []netip.Prefix {
	if r.claim.machine != nil && !util.IsControlPlaneMachine(r.claim.machine) {
		return nil
	}
	return virtualAddressesOf(r.claim.quoinCluster)
}

// instanceData is what cloud-init's templates may ask for, under the names that users of other providers know.
func instanceData(host *infrav1.QuoinHost, providerID string) cloudinit.Variables {
	facts := host.Status.Facts
	variables := cloudinit.InstanceData(facts.Hostname, providerID, host.Spec.FailureDomain)
	if len(facts.NodeAddresses) > 0 {
		// One name for either family: a template need not know which one the cluster has.
		variables["ds.meta_data.node_ip"], variables["v1.node_ip"] = facts.NodeAddresses[0], facts.NodeAddresses[0]
	}
	for _, text := range facts.NodeAddresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		name := "local_ipv4"
		if address.Is6() {
			name = "local_ipv6"
		}
		variables["ds.meta_data."+name] = text
		variables["v1."+name] = text
	}
	return variables
}
