// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
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

func paceOf(former quoinv1.RolloutProgress) rollout.Pace {
	var pace rollout.Pace
	for _, took := range former.RecentMachineSeconds {
		pace = append(pace, time.Duration(took)*time.Second)
	}
	return pace
}

func paceShown(p rollout.Progress) quoinv1.RolloutPace {
	if len(p.Pace) == 0 {
		return quoinv1.RolloutPace{}
	}
	shown := quoinv1.RolloutPace{LastMachineSeconds: ptr.To(inSeconds(p.Pace.Last())),
		MedianMachineSeconds: ptr.To(inSeconds(p.Pace.Median()))}
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
