// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// formerOf is what the status says of a MachineDeployment; it is empty when that is new.
func formerOf(policy *quoinv1.RolloutPolicy, name string) quoinv1.RolloutProgress {
	for _, progress := range policy.Status.MachineDeployments {
		if progress.Name == name {
			return progress
		}
	}
	return quoinv1.RolloutProgress{}
}

func paceOf(recent []int32) rollout.Pace {
	var pace rollout.Pace
	for _, took := range recent {
		pace = append(pace, time.Duration(took)*time.Second)
	}
	return pace
}

func paceShown(p rollout.Progress) quoinv1.RolloutPace {
	shown := quoinv1.RolloutPace{}
	for _, took := range p.Drains {
		shown.RecentDrainSeconds = append(shown.RecentDrainSeconds, inSeconds(took))
	}
	if len(p.Pace) == 0 {
		return shown
	}
	shown.LastMachineSeconds, shown.MedianMachineSeconds = ptr.To(inSeconds(p.Pace.Last())),
		ptr.To(inSeconds(p.Pace.Median()))
	for _, took := range p.Pace {
		shown.RecentMachineSeconds = append(shown.RecentMachineSeconds, inSeconds(took))
	}
	return shown
}

// inSeconds is a duration as the status has it: at most a year, as no Machine takes longer.
func inSeconds(d time.Duration) int32 { return int32(min(d, 365*24*time.Hour) / time.Second) }

// expect shows when MachineDeployments and all of them will be done.
func expect(former *quoinv1.RolloutPolicy, status *quoinv1.RolloutPolicyStatus, plan rollout.Result, now time.Time) {
	shown := func(said *metav1.Time, end time.Time) *metav1.Time {
		steady := rollout.Steady(ptr.Deref(said, metav1.Time{}).Time, end, now)
		if steady.IsZero() {
			return nil
		}
		return ptr.To(metav1.NewTime(steady))
	}
	ends, all := plan.Expect(now)
	status.ExpectedEnd = shown(former.Status.ExpectedEnd, all)
	for i := range status.MachineDeployments {
		of := &status.MachineDeployments[i]
		of.ExpectedEnd = shown(formerOf(former, of.Name).ExpectedEnd, ends[of.Name])
	}
}

// totals of the Machines of some MachineDeployments.
type totals struct{ total, done, inFlight, held int }

func (t *totals) add(p rollout.Progress) {
	t.total += p.Outdated + p.InFlight + p.Done
	t.done += p.Done
	t.inFlight += p.InFlight
	t.held += p.Held
}

func (t *totals) shown() *quoinv1.RolloutTotals {
	return &quoinv1.RolloutTotals{Total: number(t.total), Done: number(t.done), InFlight: number(t.inFlight),
		Held: number(t.held)}
}

// groupsOf are the groups of a policy with their totals, in its order; none where it has no groups.
func groupsOf(plan rollout.Result) []quoinv1.RolloutGroupProgress {
	of, names := map[string]*totals{}, []string{}
	for _, p := range plan.Progress {
		if p.Group == "" {
			continue
		}
		if of[p.Group] == nil {
			of[p.Group], names = &totals{}, append(names, p.Group)
		}
		of[p.Group].add(p)
	}
	var groups []quoinv1.RolloutGroupProgress
	for _, name := range names {
		groups = append(groups, quoinv1.RolloutGroupProgress{Name: name, RolloutTotals: *of[name].shown()})
	}
	return groups
}

// linesOf say how far groups are.
func linesOf(groups []quoinv1.RolloutGroupProgress) []string {
	var lines []string
	for _, g := range groups {
		lines = append(lines, fmt.Sprintf("group %s: %d of %d done, %d in flight, %d held", g.Name, *g.Done, *g.Total,
			*g.InFlight, *g.Held))
	}
	return lines
}
