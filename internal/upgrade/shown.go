// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// mostHosts of a step are named, as the API bounds them: a status lists many steps.
	mostHosts = 3
	// mostHold bounds what a hold says, as the API does.
	mostHold = 256
	// mostWindows are told one by one.
	mostWindows = 3
)

// Node is a Machine of the control plane or of a pool.
type Node struct {
	// Host is the name of its host, else of the Machine, for people: "metal/h1", "Machine prod-x".
	Host string
	// Version that the Machine runs.
	Version string
}

// show says of each step that is left what it replaces and what will hold it, as the world is now. It is told, and
// nothing is decided by it: a plan is the same, with the same id, on whatever hosts its Machines are. What a step has
// replaced since it began is not counted down.
func (t *deliberation) show() {
	plan := t.Status.Plan
	if t.Cluster == nil || plan == nil || Completed(t.upgrade) {
		return
	}
	plan.Holds = t.planHolds()
	places := t.places()
	before, versions := t.predecessors(places), t.versionHolds()
	for i := range t.Status.Steps {
		step := &t.Status.Steps[i]
		step.Holds = nil
		if step.State == quoinv1.UpgradeStepDone {
			continue
		}
		if step.StartTime.IsZero() {
			step.Change, step.Machines = t.changes(*step)
		}
		if raises(*step) {
			step.Holds = slices.Concat(versions[i], t.poolHolds(*step, places, before[step.Object]))
		}
	}
}

func raises(step quoinv1.UpgradeStep) bool {
	return step.Type == quoinv1.UpgradeStepControlPlane || step.Type == quoinv1.UpgradeStepWorkers
}

// changes says how the object of a step gets its version, and which Machines are replaced for that.
func (w World) changes(step quoinv1.UpgradeStep) (quoinv1.UpgradeStepChange, *quoinv1.UpgradeStepMachines) {
	switch {
	case step.Type == quoinv1.UpgradeStepSpecVersion || step.Type == quoinv1.UpgradeStepAddons:
		return quoinv1.UpgradeStepUpdate, nil
	case !raises(step) || step.Type == quoinv1.UpgradeStepControlPlane && w.ControlPlane.Hosted:
		return "", nil
	}
	var hosts []string
	for _, node := range w.Nodes[step.Object] {
		if skew.Older(node.Version, step.To) {
			hosts = append(hosts, node.Host)
		}
	}
	slices.Sort(hosts)
	machines := &quoinv1.UpgradeStepMachines{Count: ptr.To(int32(min(len(hosts), math.MaxInt32)))}
	machines.Hosts = hosts[:min(len(hosts), mostHosts)]
	return quoinv1.UpgradeStepReplace, machines
}

func hold(of quoinv1.UpgradeHoldType, format string, args ...any) quoinv1.UpgradeHold {
	return quoinv1.UpgradeHold{Type: of, Message: text.Shorten(fmt.Sprintf(format, args...), mostHold)}
}

// planHolds are what holds whatever is left.
func (t *deliberation) planHolds() (holds []quoinv1.UpgradeHold) {
	left := slices.DeleteFunc(slices.Clone(t.Status.Steps), func(step quoinv1.UpgradeStep) bool {
		return step.State == quoinv1.UpgradeStepDone
	})
	if len(left) == 0 {
		return nil
	}
	if paused := t.Pauses(t.upgrade); paused != "" {
		holds = append(holds, hold(quoinv1.UpgradeHoldPause, "%s", paused))
	}
	if !t.approved() {
		holds = append(holds, hold(quoinv1.UpgradeHoldApproval, "spec.approve is Manual: nothing is touched until "+
			"spec.approvedPlan is %s", t.Status.Plan.ID))
	}
	if slices.ContainsFunc(left, raises) {
		holds = append(holds, t.windowHolds()...)
	}
	return holds
}

// versionHolds are, by step, what has to get its version before, with the rule that says so.
func (t *deliberation) versionHolds() map[int][]quoinv1.UpgradeHold {
	holds, plane := map[int][]quoinv1.UpgradeHold{}, (*quoinv1.UpgradeStep)(nil)
	var forced []quoinv1.UpgradeStep // pools that are raised between two hops of the control plane
	for i, step := range t.Status.Steps {
		if step.State == quoinv1.UpgradeStepDone || !raises(step) {
			continue
		}
		why := step.Why
		if step.Type == quoinv1.UpgradeStepWorkers {
			why, forced = "no kubelet is newer than its API servers (R2)", append(forced, step)
		}
		if plane != nil {
			holds[i] = append(holds[i], hold(quoinv1.UpgradeHoldVersion, "after %s: %s", line(*plane), why))
		}
		if step.Type == quoinv1.UpgradeStepWorkers {
			continue
		}
		if len(forced) > 0 {
			first, more := forced[0], ""
			if len(forced) > 1 {
				more = fmt.Sprintf(" and %d more", len(forced)-1)
			}
			holds[i] = append(holds[i], hold(quoinv1.UpgradeHoldVersion, "after %s%s: %s", line(first), more, first.Why))
		}
		plane, forced = &t.Status.Steps[i], nil
	}
	return holds
}

// places are the groups of the RolloutPolicy by the pools that are left and that it selects.
func (t *deliberation) places() map[string]int {
	if t.Policy == nil {
		return nil
	}
	places := map[string]int{}
	for _, step := range t.Status.Steps {
		pool := t.pool(step.Object)
		if step.State == quoinv1.UpgradeStepDone || pool == nil {
			continue
		}
		if place := t.place(*pool); place >= 0 {
			places[step.Object] = place
		}
	}
	return places
}

// predecessors are, of the pools that are left and that the RolloutPolicy selects, those that it has right before them,
// where that may hold them: pools are raised one after another, so that what comes later is not outdated by then,
// unless it is now.
func (t *deliberation) predecessors(places map[string]int) map[string]string {
	if t.Policy == nil {
		return nil
	}
	type placed struct {
		place, step int
		object      string
	}
	var all []placed
	for i, step := range t.Status.Steps {
		place, selected := places[step.Object]
		if selected && step.State != quoinv1.UpgradeStepDone && !t.suspended(place) {
			all = append(all, placed{place, i, step.Object})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(a.place-b.place, strings.Compare(a.object, b.object))
	})
	// A pool that is raised twice is held the first time.
	all = slices.CompactFunc(all, func(a, b placed) bool { return a.object == b.object })
	before := make(map[string]string, len(all))
	for i := t.atOnce(); i < len(all); i++ {
		first := all[i-1]
		if first.step < all[i].step || t.Cluster.Topology != nil || t.pool(first.object).Unsettled != "" {
			before[all[i].object] = first.object
		}
	}
	return before
}

// atOnce is how many MachineDeployments the RolloutPolicy has rolled out at once.
func (t *deliberation) atOnce() int { return int(ptr.Deref(t.Policy.Spec.Concurrency, 1)) }

// poolHolds are what the pool of a step and the RolloutPolicy say.
func (t *deliberation) poolHolds(
	step quoinv1.UpgradeStep, places map[string]int, before string,
) (holds []quoinv1.UpgradeHold) {
	pool := t.pool(step.Object)
	if pool == nil {
		return nil // the control plane, or one that is gone
	}
	if pool.Paused {
		holds = append(holds, hold(quoinv1.UpgradeHoldPause, "%s has spec.paused", step.Object))
	}
	if pool.OnDelete {
		holds = append(holds, hold(quoinv1.UpgradeHoldOnDelete, "%s has strategy OnDelete: a Machine is replaced when "+
			"somebody deletes it", step.Object))
	}
	place, selected := places[step.Object]
	if !selected {
		return holds
	}
	pause, of := t.Policy.Spec.PauseAfter, "RolloutPolicy "+t.Policy.Name
	if len(t.Policy.Spec.Groups) > 0 {
		group := t.Policy.Spec.Groups[place]
		of = fmt.Sprintf("group %s of %s", group.Name, of)
		pause = cmp.Or(group.PauseAfter, pause)
		if t.suspended(place) {
			holds = append(holds, hold(quoinv1.UpgradeHoldPause, "%s is suspended", of))
		}
	}
	if before != "" {
		few := ""
		if t.atOnce() > 1 {
			few = fmt.Sprintf(", but for %d at once", t.atOnce())
		}
		holds = append(holds, hold(quoinv1.UpgradeHoldOrder, "%s: after what is outdated of %s%s", of, before, few))
	}
	after := map[quoinv1.RolloutPause]string{quoinv1.RolloutPauseCanary: "the first new Machine",
		quoinv1.RolloutPauseEachMachine: "each new Machine"}
	if which, pauses := after[pause]; pauses {
		holds = append(holds, hold(quoinv1.UpgradeHoldPause, "%s: after %s until spec.continueAfter names it", of, which))
	}
	return holds
}

// windowHolds says when Machines may be replaced, by the policy's own words: they stay the same while a window opens
// and closes.
func (t *deliberation) windowHolds() []quoinv1.UpgradeHold {
	var windows []string
	for i, window := range t.windows() {
		if i == mostWindows {
			windows = append(windows, fmt.Sprintf("and %d more", len(t.windows())-mostWindows))
			break
		}
		days := "every day"
		if len(window.Days) > 0 {
			var names []string
			for _, day := range window.Days {
				names = append(names, string(day))
			}
			days = strings.Join(names, ", ")
		}
		lasts := time.Duration(ptr.Deref(window.DurationMinutes, 0)) * time.Minute
		windows = append(windows, fmt.Sprintf("%s %s %s for %s", days, window.Start, cmp.Or(window.TimeZone, "UTC"),
			strings.TrimSuffix(lasts.String(), "0s")))
	}
	if len(windows) == 0 {
		return nil
	}
	return []quoinv1.UpgradeHold{hold(quoinv1.UpgradeHoldWindow, "RolloutPolicy %s has Machines replaced on %s",
		t.Policy.Name, strings.Join(windows, "; "))}
}
