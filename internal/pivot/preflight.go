// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
)

// Result of a check.
type Result string

// Results of checks.
const (
	Passed  Result = "Passed"
	Warning Result = "Warning"
	Failed  Result = "Failed"
)

// Check is one line of a preflight.
type Check struct {
	Name    string `json:"name"`
	Result  Result `json:"result"`
	Message string `json:"message"`
}

// Facts that a preflight reads.
type Facts struct {
	// Movable is the condition of each Cluster's QuoinCluster; nil where there is none.
	Movable map[string]*metav1.Condition
	// Rehearsal says what clusterctl, or the target's admission, has against the move; nil when nothing.
	Rehearsal error
	// Moving is how many objects move, Tried whether the target's admission was asked about each.
	Moving int
	Tried  bool
	// Existing objects of the target would be overwritten.
	Existing []Object
	// Nodes of the target.
	Nodes []corev1.Node
	// Volumes says what of the managers' volumes the target lacks.
	Volumes []string
	// Served is what the source itself serves of what moves, with its address and whose that is.
	Served []string
	// Reach is what the target reaches.
	Reach Reach
}

// noObstacle are reasons of the condition Movable that hold no move up (docs/move.md).
var noObstacle = []string{moving.DeletionInFlight, moving.HooksInFlight, moving.SharedClusterClass}

// Preflight judges whether a pivot may begin.
func Preflight(f Facts) []Check {
	checks := make([]Check, 0, len(f.Movable)+4)
	for _, name := range slices.Sorted(maps.Keys(f.Movable)) {
		checks = append(checks, movable(name, f.Movable[name]))
	}
	checks = append(checks, f.rehearsal(), f.room(), f.nodes(), f.volumes(), f.served())
	return append(checks, f.Reach.checks()...)
}

// Blocks reports whether one of the checks keeps a pivot from beginning.
func Blocks(checks []Check) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.Result == Failed })
}

func movable(cluster string, condition *metav1.Condition) Check {
	c := Check{Name: "Cluster " + cluster + " is movable", Result: Failed}
	switch {
	case condition == nil || condition.Status == metav1.ConditionUnknown:
		c.Message = "its QuoinCluster does not say whether it is movable: see that the manager of the " +
			"infrastructure provider runs"
	case condition.Status == metav1.ConditionTrue:
		c.Result, c.Message = Passed, condition.Reason
	default:
		if slices.Contains(noObstacle, condition.Reason) {
			c.Result = Warning
		}
		c.Message = condition.Reason + ": " + condition.Message
	}
	return c
}

func (f Facts) rehearsal() Check {
	c := Check{Name: "Rehearsal of the move", Result: Passed}
	switch {
	case f.Rehearsal != nil:
		c.Result, c.Message = Failed, f.Rehearsal.Error()
	case !f.Tried:
		c.Message = fmt.Sprintf("%d objects would move, providers match; admission is asked once the namespace is on "+
			"the target", f.Moving)
	default:
		c.Message = fmt.Sprintf("%d objects would move, providers match, and the target's admission takes each", f.Moving)
	}
	return c
}

func (f Facts) room() Check {
	c := Check{Name: "Names are free on the target", Result: Passed}
	if len(f.Existing) > 0 {
		c.Result, c.Message = Failed, fmt.Sprintf("it has objects of these names, which a move would "+
			"overwrite: %s", Listed(f.Existing))
	}
	return c
}

// nodes warns where managers have nowhere to go when their node is drained. A kind cluster has one node, so that it
// only warns.
func (f Facts) nodes() Check {
	c := Check{Name: "Managers can be rescheduled on the target", Result: Passed}
	there := f.schedulable()
	c.Message = fmt.Sprintf("%d schedulable nodes", there)
	if there < 2 {
		c.Result = Warning
		c.Message += ": a target that is to upgrade itself needs two, or the drain of one leaves its managers nowhere to run"
	}
	return c
}

// volumes warns only: whoever moves back to delete a cluster needs none.
func (f Facts) volumes() Check {
	c := Check{Name: "Volumes of managers are mounted on the target", Result: Passed, Message: "none is missing"}
	if len(f.Volumes) > 0 {
		c.Result, c.Message = Warning, strings.Join(f.Volumes, "; ")
	}
	return c
}

// served warns only: the source may stay.
func (f Facts) served() Check {
	c := Check{Name: "Bundles and object stores outlive the source", Result: Passed, Message: "it serves none"}
	if len(f.Served) > 0 {
		c.Result = Warning
		c.Message = "they are gone with the source: " + strings.Join(f.Served, "; ") + "; before it is deleted, serve them " +
			"elsewhere and name that in these objects, where a Machine is to be replaced for its QuoinMachine"
	}
	return c
}

// schedulable counts the nodes that managers may run on.
func (f Facts) schedulable() (count int) {
	for i := range f.Nodes {
		if schedulable(&f.Nodes[i]) {
			count++
		}
	}
	return count
}

// schedulable reports whether managers, which tolerate control planes, may run on the node.
func schedulable(node *corev1.Node) bool {
	return !node.Spec.Unschedulable &&
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != "node-role.kubernetes.io/control-plane"
		})
}
