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

// World is what runs in the Cluster, by its Machines, and the estate around it where a policy asks for that.
func World(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, policies []skew.Policy,
) (skew.World, error) {
	machines, err := Machines(ctx, reader, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return skew.World{}, err
	}
	return WorldOf(ctx, reader, cluster, policies, machines)
}

// WorldOf is the World by Machines that were read.
func WorldOf(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, policies []skew.Policy,
	machines []clusterv1.Machine,
) (skew.World, error) {
	world, err := skew.WorldOf(machines), error(nil)
	if skew.AskForEstate(policies) {
		world.Estate, err = estate(ctx, reader, cluster)
	}
	return world, err
}

// APIServers is the World without workers, and with nothing of other clusters: what pools are judged by.
func APIServers(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, policies []skew.Policy,
) (skew.World, error) {
	machines, err := Machines(ctx, reader, client.ObjectKeyFromObject(cluster),
		client.HasLabels{clusterv1.MachineControlPlaneLabel})
	world := skew.WorldOf(machines)
	if err == nil && skew.AskForEstate(policies) {
		world.Estate, err = Catalog(ctx, reader, cluster)
	}
	return world, err
}

// Machines of the Cluster, of which none is to be changed.
func Machines(
	ctx context.Context, reader client.Reader, cluster client.ObjectKey, options ...client.ListOption,
) ([]clusterv1.Machine, error) {
	machines := &clusterv1.MachineList{}
	options = append(options, client.UnsafeDisableDeepCopy, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	if err := reader.List(ctx, machines, options...); err != nil {
		return nil, fmt.Errorf("listing the Machines of Cluster %s: %w", cluster, err)
	}
	return machines.Items, nil
}
