// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// The catalog of a distribution's releases is a ConfigMap of this name in the namespace of its Clusters, under this
// key.
const (
	CatalogName = "quoin-releases"
	CatalogKey  = "releases.yaml"
)

// ControlPlaneNodeLabel is on the Nodes of a control plane.
const ControlPlaneNodeLabel = "node-role.kubernetes.io/control-plane"

// Catalog is the Estate without other clusters.
func Catalog(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) (*skew.Estate, error) {
	key, found := client.ObjectKey{Namespace: cluster.Namespace, Name: CatalogName}, &corev1.ConfigMap{}
	switch err := reader.Get(ctx, key, found); {
	case apierrors.IsNotFound(err):
		return &skew.Estate{Problem: fmt.Sprintf("the version-skew policy of Cluster %s judges by a catalog "+
			"of releases, and there is none: make ConfigMap %s with the key %s, or correct annotation %s", cluster.Name, key,
			CatalogKey, skew.PolicyAnnotation)}, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	read, err := skew.ReadCatalog(found.Data[CatalogKey])
	if err != nil {
		return &skew.Estate{Problem: fmt.Sprintf("key %s of ConfigMap %s is no catalog of releases: %v; correct it",
			CatalogKey, key, err)}, nil
	}
	return &skew.Estate{Catalog: read}, nil
}

// estate is the catalog, and the other Clusters of which a policy asks the same. The managing one is the Cluster whose
// control plane's Nodes are in the cluster in which we read: their machines tell, whatever names and addresses they
// have. Its policies are its own business.
func estate(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) (*skew.Estate, error) {
	estate, err := Catalog(ctx, reader, cluster)
	if err != nil || estate.Problem != "" {
		return estate, err
	}
	nodes, clusters, machines := &corev1.NodeList{}, &clusterv1.ClusterList{}, &clusterv1.MachineList{}
	if err := reader.List(ctx, nodes, client.HasLabels{ControlPlaneNodeLabel}); err != nil {
		return nil, fmt.Errorf("list the Nodes of the managing cluster: %w", err)
	}
	if err := reader.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Clusters: %w", err)
	}
	ofControlPlanes := client.HasLabels{clusterv1.MachineControlPlaneLabel}
	if err := reader.List(ctx, machines, client.UnsafeDisableDeepCopy, ofControlPlanes); err != nil {
		return nil, fmt.Errorf("list the Machines of control planes: %w", err)
	}
	of := map[client.ObjectKey][]clusterv1.Machine{}
	for _, machine := range machines.Items {
		key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
		of[key] = append(of[key], machine)
	}
	here := identitiesOf(nodes.Items)
	for i := range clusters.Items {
		other := &clusters.Items[i]
		key := client.ObjectKeyFromObject(other)
		self := key == client.ObjectKeyFromObject(cluster)
		version := skew.Oldest(skew.WorldOf(of[key]).APIServers...)
		policies, err := skew.PoliciesOf(other)
		switch {
		case runsIn(of[key], here):
			estate.Managing, estate.Self = version, self
		case !self && version != "" && err == nil && skew.AskForEstate(policies):
			estate.Managed = append(estate.Managed, skew.Managed{Object: "Cluster " + key.String(), Version: version})
		}
	}
	return estate, nil
}

// identity of a machine, by its machine ID and its system UUID.
type identity [2]string

// identitiesOf are the machines of the Nodes, as far as they are told.
func identitiesOf(nodes []corev1.Node) map[identity]bool {
	identities := make(map[identity]bool, len(nodes))
	for i := range nodes {
		info := &nodes[i].Status.NodeInfo
		identities[identity{info.MachineID, info.SystemUUID}] = true
	}
	delete(identities, identity{})
	return identities
}

// runsIn reports whether one of the Machines is a Node on one of these machines.
func runsIn(machines []clusterv1.Machine, here map[identity]bool) bool {
	return slices.ContainsFunc(machines, func(machine clusterv1.Machine) bool {
		info := machine.Status.NodeInfo
		return info != nil && here[identity{info.MachineID, info.SystemUUID}]
	})
}
