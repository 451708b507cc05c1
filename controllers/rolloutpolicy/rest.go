// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// restEach is how long a Cluster is left alone for each of its workers. Each reconcile reads them all and each worker
	// has its events, so that without a rest the cost of one would grow with their number.
	restEach = 2 * time.Millisecond
	// mostRest is what Cluster API keeps apart two reconciles of one object by.
	mostRest = time.Second
)

// rest is until when Clusters are left alone: what their Machines tell meanwhile is looked at together. Safe for
// concurrent use; nil lets them have none.
type rest struct{ until sync.Map }

// begin the rest of a Cluster with so many workers.
func (r *rest) begin(of client.ObjectKey, workers int, now time.Time) {
	if r != nil {
		r.until.Store(of, now.Add(min(time.Duration(workers)*restEach, mostRest)))
	}
}

// left is how much there is of it.
func (r *rest) left(of client.ObjectKey, now time.Time) time.Duration {
	if r == nil {
		return 0
	}
	until, _ := r.until.Load(of)
	end, _ := until.(time.Time)
	if !now.Before(end) {
		r.until.Delete(of)
		return 0
	}
	return end.Sub(now)
}
