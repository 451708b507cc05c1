// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observed reads what package skew judges.
package observed

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// World is what runs in the Cluster, by its Machines.
func World(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (skew.World, error) {
	return list(ctx, reader, cluster)
}

// APIServers is the World without workers.
func APIServers(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (skew.World, error) {
	return list(ctx, reader, cluster, client.HasLabels{clusterv1.MachineControlPlaneLabel})
}

func list(
	ctx context.Context, reader client.Reader, cluster client.ObjectKey, options ...client.ListOption,
) (skew.World, error) {
	machines := &clusterv1.MachineList{}
	options = append(options, client.UnsafeDisableDeepCopy, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	if err := reader.List(ctx, machines, options...); err != nil {
		return skew.World{}, fmt.Errorf("listing the Machines of Cluster %s: %w", cluster, err)
	}
	return skew.WorldOf(machines.Items), nil
}
