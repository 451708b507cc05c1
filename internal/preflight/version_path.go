// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// noVersionPath is the reason of a version that no legal step leads to; the message says what to do.
const noVersionPath = "NoVersionPath"

// lookAtVersionPath looks for a way to the version of which no step brings versions together that a policy of the
// Cluster does not allow. Its message is that way.
func lookAtVersionPath(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	policies, err := skew.PoliciesOf(s.Cluster)
	if err != nil {
		return "", []quoinv1.Finding{blocks("Cluster "+s.Cluster.Name, "UnknownPolicy", err.Error(),
			"correct annotation "+skew.PolicyAnnotation)}, nil
	}
	request, world, err := s.planned(ctx, policies)
	if err != nil {
		return "", nil, err
	}
	refusal, newest := skew.Distributed(policies, world, s.Version)
	if refusal != "" {
		return "", []quoinv1.Finding{blocks("", noVersionPath, refusal, "")}, nil
	}
	find := plan.For
	if s.Cluster.Spec.Topology.IsDefined() {
		find = plan.OfTopology
	}
	way, err := find(request)
	var refused *plan.RefusedError
	switch {
	case errors.As(err, &refused):
		return "", []quoinv1.Finding{blocks("", noVersionPath, refused.Error(), "")}, nil
	case err != nil:
		return "", nil, err
	}
	return strings.TrimSpace(way.String()), s.advice(way, newest), nil
}

// advice is what is better, and what a person has to do by hand.
func (s Subject) advice(way plan.Plan, newest string) []quoinv1.Finding {
	var findings []quoinv1.Finding
	if len(way.Hops) > 1 && !s.Cluster.Spec.Topology.IsDefined() {
		findings = append(findings, warns("", "SeveralHops",
			fmt.Sprintf("a control plane moves one minor at a time, and %s is %d hops away", s.Version, len(way.Hops)),
			"set "+way.Route()+", each when the one before it runs everywhere"))
	}
	for _, text := range append(way.Advice, newest) {
		if text != "" {
			findings = append(findings, warns("", "Advice", text, ""))
		}
	}
	return findings
}

// planned is the question for a plan, by what the Cluster's Machines and its own pods say.
func (s Subject) planned(ctx context.Context, policies []skew.Policy) (plan.Request, skew.World, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return plan.Request{}, skew.World{}, err
	}
	world, err := observed.WorldOf(ctx, s.Management, s.Cluster, policies, machines)
	if err != nil {
		return plan.Request{}, skew.World{}, err
	}
	inside, err := observed.Inside(ctx, s.Workload, world)
	if err != nil {
		return plan.Request{}, skew.World{}, err
	}
	known, err := s.known(ctx)
	if err != nil {
		return plan.Request{}, skew.World{}, err
	}
	request := plan.Request{State: plan.StateOf(machines), Target: s.Version, Known: known, Policies: policies}
	seen := map[string]bool{}
	for _, running := range inside {
		if running.Component == skew.KubeProxy && !seen[running.Version] {
			seen[running.Version] = true
			request.State.KubeProxy = append(request.State.KubeProxy, running.Version)
		}
	}
	return request, world, nil
}

// known are the versions that the ClusterClass of a managed topology lists; of any other Cluster nobody knows.
func (s Subject) known(ctx context.Context) ([]string, error) {
	if !s.Cluster.Spec.Topology.IsDefined() {
		return nil, nil
	}
	class, key := &clusterv1.ClusterClass{}, s.Cluster.GetClassKey()
	if err := s.Management.Get(ctx, key, class); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ClusterClass %s: %w", key, err)
	}
	return class.Spec.KubernetesVersions, nil
}

// machines of the Cluster.
func (s Subject) machines(ctx context.Context) ([]clusterv1.Machine, error) {
	return observed.Machines(ctx, s.Management, client.ObjectKeyFromObject(s.Cluster))
}
