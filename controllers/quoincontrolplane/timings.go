// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// Timings are how soon the controller rechecks, and for how long it waits.
type Timings struct {
	// Recheck is the time of each pace.
	Recheck map[controlplane.Recheck]time.Duration
	// Words lies between two changes of an object that are nothing but messages.
	Words time.Duration
	// DeadMember is how long an etcd voter must be silent until it counts as dead.
	DeadMember time.Duration
	// OrphanedMember is how long an etcd voter without a Machine must be silent until it is removed.
	OrphanedMember time.Duration
	// SkippedDrain is for how long a drain must look skipped until that is believed.
	SkippedDrain time.Duration
	// APIServerStop is how long a host may take to end its API server until the etcd member goes all the same.
	APIServerStop time.Duration
}

// longestRetry is how long after a reconcile that failed the next one comes at the latest. What somebody refuses may be
// refused for days, and meanwhile the silence of members is counted: a few reconciles fit into the longest gap that a
// count survives.
const longestRetry = history.LongestGap / 5

// retries space the reconciles of a control plane that fail. Those of controller-runtime come to lie a quarter of an
// hour apart.
func retries() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, longestRetry)
}

// DefaultTimings are those of real hosts.
func DefaultTimings() Timings {
	return Timings{
		Recheck: map[controlplane.Recheck]time.Duration{
			controlplane.RecheckSoon:   10 * time.Millisecond,
			controlplane.RecheckStep:   time.Second,
			controlplane.RecheckDrain:  time.Second,
			controlplane.RecheckMember: 2 * time.Second,
			controlplane.RecheckBusy:   10 * time.Second,
			controlplane.RecheckIdle:   time.Minute,
		},
		Words: time.Second,
		// Longer than a restart of etcd with a usual database takes, and several readings.
		DeadMember: 30 * time.Second,
		// As long as a member whose host is known may take to be back: a host starts for minutes.
		OrphanedMember: 10 * time.Minute,
		// Cluster API writes in one request where a drain has come to, and in the next one what it did there.
		SkippedDrain: time.Second,
		// An API server that finishes its requests takes ten seconds, one that the kubelet has to kill half a minute.
		APIServerStop: 2 * time.Minute,
	}
}
