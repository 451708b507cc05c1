// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Topology is how a managed topology upgrades MachineDeployments (computeMachineDeploymentVersion in
// exp/topology/desiredstate/desired_state.go): it gives a new version to so many at once, in the order of its list. One
// that a policy holds counts as upgrading.
type Topology struct {
	// Order is the place of each MachineDeployment, by its name.
	Order map[string]int
	// All is how many the topology lists.
	All int
	// Concurrency is how many are upgraded at once.
	Concurrency int
	// Pending MachineDeployments are about to get the version that another one has got already: the topology writes them
	// one after another, in any order. While nothing is written, or a write fails, none is: that may last.
	Pending map[string]bool
}

// pending reports whether the pool gets another template in a moment, where the policy alone orders.
func (t *Topology) pending(pool string) bool {
	return t != nil && t.Concurrency >= t.All && t.Pending[pool]
}

// Withholds says that the topology keeps a new version from others while the rollout of the pool stops, and the way
// out; empty where it does not. A pool counts as upgrading while a Machine has another version than its template
// (IsMachineDeploymentUpgrading in internal/topology/check/upgrade.go).
func (t *Topology) Withholds(pool string) string {
	if t == nil || t.Concurrency >= t.All {
		return ""
	}
	if _, is := t.Order[pool]; !is {
		return ""
	}
	return fmt.Sprintf(", but the Cluster's topology upgrades %d at once, this one counted: for all to go on give the "+
		"Cluster the annotation %s: \"%d\"", t.Concurrency, clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation, t.All)
}

// rolls reports whether Machines of the MachineDeployment are to be replaced: what replaced all of its own says nothing
// of what its topology does now.
func rolls(pool *clusterv1.MachineDeployment) bool {
	present := ptr.Deref(pool.Status.UpToDateReplicas, 0)
	return pool.Status.ObservedGeneration < pool.Generation || present < ptr.Deref(pool.Spec.Replicas, 0) ||
		present < ptr.Deref(pool.Status.Replicas, 0)
}

// TopologyOf is the topology of a Cluster, whose MachineDeployments are among the given ones; nil when it has none.
func TopologyOf(cluster *clusterv1.Cluster, pools []clusterv1.MachineDeployment) *Topology {
	if !cluster.Spec.Topology.IsDefined() {
		return nil
	}
	listed := cluster.Spec.Topology.Workers.MachineDeployments
	t := &Topology{Order: map[string]int{}, Pending: map[string]bool{}, All: len(listed), Concurrency: 1}
	if n, err := strconv.Atoi(cluster.Annotations[clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation]); err == nil {
		t.Concurrency = n
	}
	places, deferred, held := map[string]int{}, map[string]bool{}, false
	for i := range listed {
		_, defers := listed[i].Metadata.Annotations[clusterv1.ClusterTopologyDeferUpgradeAnnotation]
		_, holds := listed[i].Metadata.Annotations[clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation]
		held = held || holds // and all that come after it
		places[listed[i].Name], deferred[listed[i].Name] = i, defers || held
	}
	goal := cluster.Spec.Topology.Version
	step := cmp.Or(cluster.Annotations[clusterv1.ClusterTopologyUpgradeStepAnnotation], goal)
	writes := false
	for i := range pools {
		name := pools[i].Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
		place, is := places[name]
		if !is || pools[i].Spec.ClusterName != cluster.Name {
			continue
		}
		t.Order[pools[i].Name] = place
		switch version := pools[i].Spec.Template.Spec.Version; {
		case version == step || version == goal:
			writes = writes || rolls(&pools[i])
		case !deferred[name]:
			t.Pending[pools[i].Name] = true
		}
	}
	reconciled := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	if !writes || reconciled != nil && reconciled.Reason == clusterv1.ClusterTopologyReconciledFailedReason {
		t.Pending = map[string]bool{}
	}
	return t
}

// replicasOf says where replicas of the pool are set.
func (p Pool) replicasOf() string { return p.setIn("replicas", "replicas") }

// maxUnavailableOf says where it is set how many Machines Cluster API lets be missing.
func (p Pool) maxUnavailableOf() string {
	return p.setIn("maxUnavailable", "rollout.strategy.rollingUpdate.maxUnavailable")
}

// AnnotationsOf says where annotations of the MachineDeployment are set.
func (p Pool) AnnotationsOf() string { return p.setIn("annotations", "metadata.annotations") }

// setIn names a field of the MachineDeployment, or that of the topology which it comes from: what is set in a
// MachineDeployment that a topology owns is taken back.
func (p Pool) setIn(field, ofTopology string) string {
	if _, owned := p.Labels[clusterv1.ClusterTopologyOwnedLabel]; !owned {
		return fmt.Sprintf("%s of MachineDeployment %s", field, p.Name)
	}
	return fmt.Sprintf("spec.topology.workers.machineDeployments[name=%s].%s of Cluster %s",
		p.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel], ofTopology, p.Labels[clusterv1.ClusterNameLabel])
}

// Misordered says where the order of a policy is not the one of the topology; empty when it can be kept. The error says
// why the policy cannot be read.
func Misordered(pools []Pool, policy *quoinv1.RolloutPolicySpec, topology *Topology) (string, error) {
	arranged, err := arrange(pools, policy)
	return misordered(arranged, topology), err
}

func misordered(arranged []rules, topology *Topology) string {
	if topology == nil || topology.Concurrency >= topology.All {
		return "" // all go at once, and the policy alone orders them
	}
	before := ""
	for i := range arranged {
		name := arranged[i].Name
		if _, is := topology.Order[name]; !is {
			continue
		}
		if before != "" && topology.Order[before] > topology.Order[name] {
			return fmt.Sprintf("MachineDeployment %s comes before %s here, and after it in the Cluster's topology, which "+
				"upgrades %d at once: give groups the order of spec.topology.workers.machineDeployments, or the Cluster "+
				"annotation %s: \"%d\"", before, name, topology.Concurrency,
				clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation, topology.All)
		}
		before = name
	}
	return ""
}
