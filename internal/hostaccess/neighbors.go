// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
)

// Neighbor is a host of a Cluster, and the Machine that has it. Both belong to the cache, and are not to be changed.
type Neighbor struct {
	Host    *infrav1.QuoinHost
	Machine *clusterv1.Machine
}

// Neighbors are the hosts of the Cluster's nodes without the host itself: those that can say which management cluster
// the Cluster serves. A claim that only names a Machine of the Cluster is no more than the word of who wrote the host.
// The reader is one with the indexes of package fieldindex.
func Neighbors(
	ctx context.Context, reader client.Reader, cluster client.ObjectKey, host *infrav1.QuoinHost,
) ([]Neighbor, error) {
	machines := &clusterv1.MachineList{}
	if err := reader.List(ctx, machines, client.UnsafeDisableDeepCopy, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing the Machines of Cluster %s: %w", cluster, err)
	}
	var neighbors []Neighbor
	for i := range machines.Items {
		machine, hosts := &machines.Items[i], &infrav1.QuoinHostList{}
		selected := fieldindex.HostsOfMachine(client.ObjectKeyFromObject(machine))
		if err := reader.List(ctx, hosts, client.UnsafeDisableDeepCopy, selected); err != nil {
			return nil, fmt.Errorf("listing the hosts of Cluster %s: %w", cluster, err)
		}
		for j := range hosts.Items {
			if hosts.Items[j].ProviderID() == machine.Spec.ProviderID &&
				client.ObjectKeyFromObject(&hosts.Items[j]) != client.ObjectKeyFromObject(host) {
				neighbors = append(neighbors, Neighbor{Host: &hosts.Items[j], Machine: machine})
			}
		}
	}
	return neighbors, nil
}
