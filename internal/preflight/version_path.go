// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	seen, err := s.seen(ctx, policies)
	if err != nil {
		return "", nil, err
	}
	class, err := s.class(ctx)
	if err != nil {
		return "", nil, err
	}
	refusal, newest := skew.Distributed(policies, seen.world, s.Version)
	// A plan knows nothing of what a distribution asks of pools.
	_, asked := skew.Split(policies)
	extension := class.Spec.Upgrade.External.GenerateUpgradePlanExtension
	if extension != "" {
		asked = policies
	}
	behind, warning := skew.LeftBehind(asked, seen.world, s.Version)
	if refusal = cmp.Or(refusal, behind); refusal != "" {
		return "", []quoinv1.Finding{blocks("", noVersionPath, refusal, "")}, nil
	}
	if extension != "" {
		return "runtime extension " + extension + " plans the way, so only its end was judged",
			s.advice(plan.Plan{Advice: []string{warning}}, newest), nil
	}
	way, err := s.way(policies, seen, class)
	var refused *plan.RefusedError
	switch {
	case errors.As(err, &refused):
		return "", []quoinv1.Finding{blocks("", noVersionPath, refused.Error(), "")}, nil
	case err != nil:
		return "", nil, err
	}
	findings := append(s.advice(way, newest), s.judgeInside(policies, seen, way.Hops)...)
	if ended := skew.Unmaintained(s.Version); ended != "" && len(asked) == 0 { // a distribution has patches of its own
		findings = append(findings, warns("", "Unmaintained", ended, "go on to a later minor soon after"))
	}
	return strings.TrimSpace(way.String()), findings, nil
}

// way to the version, from what runs.
func (s Subject) way(policies []skew.Policy, seen seen, class *clusterv1.ClusterClass) (plan.Plan, error) {
	request := plan.Request{State: seen.state(), Target: s.Version, Known: class.Spec.KubernetesVersions,
		Policies: policies}
	for i := range request.State.Pools {
		request.State.Pools[i].Stays = s.Workers == quoinv1.UpgradeWorkersAsNeeded
	}
	if s.Cluster.Spec.Topology.IsDefined() {
		return plan.OfTopology(request)
	}
	if len(s.Via) > 0 {
		request.Known = append(slices.Clone(s.Via), s.Version)
	}
	return plan.For(request)
}

// planned is the way to the version, from what runs; nil where there is none, and where somebody else plans it.
func (s Subject) planned(ctx context.Context) (seen, *plan.Plan, error) {
	policies, unknown := skew.PoliciesOf(s.Cluster)
	found, err := s.seen(ctx, policies)
	if err != nil {
		return seen{}, nil, err
	}
	class, err := s.class(ctx)
	if err != nil || unknown != nil || class.Spec.Upgrade.External.GenerateUpgradePlanExtension != "" {
		return found, nil, err
	}
	way, err := s.way(policies, found, class)
	var refused *plan.RefusedError
	switch {
	case errors.As(err, &refused):
		return found, nil, nil
	case err != nil:
		return seen{}, nil, err
	}
	return found, &way, nil
}

// judgeInside finds what runs as pods and would be too old for the first hop, and what kubeadm would be told to make
// beside members of etcd and API servers that do not allow it (R17, R18).
func (s Subject) judgeInside(policies []skew.Policy, seen seen, hops []string) []quoinv1.Finding {
	if len(hops) == 0 {
		return nil
	}
	world := skew.World{APIServers: seen.world.APIServers, Components: seen.inside}
	ordinary, _ := skew.Split(policies)
	if behind, _ := skew.LeftBehind(ordinary, world, hops[0]); behind != "" {
		return []quoinv1.Finding{blocks("", noVersionPath, behind, "")}
	}
	if s.ControlPlane == nil {
		return nil
	}
	settings := observed.KubeadmOf("", &s.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration)
	violations, unknown := settings.JudgeHops(policies, world, skew.Kubeadm{}, hops)
	switch refused := skew.Summary(violations); {
	case refused != "":
		return []quoinv1.Finding{blocks("", "Kubeadm", refused, "")}
	case unknown != "":
		return []quoinv1.Finding{warns("", "Kubeadm", unknown, "")}
	}
	return nil
}

// advice is what is better, and what a person has to do by hand: no hops where a ClusterUpgrade makes them.
func (s Subject) advice(way plan.Plan, newest string) []quoinv1.Finding {
	var findings []quoinv1.Finding
	if len(way.Hops) > 1 && !s.Cluster.Spec.Topology.IsDefined() && !s.Upgraded {
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

// seen is what runs.
type seen struct {
	machines []clusterv1.Machine
	// world is by the Machines, and by the Nodes that have none.
	world skew.World
	// inside is what runs as pods.
	inside []skew.Running
	// others are the kubelets of Nodes without a Machine.
	others []skew.Running
}

// seen reads the Cluster's Machines, Nodes and own pods.
func (s Subject) seen(ctx context.Context, policies []skew.Policy) (found seen, err error) {
	if found.machines, err = s.machines(ctx); err != nil {
		return seen{}, err
	}
	nodes := &corev1.NodeList{}
	if err := s.Workload.List(ctx, nodes); err != nil {
		return seen{}, fmt.Errorf("list the Nodes: %w", err)
	}
	for _, node := range withoutMachine(nodes.Items, found.machines) {
		version := node.Status.NodeInfo.KubeletVersion
		if _, err := skew.Parse(version); err == nil {
			found.others = append(found.others, skew.Running{Component: skew.Kubelet, Version: version,
				Object: "Node " + node.Name})
		}
	}
	if found.world, err = observed.WorldOf(ctx, s.Management, s.Cluster, policies, found.machines); err != nil {
		return seen{}, err
	}
	if len(found.world.APIServers) == 0 {
		if found.world.APIServers, err = observed.Hosted(ctx, s.Management, s.Cluster); err != nil {
			return seen{}, err
		}
	}
	found.world.Components = append(found.world.Components, found.others...)
	if found.inside, err = observed.Inside(ctx, s.Workload, found.world); err != nil {
		return seen{}, err
	}
	found.inside, err = observed.KeepProxyOf(ctx, s.Management, s.Cluster, s.ControlPlane, found.inside)
	return found, err
}

// state is what a plan begins from.
func (f seen) state() plan.State {
	state := plan.StateOf(f.machines)
	state.Estate = f.world.Estate
	state.APIServers, state.Others = f.world.APIServers, append(state.Others, f.others...)
	return state.WithAddons(f.inside)
}

// class is the ClusterClass of a managed topology; an empty one of any other Cluster, and where it is not there.
func (s Subject) class(ctx context.Context) (*clusterv1.ClusterClass, error) {
	class := &clusterv1.ClusterClass{}
	if !s.Cluster.Spec.Topology.IsDefined() {
		return class, nil
	}
	key := s.Cluster.GetClassKey()
	if err := s.Management.Get(ctx, key, class); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ClusterClass %s: %w", key, err)
	}
	return class, nil
}

// machines of the Cluster.
func (s Subject) machines(ctx context.Context) ([]clusterv1.Machine, error) {
	return observed.Machines(ctx, s.Management, client.ObjectKeyFromObject(s.Cluster))
}
