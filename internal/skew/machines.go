// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
)

// PolicyAnnotation on a Cluster lists, separated by commas, the policies that hold for it beside the default one.
const PolicyAnnotation = "quoin.cluster.x-k8s.io/skew-policy"

// PoliciesOf are the policies that hold for the Cluster.
func PoliciesOf(cluster *clusterv1.Cluster) ([]Policy, error) {
	chosen, err := Policies(cluster.Annotations[PolicyAnnotation])
	if err != nil {
		return nil, fmt.Errorf("annotation %s of Cluster %s: %w", PolicyAnnotation, cluster.Name, err)
	}
	return chosen, nil
}

// Split parts the policies of distributions from all others.
func Split(policies []Policy) (ordinary, distributions []Policy) {
	for _, policy := range policies {
		if policy.Distribution == nil {
			ordinary = append(ordinary, policy)
		} else {
			distributions = append(distributions, policy)
		}
	}
	return ordinary, distributions
}

// AskForEstate reports whether one of the policies judges by a World's Estate.
func AskForEstate(policies []Policy) bool {
	return slices.ContainsFunc(policies, func(policy Policy) bool { return policy.Distribution != nil })
}

// WorldOf is what runs in a Cluster, by its Machines: the API servers of those of the control plane that have a Node,
// and the kubelets of the others, in their order. While none has a Node, of a new cluster or right after a move, all of
// the control plane count.
func WorldOf(machines []clusterv1.Machine) World {
	world, unseen, known := World{Components: make([]Running, 0, len(machines))}, []string(nil), reader{}
	for i := range machines {
		machine := &machines[i]
		switch {
		case !util.IsControlPlaneMachine(machine):
			world.Components = append(world.Components,
				Running{Component: Kubelet, Version: known.runs(machine), Object: "Machine " + machine.Name})
		case machine.Status.NodeRef.IsDefined():
			world.APIServers = append(world.APIServers, known.runs(machine))
		default:
			unseen = append(unseen, known.runs(machine))
		}
	}
	if len(world.APIServers) == 0 {
		world.APIServers = unseen
	}
	return world
}

// Runs is the version that the Machine's Node reports, else the one that it was made with.
func Runs(machine *clusterv1.Machine) string { return reader{}.runs(machine) }

func (r reader) runs(machine *clusterv1.Machine) string {
	if info := machine.Status.NodeInfo; info != nil && r.read(info.KubeletVersion) != nil {
		return info.KubeletVersion
	}
	return machine.Spec.Version
}

// most is how many violations a summary names one by one.
const most = 3

// Summary is one text of all violations, of which the first are named one by one; empty when there are none.
func Summary(violations []Violation) string {
	var named []string
	for _, violation := range violations[:min(len(violations), most)] {
		named = append(named, violation.Message())
	}
	text := strings.Join(named, "; ")
	if more := len(violations) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func sortVersions(versions []*semver.Version) { slices.SortFunc(versions, Compare) }
