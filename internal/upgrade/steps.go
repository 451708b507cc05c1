// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// unplannedError says why there is no plan.
type unplannedError struct{ reason, message string }

func (e *unplannedError) Error() string { return e.message }

// plan is the shortest legal way from what runs.
func (w World) plan(spec quoinv1.ClusterUpgradeSpec) (plan.Plan, *unplannedError) {
	if w.Cluster.Problem != "" {
		return plan.Plan{}, &unplannedError{quoinv1.NoPlanReason, w.Cluster.Problem}
	}
	request := plan.Request{State: w.state(spec.Workers), Target: spec.Version, Policies: w.Cluster.Policies}
	way := plan.For
	switch topology := w.Cluster.Topology; {
	case topology != nil && len(spec.Via) > 0:
		return plan.Plan{}, &unplannedError{quoinv1.NoPlanReason, "nobody heeds spec.via of a managed topology: remove it, " +
			"and have spec.kubernetesVersions of the ClusterClass list the version to take of each minor"}
	case topology != nil && topology.Extension != "":
		return plan.Plan{}, &unplannedError{quoinv1.NoPlanReason, fmt.Sprintf("runtime extension %s plans the way of this "+
			"topology, and nobody else knows it: set spec.topology.version of the Cluster instead", topology.Extension)}
	case topology != nil:
		way, request.Known = plan.OfTopology, topology.Known
	case len(spec.Via) > 0:
		request.Known, request.Listed = append(slices.Clone(spec.Via), spec.Version), "spec.via"
	}
	found, err := way(request)
	switch {
	case err != nil:
		return plan.Plan{}, &unplannedError{quoinv1.NoPlanReason, err.Error()}
	case found.AnyPatch && w.unknown(found.Hops):
		return plan.Plan{}, &unplannedError{quoinv1.HopsUnknownReason, fmt.Sprintf("the way leads over %s: name in spec.via "+
			"the patch to take of each minor between, one whose artifacts there are", found.Route())}
	}
	return found, nil
}

// unknown reports whether one of the hops before the last is of a patch that nobody named. What runs already is no
// question: a rollout that was interrupted is finished first.
func (w World) unknown(hops []string) bool {
	return len(hops) > 1 && slices.ContainsFunc(hops[:len(hops)-1], func(hop string) bool {
		return !slices.Contains(w.ControlPlane.Runs, hop)
	})
}

// stepsOf are the steps of a plan between the preflight and the look at the end.
func (w World) stepsOf(p plan.Plan) []quoinv1.UpgradeStep {
	var steps []quoinv1.UpgradeStep
	for _, of := range p.Steps {
		step := quoinv1.UpgradeStep{From: of.From, To: of.To, Why: fmt.Sprintf("%s (%s)", of.Why, of.Rule),
			State: quoinv1.UpgradeStepPending}
		switch of.Raises {
		case plan.ControlPlane:
			step.Type, step.Object = quoinv1.UpgradeStepControlPlane, w.ControlPlane.Object
		case plan.Addons:
			step.Type, step.Object = quoinv1.UpgradeStepAddons, w.ControlPlane.Object
		case plan.Workers:
			step.Type, step.Object = quoinv1.UpgradeStepWorkers, of.Pool
		}
		steps = append(steps, step)
	}
	return steps
}

// around adds to the steps of a plan what every upgrade begins with, and what it ends with where more do not follow.
func (w World) around(target string, steps []quoinv1.UpgradeStep, more bool) []quoinv1.UpgradeStep {
	pending := quoinv1.UpgradeStepPending
	all := []quoinv1.UpgradeStep{{Type: quoinv1.UpgradeStepPreflight, To: target, State: pending,
		Why: "nothing is touched before it passed (S0-50)"}}
	if w.Infrastructure != nil {
		all = append(all, quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepSpecVersion, Object: w.Infrastructure.Object,
			To: target, State: pending, Why: "the target is written first (S0-2)"})
	}
	all = append(all, steps...)
	if more {
		return all
	}
	return append(all, quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepHealth, To: target, State: pending,
		Why: "an upgrade is complete when the Cluster is healthy (S0-53)"})
}

// line is a step for people: "ControlPlane QuoinControlPlane prod -> v1.36.3".
func line(step quoinv1.UpgradeStep) string {
	text := string(step.Type)
	if step.Object != "" {
		text += " " + step.Object
	}
	return text + " -> " + step.To
}

// idOf is the same for plans with the same steps.
func idOf(steps []quoinv1.UpgradeStep) string {
	var lines []string
	for _, step := range steps {
		lines = append(lines, line(step))
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n"))))[:10]
}

// reached reports whether everything that the step is for runs the version, settled or not. Steps that raise nothing
// are never reached.
func (w World) reached(step quoinv1.UpgradeStep) bool {
	switch step.Type {
	case quoinv1.UpgradeStepControlPlane, quoinv1.UpgradeStepAddons:
		return none(w.ControlPlane.Runs, step.To)
	case quoinv1.UpgradeStepWorkers:
		pool := w.pool(step.Object)
		return pool != nil && none(pool.versions(), step.To)
	case quoinv1.UpgradeStepSpecVersion:
		return w.Infrastructure == nil || w.Infrastructure.Value == step.To
	}
	return false
}

// none reports whether none of the versions is older.
func none(versions []string, than string) bool {
	return !slices.ContainsFunc(versions, func(version string) bool { return skew.Older(version, than) })
}

// satisfied reports whether the step is done with. What was raised further since then need not settle on the way.
func (w World) satisfied(step quoinv1.UpgradeStep) bool {
	if !w.reached(step) {
		return false
	}
	switch step.Type {
	case quoinv1.UpgradeStepControlPlane:
		return skew.Older(step.To, w.ControlPlane.Value) || w.ControlPlane.Unsettled == ""
	case quoinv1.UpgradeStepAddons:
		return skew.Older(step.To, w.ControlPlane.Value) || w.ControlPlane.Addons == ""
	case quoinv1.UpgradeStepWorkers:
		pool := w.pool(step.Object)
		return skew.Older(step.To, pool.Value) || pool.Unsettled == ""
	}
	return true
}

// raises are the lines of the steps that give a version to the control plane or to a pool, and are not reached. Add-ons
// whose kube-proxy waits are among them: where they stand then is what the rest depends on.
func (w World) raises(steps []quoinv1.UpgradeStep) []string {
	var lines []string
	for _, step := range steps {
		held := step.Type == quoinv1.UpgradeStepAddons && step.To == w.ControlPlane.Value && w.proxyWaits()
		if raises(step) && !w.reached(step) || held {
			lines = append(lines, line(step))
		}
	}
	return lines
}

// changed says what two lists of lines do not have in common; empty when they are the same.
func changed(before, after []string) string {
	if slices.Equal(before, after) {
		return ""
	}
	var said []string
	missing := func(from, in []string, how string) {
		there := make(map[string]bool, len(in))
		for _, line := range in {
			there[line] = true
		}
		for _, line := range from {
			if !there[line] {
				said = append(said, how+line)
			}
		}
	}
	missing(after, before, "new: ")
	missing(before, after, "left out: ")
	return cmp.Or(strings.Join(said, "; "), "another order: "+strings.Join(after, ", "))
}
