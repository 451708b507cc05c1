// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// fewestToRun are the Nodes that managers need which upgrade the cluster that they run in: while one is drained, they
// run on another.
const fewestToRun = 2

// lookAtManagement looks whether those who carry out the upgrade support the version, and have Nodes to run on until
// its end. A Cluster that manages itself upgrades the Nodes of its own managers.
func lookAtManagement(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	nodes := &corev1.NodeList{}
	if err := s.Management.List(ctx, nodes); err != nil {
		return "", nil, fmt.Errorf("list the Nodes of the managing cluster: %w", err)
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	own := map[string]bool{}
	for i := range machines {
		own[machines[i].Spec.ProviderID] = true
	}
	var findings []quoinv1.Finding
	able, self := 0, false
	for i := range nodes.Items {
		node := &nodes.Items[i]
		ready, ours := isReady(node), node.Spec.ProviderID != "" && own[node.Spec.ProviderID]
		self = self || ours
		if ready && !node.Spec.Unschedulable {
			able++
		}
		if !ready && !ours { // Nodes tells of our own
			findings = append(findings, warns("Node "+node.Name+" of the managing cluster", "NotReady",
				"is not ready, so the managers may have nowhere to go when another fails", "mend it, or remove it"))
		}
	}
	switch {
	case able == 0 && len(nodes.Items) > 0:
		findings = append(findings, blocks("", "NoNode",
			"no Node of the managing cluster takes pods, so a manager that ends is never replaced", "mend or uncordon one"))
	case self && able < fewestToRun:
		findings = append(findings, warns("Cluster "+s.Cluster.Name, "OneNode",
			"manages itself, and its managers have no other Node to run on while theirs is drained: nothing goes on until a "+
				"further one is ready", "add a Node that they may run on"))
	}
	providers, err := lookAtProviders(ctx, s, self)
	return fmt.Sprintf("%d Nodes of the managing cluster, and its providers", len(nodes.Items)),
		append(findings, providers...), err
}
