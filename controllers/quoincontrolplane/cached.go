// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane/plan"
)

// observeCached observes by what the cache shows of Machines, and reports whether that is enough: nothing is to be
// done. Most observations end so, and cost no request to the management cluster. To act by a cache that lags would make
// a Machine twice, or delete a second one.
func (r *Reconciler) observeCached(ctx context.Context, s *scope) (bool, error) {
	s.cached = true
	if err := r.observe(ctx, s); err != nil {
		return false, err
	}
	if s.workload.cacheFailed() {
		return false, nil
	}
	for _, machine := range s.machines {
		if r.writes.Behind(machine) {
			return false, nil
		}
	}
	return len(s.remains) == 0 && s.configErr == nil && r.propagated(s) && plan.Assess(s.snapshot).Step.Waiting(), nil
}

// etcdFreshness is how old a reading of etcd may be that a second look rests on.
const etcdFreshness = 2 * time.Second

// observeLive observes what a step may rest on, after a cached observation that found something to do. Where the API
// server has the very Machines that the cache showed, they did not change from before etcd was read until after it, so
// a second reading would rest on the same ones: only the workload cluster is read again. Of etcd without a quorum, or
// that was not read just now, nothing is taken from the cached one.
func (r *Reconciler) observeLive(ctx context.Context, s *scope) error {
	fresh := s.anew()
	if err := r.gather(ctx, fresh); err != nil {
		*s = *fresh
		return err
	}
	if desired.StackedEtcd(s.plane) && !s.members.fresh(s.clock.Now()) || s.awaitsNodes() ||
		!sameMachines(s.machines, fresh.machines) {
		*s = *fresh
		return r.study(ctx, s)
	}
	s.cached, s.workload = false, workload{}
	s.snapshot = controlplane.State{Spare: s.snapshot.Spare, Workers: s.snapshot.Workers,
		LeftBehind: fresh.snapshot.LeftBehind}
	if s.plane.DeletionTimestamp.IsZero() {
		r.readWorkload(ctx, s)
	}
	r.conclude(s)
	return nil
}

// fresh tells that a quorum agreed to what was read a moment ago.
func (m *membership) fresh(now time.Time) bool {
	return m.err == nil && m.cluster.Agreed && now.Sub(m.readAt) < etcdFreshness
}

// sameMachines tells that two readings show the same Machines in the same state. A stand-in is in no state.
func sameMachines(a, b collections.Machines) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a.UnsortedList(), func(machine *clusterv1.Machine) bool {
		other := b[machine.Name]
		return other == nil || machine.ResourceVersion == "" || other.UID != machine.UID ||
			other.ResourceVersion != machine.ResourceVersion
	})
}

// anew is the scope before anything was observed.
func (s *scope) anew() *scope {
	return &scope{cluster: s.cluster, plane: s.plane, clock: s.clock, template: s.template,
		templateProblem: s.templateProblem,
		certificates:    s.certificates, configErr: s.configErr}
}
