// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/paused"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// The time of a pause counts for nothing. What the status of a policy remembers is moved by it, so that what was left
// is left. The times of other objects nobody can move: what is counted from them has its time anew, from when the
// object itself says that it goes on.

// pausedFor is how long a MachineDeployment was paused that goes on now; 0 where it was not.
func pausedFor(former quoinv1.RolloutProgress, now time.Time) time.Duration {
	if former.Reason != quoinv1.PausedReason {
		return 0
	}
	return max(0, now.Sub(former.Since.Time)).Truncate(time.Second)
}

// resumed is what the status says of a MachineDeployment without a pause that is over: the deadlines of its template
// and of its Machines end so much later, since nobody looks at them meanwhile, nor does Cluster API where it is the
// Cluster that is paused. Its reason is that of before, which says whether it was begun, and is given from now on. So
// is that of before it was suspended.
func resumed(former quoinv1.RolloutProgress, now time.Time) quoinv1.RolloutProgress {
	long := pausedFor(former, now)
	switch former.Reason {
	case quoinv1.PausedReason, string(rollout.Suspended):
	default:
		return former
	}
	former.Reason, former.ReasonBeforePause, former.Since = former.ReasonBeforePause, "", metav1.NewTime(now)
	former.Trial.Since = later(former.Trial.Since, long)
	former.Proved = slices.Clone(former.Proved)
	for i := range former.Proved {
		former.Proved[i].Lost = later(former.Proved[i].Lost, long)
	}
	return former
}

// validationOf is what looks found so far. The time in which the Cluster has to validate ends later by a pause that is
// over, in which none was made.
func validationOf(policy *quoinv1.RolloutPolicy, now time.Time) *quoinv1.RolloutValidationStatus {
	record := policy.Status.Validation
	if record == nil {
		return nil
	}
	long := pausedFor(formerOf(policy, record.MachineDeployment), now)
	if long == 0 {
		return record
	}
	record = record.DeepCopy()
	if record.Since = later(record.Since, long); record.Since.After(now) {
		record.Since = metav1.NewTime(now).Rfc3339Copy() // it is later already, and the rest of the status is not written
	}
	return record
}

// later by so much is a time; zero stays zero.
func later(at metav1.Time, by time.Duration) metav1.Time {
	if at.IsZero() {
		return at
	}
	return metav1.NewTime(at.Add(by))
}

// resumedAt is since when an object goes on after a pause of it or of its Cluster: a Machine with Cluster API, a policy
// here. That is now while the pause is not over, and zero where there was none. What was made a moment ago is said not
// to be paused as of then, and was not. A Machine that a person paused by itself is late like any other.
func resumedAt(object paused.ConditionSetter, now time.Time) time.Time {
	switch c := conditions.Get(object, clusterv1.PausedCondition); {
	case c == nil, annotations.HasPaused(object):
		return time.Time{}
	case c.Status == metav1.ConditionTrue:
		return now
	case c.LastTransitionTime.Sub(object.GetCreationTimestamp().Time) < time.Minute:
		return time.Time{}
	default:
		return c.LastTransitionTime.Time
	}
}
