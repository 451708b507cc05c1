// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane/plan"
)

// sources are what is observed from; none of them can write.
func (r *Reconciler) sources() *observe.Sources {
	return &observe.Sources{Cache: observe.ReadOnly(r.Client), Live: observe.ReadOnly(r.APIReader),
		Secrets: observe.ReadOnly(r.secrets()), Workloads: workloads{r.ClusterCache}, Watch: r.watchWorkload,
		Hosts: r.Hosts, Etcd: r.etcd(), Clock: r.Clock, History: &r.history,
		Delays: observe.Delays{DeadMember: r.Timings.DeadMember, OrphanedMember: r.Timings.OrphanedMember,
			SkippedDrain: r.Timings.SkippedDrain, APIServerStop: r.Timings.APIServerStop}}
}

// workloads reads workload clusters over the connections that are kept to them.
type workloads struct{ clustercache.ClusterCache }

// GetUncachedReader implements observe.Workloads.
func (w workloads) GetUncachedReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	connected, err := w.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return observe.ReadOnly(connected), nil
}

// observe observes by caches, and live unless that is enough.
func (r *Reconciler) observe(ctx context.Context, p *reconciliation) error {
	enough, err := r.observeCached(ctx, p)
	if err != nil || enough {
		return err
	}
	return r.observeLive(ctx, p)
}

// observeCached observes by what the cache shows of Machines, and reports whether that is enough: nothing is to be
// done. Most observations end so, and cost no request to the management cluster. To act by a cache that lags would make
// a Machine twice, or delete a second one.
func (r *Reconciler) observeCached(ctx context.Context, p *reconciliation) (bool, error) {
	p.cached = true
	lists, err := r.list(ctx, p)
	if err != nil {
		return false, err
	}
	if len(lists.Machines.Unowned) > 0 {
		// Without them the control plane would seem to lack Machines.
		return false, nil
	}
	if err := r.read(ctx, p, lists); err != nil {
		return false, err
	}
	o := p.observation
	if o.Workload.CacheFailed() {
		return false, nil
	}
	for _, machine := range o.Machines {
		if r.writes.Behind(machine) {
			return false, nil
		}
	}
	return len(o.Leftovers) == 0 && p.configErr == nil && r.propagated(&o.Inventory) &&
		plan.Assess(o.State).Step.Waiting(), nil
}

// observeLive observes what a step may rest on, after a cached observation that found something to do. Where that
// holds, only the workload cluster is read again.
func (r *Reconciler) observeLive(ctx context.Context, p *reconciliation) error {
	before := p.observation
	p.cached, p.observation = false, nil
	lists, err := r.list(ctx, p)
	if err != nil {
		return err
	}
	if before == nil || !before.Holds(p.machines, r.Clock.Now()) {
		return r.read(ctx, p, lists)
	}
	p.observed(r.sources().Again(ctx, before, lists))
	return nil
}

// list lists what an inventory is made of, and adopts Machines.
func (r *Reconciler) list(ctx context.Context, p *reconciliation) (*observe.Lists, error) {
	// Again, when they were read for the certificates.
	p.machines = nil
	lists, err := r.sources().List(ctx, p.subject, p.cached)
	if err != nil {
		return nil, err
	}
	p.machines, err = r.adopt(ctx, p.subject.ControlPlane, lists.Machines, p.cached)
	return lists, err
}

// read reads what the Machines run. The KubeadmConfigs that Machines lack are made on the way of a cached observation.
func (r *Reconciler) read(ctx context.Context, p *reconciliation, lists *observe.Lists) error {
	inventory, err := r.sources().Inventory(ctx, lists, p.machines)
	if err != nil {
		return err
	}
	p.observation = &observe.Observation{Inventory: *inventory}
	early := p.cached && inventory.Initialized()
	if early {
		// Before anything remote is read: Cluster API waits for it, and to make what has a name once the cache is enough.
		p.configErr = r.complete(ctx, inventory)
	}
	o, err := r.sources().Observe(ctx, inventory)
	if err != nil {
		return err
	}
	p.observed(o)
	if p.cached && !early {
		// Only now it is known whether kubeadm init has run.
		p.configErr = r.complete(ctx, &o.Inventory)
	}
	return nil
}
