// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"

	"github.com/Masterminds/semver/v3"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// topologyLag is how many minors Cluster API lets workers of a managed topology fall behind, whatever a policy says
// (exp/topology/desiredstate/upgrade_plan.go, DefaultAndValidateUpgradePlans).
const topologyLag = 3

// OfTopology is what Cluster API makes of a new spec.topology.version: nobody can give it another order, so the plan is
// simulated, and refused when a policy does not allow some step of it. Its RefusedError names the versions to set
// instead, one after another, where that helps.
//
// Cluster API (1.14, exp/topology/desiredstate) takes the last version of each minor that spec.kubernetesVersions of
// the ClusterClass lists, which r.Known is here, and goes one minor at most where it lists none. It raises all pools,
// whether they could stay or not: when the oldest is topologyLag minors behind a control plane that has further to go,
// and at the end. A ClusterClass with an upgrade extension has its own order, which is not simulated.
func OfTopology(r Request) (Plan, error) {
	d, err := ofTopology(r)
	switch {
	case err == nil:
		return d.plan, nil
	case d != nil:
		err = r.instead(d.plan, err)
	}
	return Plan{}, err
}

// ofTopology is a draft that got to the target; beside an error it is one whose hops may help, or nil.
func ofTopology(r Request) (*draft, error) {
	r.Listed = "spec.kubernetesVersions of the ClusterClass"
	d, target, err := begin(r)
	if err != nil {
		return nil, err
	}
	if d.plan.Hops, err = r.hops(d.servers(), target); err != nil {
		return nil, err
	}
	if d.plan.AnyPatch && target.Minor() > d.newest().Minor()+1 {
		rules := r.stepRules()
		return d, refuse(rules[0], "Cluster API goes from %s to %s only when spec.kubernetesVersions of the "+
			"ClusterClass lists a version of each minor between (%s)", text(d.newest()), text(target),
			skew.Numbers(rules))
	}
	if err := r.oneTool(d.servers()[0], d.plan); err != nil {
		return nil, err
	}
	d.advise(r.Known, target)
	// Cluster API raises pools before add-ons follow, but none for a control plane that goes on.
	if err := d.addonsFirst(len(d.plan.Hops) == 0); err != nil {
		return nil, err
	}
	for _, hop := range d.plan.Hops {
		if oldest := d.oldestWorker(); oldest != nil && oldest.Minor()+topologyLag <= d.newest().Minor() {
			if to := parsed([]string{hop})[0]; to.Minor() > d.newest().Minor() {
				d.liftAll(text(d.newest()), "Cluster API lets workers fall three minors behind")
			}
		}
		if err := d.raise(hop); err != nil {
			return d, err
		}
	}
	d.liftAll(text(target), "workers follow the control plane")
	return d, nil
}

// instead adds to a refusal what to set one after another, when each is legal then, or else what to raise before the
// first. A single hop is the target, which is refused again.
func (r Request) instead(p Plan, refusal error) error {
	var refused *RefusedError
	if !errors.As(refusal, &refused) {
		return refusal
	}
	if r.oneByOne(p.Hops) {
		refused.Hops = p.Hops
		refused.message += ": go to " + p.Route()
		return refused
	}
	refused.message += r.State.Onward(r.Policies, p.Hops[0])
	return refused
}

// oneByOne reports whether Cluster API gets to each of the versions when they are set one after another.
func (r Request) oneByOne(hops []string) bool {
	for _, r.Target = range hops {
		d, err := ofTopology(r)
		if err != nil {
			return false
		}
		r.State = d.state
	}
	return true
}

// oldestWorker is the version of the oldest kubelet of a pool; nil without workers.
func (d *draft) oldestWorker() *semver.Version {
	var versions []string
	for _, pool := range d.state.Pools {
		versions = append(versions, pool.Versions...)
	}
	if workers := parsed(versions); len(workers) > 0 {
		return workers[0]
	}
	return nil
}

// liftAll raises every pool that has another version.
func (d *draft) liftAll(to, why string) {
	for i, pool := range d.state.Pools {
		if from := written(parsed(pool.Versions)); len(from) > 1 || len(from) == 1 && from[0] != to {
			d.lift(i, to, "R10", why)
		}
	}
}
