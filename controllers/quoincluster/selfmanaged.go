// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/version"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// selfManaged remembers, by QuoinCluster, what was found of one of its control-plane Machines. The zero value is ready.
type selfManaged struct {
	mu   sync.Mutex
	last map[client.ObjectKey]lookedUp
}

type lookedUp struct {
	machine types.UID
	here    bool
}

// managersVersion is the version of Quoin where the Cluster is the one that this manager runs in, and empty elsewhere
// (S0-55). The managers' own API server then knows a Node of the Cluster's control plane, by the provider ID that no
// other has. It is asked once for each Machine that is looked at.
func (r *Reconciler) managersVersion(
	ctx context.Context, quoinCluster *infrav1.QuoinCluster, cluster *clusterv1.Cluster,
) (string, error) {
	key, machines := client.ObjectKeyFromObject(quoinCluster), &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.UnsafeDisableDeepCopy, client.InNamespace(key.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel},
	); err != nil {
		return "", fmt.Errorf("listing the control-plane Machines of Cluster %s: %w",
			client.ObjectKeyFromObject(cluster), err)
	}
	var member *clusterv1.Machine
	for i := range machines.Items {
		of := &machines.Items[i]
		if of.Status.NodeRef.IsDefined() && of.Spec.ProviderID != "" && of.DeletionTimestamp.IsZero() &&
			(member == nil || of.Name < member.Name) {
			member = of
		}
	}
	if member == nil {
		return "", nil
	}
	r.self.mu.Lock()
	known, found := r.self.last[key]
	r.self.mu.Unlock()
	if !found || known.machine != member.UID {
		node := &corev1.Node{}
		err := r.APIReader.Get(ctx, client.ObjectKey{Name: member.Status.NodeRef.Name}, node)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading whether Node %s is one of the managing cluster: %w", member.Status.NodeRef.Name, err)
		}
		known = lookedUp{member.UID, err == nil && node.Spec.ProviderID == member.Spec.ProviderID}
		r.self.mu.Lock()
		if r.self.last == nil {
			r.self.last = map[client.ObjectKey]lookedUp{}
		}
		r.self.last[key] = known
		r.self.mu.Unlock()
	}
	if !known.here {
		return "", nil
	}
	return version.Get().Version, nil
}

func (s *selfManaged) forget(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, key)
}
