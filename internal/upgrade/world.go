// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade decides what comes next in an upgrade of a whole Cluster. It is pure: it is given what was read, and
// answers with at most one change and with what to tell.
//
// A decision is made anew each time, from the world alone: which steps are left follows from what runs. The status of a
// ClusterUpgrade only keeps the plan that people were shown, so that they learn when it changes, and which versions
// were written, so that one that somebody sets back is not written over and over.
package upgrade

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// World is what an upgrade depends on.
type World struct {
	// Steps by which the clock was set forward since the process began.
	Steps steady.Steps
	// Cluster is nil when there is none.
	Cluster *Cluster
	// First is the ClusterUpgrade of the same Cluster that comes before this one; empty when this one is the first.
	First string
	// Infrastructure is nil when the Cluster has another one than a QuoinCluster.
	Infrastructure *Infrastructure
	ControlPlane   ControlPlane
	// Pools by name.
	Pools []Pool
	// Others are kubelets that no pool has.
	Others []skew.Running
	// Checks that were made for this upgrade, the oldest first.
	Checks []Check
	// Attempts are the highest numbers that checks of an upgrade of this name have, by sort: an earlier one may have left
	// some.
	Attempts map[string]int
	// Supplies say what the Machines of an object are made from, without a version: by the object, as steps name it, where
	// that can be staged.
	Supplies map[string]infrav1.StagedArtifacts
	// Spares are the hosts that those Machines would claim next, and those that are asked for this upgrade already.
	Spares []Spare
	// Nodes are the Machines that there are, by the object that made them, as steps name it.
	Nodes map[string][]Node
	// Policy is the RolloutPolicy that holds for the Cluster; nil without one.
	Policy *quoinv1.RolloutPolicy
	// Took is how long such steps took in earlier upgrades of the Cluster, by StepKey.
	Took map[string]time.Duration
	// PerMachine is how long the latest step of a kind took in any Cluster of the namespace, for each Machine that it
	// changed, and as a whole where these are unknown: what has no history of its own is estimated by it. Nothing of
	// another namespace is in it.
	PerMachine map[StepKind]time.Duration

	// byObject are the Pools, once they are indexed.
	byObject map[string]*Pool
}

// StepKind is what steps for any object have in common: their type, and whether their Machines are known.
type StepKind struct {
	Type     quoinv1.UpgradeStepType
	Machines bool
}

// StepKindOf is the kind of a step.
func StepKindOf(step quoinv1.UpgradeStep) StepKind { return StepKind{step.Type, step.Machines != nil} }

// StepKey is the same for steps that do the same for one object, whatever the versions.
func StepKey(step quoinv1.UpgradeStep) string { return string(step.Type) + " " + step.Object }

// Cluster is what the Cluster itself says.
type Cluster struct {
	Name                string
	Paused, Initialized bool
	// Deleting: the Cluster is going, and all that belongs to it.
	Deleting bool
	// Topology is nil when the Cluster is no managed topology.
	Topology *Topology
	// Policies that hold for the Cluster, and why they are not known.
	Policies []skew.Policy
	Problem  string
}

// Topology is a Cluster whose control plane and pools Cluster API raises.
type Topology struct {
	Field
	// Known are the versions that the ClusterClass lists.
	Known []string
	// Extension plans the way instead of Cluster API; empty without one.
	Extension string
}

// Field is a version in the spec of an object.
type Field struct {
	// Object for people: "QuoinControlPlane prod".
	Object string
	Value  string
	// Owner wrote the value last, for people; empty when that was not read.
	Owner string
}

// Infrastructure is a QuoinCluster, which keeps the record of upgrades.
type Infrastructure struct {
	Field
	// Reached is the version in its status.
	Reached string
}

// ControlPlane of the Cluster.
type ControlPlane struct {
	Field
	// Runs are the versions of its Nodes, or of a hosted one, which has none, those that it tells.
	Runs   []string
	Hosted bool
	// Unwatched: nobody tells when it changes.
	Unwatched bool
	// Unsettled says what keeps its spec from being carried out everywhere; empty when that is done.
	Unsettled string
	// Addons says what keeps the add-ons from being those of its version; empty when they are, and when nobody tells.
	Addons string
	// AddonsHeld: kubelets keep kube-proxy from the version, so add-ons wait for the workers.
	AddonsHeld bool
}

// Pool is a MachineDeployment.
type Pool struct {
	Field
	Name string
	// Runs are the versions of its Nodes.
	Runs []string
	// Unsettled says what keeps its spec from being carried out everywhere; empty when that is done.
	Unsettled string
	// Labels by which a RolloutPolicy selects it.
	Labels map[string]string
	// Paused: Cluster API replaces none of its Machines. OnDelete: only those that somebody deletes.
	Paused, OnDelete bool
}

// versions that the pool has or is to get.
func (p Pool) versions() []string {
	if p.Value == "" {
		return p.Runs
	}
	return append(slices.Clone(p.Runs), p.Value)
}

// Check is a PreflightCheck that was made for the upgrade.
type Check struct {
	Name string
	// Health says that the check looks at the end, not before the beginning.
	Health  bool
	Attempt int
	// Completed is zero while it looks.
	Completed time.Time
	Blocks    bool
	// Moved says that only the verdict is left of it, which another management cluster reached.
	Moved   bool
	Summary string
	Skip    []quoinv1.SkippedCheck
	Via     []string
	Workers quoinv1.UpgradeWorkers
}

// index has pools found by their objects.
func (w *World) index() {
	w.byObject = make(map[string]*Pool, len(w.Pools))
	for i := range w.Pools {
		w.byObject[w.Pools[i].Object] = &w.Pools[i]
	}
}

// windows in which alone Machines are replaced.
func (w World) windows() []quoinv1.RolloutWindow {
	if w.Policy == nil {
		return nil
	}
	return w.Policy.Spec.Windows
}

func (w World) pool(object string) *Pool { return w.byObject[object] }

// state is where a plan begins.
func (w World) state(workers quoinv1.UpgradeWorkers) plan.State {
	state := plan.State{APIServers: w.ControlPlane.Runs, Others: w.Others, ProxyWaits: w.proxyWaits()}
	for _, pool := range w.ordered() {
		state.Pools = append(state.Pools, plan.Pool{Object: pool.Object, Versions: pool.versions(),
			Stays: workers == quoinv1.UpgradeWorkersAsNeeded})
	}
	return state
}

// proxyWaits reports whether kubelets keep kube-proxy from a version that all API servers run. Those of a topology are
// raised by Cluster API, which waits for no add-ons.
func (w World) proxyWaits() bool {
	return w.ControlPlane.AddonsHeld && w.Cluster.Topology == nil && none(w.ControlPlane.Runs, w.ControlPlane.Value)
}

// ordered are the pools as the RolloutPolicy has them rolled out, by group and then by name: one that is raised too
// early would wait for others that nobody raised yet. Then come those that it does not select, and last those of a
// group that is suspended, which it lets nobody wait for. Before all of them is what has begun: a policy that changes
// meanwhile has no second pool raised beside it. A topology's are Cluster API's to raise.
func (w World) ordered() []Pool {
	if w.Policy == nil || len(w.Policy.Spec.Groups) == 0 || w.Cluster.Topology != nil {
		return w.Pools
	}
	places := make(map[string]int, len(w.Pools))
	for _, pool := range w.Pools {
		place := w.place(pool)
		switch {
		case place >= 0 && w.suspended(place):
			place = math.MaxInt
		case !none(pool.Runs, pool.Value):
			place = math.MinInt
		case place < 0:
			place = len(w.Policy.Spec.Groups)
		}
		places[pool.Name] = place
	}
	pools := slices.Clone(w.Pools)
	slices.SortStableFunc(pools, func(a, b Pool) int { return cmp.Compare(places[a.Name], places[b.Name]) })
	return pools
}

// place of the pool's group in the RolloutPolicy; negative when that does not select it. What is wrong with the policy
// its own status says.
func (w World) place(pool Pool) int {
	place, _ := rollout.Select(&w.Policy.Spec, pool.Name, pool.Labels)
	return place
}

// suspended reports whether a group is: nothing that comes later waits for it.
func (w World) suspended(place int) bool {
	groups := w.Policy.Spec.Groups
	return len(groups) > 0 && ptr.Deref(groups[place].Suspend, false)
}

// counted are the versions with how many times each is there, from the oldest.
func counted(versions []string) []clusterv1.StatusVersion {
	counts := map[string]int32{}
	for _, version := range versions {
		if version != "" {
			counts[version]++
		}
	}
	var all []clusterv1.StatusVersion
	for version, count := range counts {
		all = append(all, clusterv1.StatusVersion{Version: version, Replicas: count})
	}
	slices.SortFunc(all, func(a, b clusterv1.StatusVersion) int {
		if skew.Older(a.Version, b.Version) {
			return -1
		}
		return 1
	})
	return all
}

// nodes are the versions of all Nodes.
func (w World) nodes() []string {
	var all []string
	if !w.ControlPlane.Hosted {
		all = slices.Clone(w.ControlPlane.Runs)
	}
	for _, pool := range w.Pools {
		all = append(all, pool.Runs...)
	}
	for _, other := range w.Others {
		all = append(all, other.Version)
	}
	return all
}
