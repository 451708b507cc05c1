// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Of is the RolloutPolicy that holds for a Cluster: the oldest, since two could only wait for each other. It is nil
// when there is none.
func Of(policies []quoinv1.RolloutPolicy, cluster string) *quoinv1.RolloutPolicy {
	var first *quoinv1.RolloutPolicy
	for i := range policies {
		p := &policies[i]
		if p.Spec.ClusterName == cluster && p.DeletionTimestamp.IsZero() && (first == nil || older(p, first)) {
			first = p
		}
	}
	return first
}

func older(a, b *quoinv1.RolloutPolicy) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// Leads reports whether a MachineDeployment is one that policies of the Cluster can select: its Machines are to be
// QuoinMachines, and it is not being deleted.
func Leads(cluster string, pool *clusterv1.MachineDeployment) bool {
	ref := pool.Spec.Template.Spec.InfrastructureRef
	return pool.Spec.ClusterName == cluster && pool.DeletionTimestamp.IsZero() && ref.Kind == "QuoinMachineTemplate" &&
		ref.APIGroup == infrav1.GroupVersion.Group
}

// Select is the place of the group that a MachineDeployment belongs to; -1 when the policy does not select it, and
// beside an error, which a selector that cannot be read is. All have place 0 where the policy has no groups.
func Select(policy *quoinv1.RolloutPolicySpec, name string, has map[string]string) (int, error) {
	if len(policy.Groups) == 0 {
		return 0, nil
	}
	for i, group := range policy.Groups {
		if slices.Contains(group.MachineDeployments.Names, name) {
			return i, nil
		}
		selector, err := metav1.LabelSelectorAsSelector(group.MachineDeployments.Labels)
		if err != nil {
			return -1, fmt.Errorf("group %s: machineDeployments.labels: %w", group.Name, err)
		}
		if selector.Matches(labels.Set(has)) {
			return i, nil
		}
	}
	return -1, nil
}

// StrategyOf is the strategy of the group at a place. What it does not set is the policy's, field by field as in kOps:
// a group that has more made at once keeps what the policy says of those that leave.
func StrategyOf(policy *quoinv1.RolloutPolicySpec, place int) *quoinv1.RolloutStrategy {
	common, own := ptr.Deref(policy.Strategy, quoinv1.RolloutStrategy{}), quoinv1.RolloutStrategy{}
	if len(policy.Groups) > 0 {
		own = ptr.Deref(policy.Groups[place].Strategy, own)
	}
	return &quoinv1.RolloutStrategy{
		RolloutVictims: quoinv1.RolloutVictims{MinAvailable: cmp.Or(own.MinAvailable, common.MinAvailable),
			Waves: cmp.Or(own.Waves, common.Waves)},
		MaxSurge: cmp.Or(own.MaxSurge, common.MaxSurge), MaxUnavailable: cmp.Or(own.MaxUnavailable, common.MaxUnavailable),
		DrainAndTerminate: cmp.Or(own.DrainAndTerminate, common.DrainAndTerminate),
	}
}

// rules are what holds for one pool.
type rules struct {
	Pool
	place int
	group string
	// atOnce is how many pools of the group are rolled out at once; 0 is as many as of all. It waits behind those.
	atOnce int
	behind []string
	// overtaken: others went past it, since a write of it was refused. It waits for none of them.
	overtaken bool
	// suspended says why nothing of the pool is begun; empty when it may be.
	suspended string
	pause     quoinv1.RolloutPause
	soak      time.Duration
	onFailure quoinv1.RolloutFailure
	limits    Limits
	// consents to one missing Machine where no host is free.
	consents bool
	// validation of the pool; nil when there is none.
	validation *quoinv1.RolloutValidation
	// pausedAfter is the Machine of the pool after which a person has to let it go on; empty when none has to.
	pausedAfter string
	leaving
	// drain is how Machines leave; nil when the policy does not say.
	drain *drainRules
	// failed says which Machine could not be drained, which stops the pool; empty when none is.
	failed string
	// overdue says that Cluster API makes none of its Machines for longer than one may take; empty when it does.
	overdue string
	// failing is the first Machine that counts and is not healthy any more, which stops the pool; nil when none is. It is
	// found once: each Machine in flight asks for it.
	failing *Machine
}

// conflict reports whether nothing may ever be replaced.
func (r *rules) conflict() bool { return r.contradiction() != "" }

// arrange the selected pools in their order: by group, and alphabetically within one (S3-7).
func arrange(pools []Pool, policy *quoinv1.RolloutPolicySpec) ([]rules, error) {
	var arranged []rules
	for _, pool := range pools {
		place, err := Select(policy, pool.Name, pool.Labels)
		if err != nil {
			return nil, err
		}
		if place < 0 {
			continue
		}
		r := rules{Pool: pool, place: place, pause: policy.PauseAfter, soak: seconds(policy.SoakSeconds),
			validation: policy.Validation, onFailure: policy.OnFailure,
			consents: policy.WhenNoSpare == quoinv1.RolloutWithoutSpareRemoveFirst}
		if pool.Paused {
			r.suspended = "the MachineDeployment is paused: resume it"
		}
		strategy, drain := StrategyOf(policy, place), policy.Drain
		if len(policy.Groups) > 0 {
			group := policy.Groups[place]
			r.group, r.atOnce = group.Name, int(ptr.Deref(group.Concurrency, 0))
			if ptr.Deref(group.Suspend, false) {
				r.suspended = fmt.Sprintf("group %s is suspended: take suspend off it", group.Name)
			}
			r.pause, r.onFailure = cmp.Or(group.PauseAfter, r.pause), cmp.Or(group.OnFailure, r.onFailure)
			drain, r.validation = cmp.Or(group.Drain, drain), cmp.Or(group.Validation, r.validation)
			if group.SoakSeconds != nil {
				r.soak = seconds(group.SoakSeconds)
			}
		}
		r.drain = drainOf(drain, strategy)
		if r.limits, err = effective(strategy, pool, max(1, min(r.present(), pool.Replicas))); err != nil {
			return nil, fmt.Errorf("MachineDeployment %s: %w", pool.Name, err)
		}
		if r.leaving, err = leavingBy(strategy, pool); err != nil {
			return nil, fmt.Errorf("MachineDeployment %s: %w", pool.Name, err)
		}
		r.Machines = slices.SortedFunc(slices.Values(pool.Machines), func(a, b Machine) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
		})
		for i := range r.Machines {
			if m := &r.Machines[i]; r.failing == nil && m.stage() == counts && m.Unhealthy != "" && m.NeedsUpdate == "" {
				r.failing = m
			}
		}
		arranged = append(arranged, r)
	}
	slices.SortFunc(arranged, func(a, b rules) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.Name, b.Name))
	})
	return arranged, nil
}

func seconds(of *int32) time.Duration { return time.Duration(ptr.Deref(of, 0)) * time.Second }

// present are the Machines that have a host or may claim one, those that leave included.
func (p Pool) present() int {
	n := 0
	for _, m := range p.Machines {
		if m.started() {
			n++
		}
	}
	return n
}

// in counts the Machines of a stage.
func (p Pool) in(s stage) int {
	n := 0
	for _, m := range p.Machines {
		if m.stage() == s {
			n++
		}
	}
	return n
}

// rolling reports whether Machines of the pool are to be replaced, or the last of them were and what takes their place
// does not count yet.
func (p Pool) rolling() bool {
	if p.ends() {
		return false // nothing takes their place
	}
	for _, m := range p.Machines {
		if m.Outdated || m.needsUpdate() {
			return true
		}
	}
	// Nobody knows what was completed of a pool that was seen first in the middle of a rollout.
	unknown := p.Completed == "" && p.DoneOf > 0 && p.in(counts) == 0
	return (p.Completed != "" || unknown) && p.Completed != p.Revision || p.selected() != ""
}

// ends reports whether no Machine is asked for, and those that are there leave.
func (p Pool) ends() bool { return p.Replicas == 0 && p.in(leaves) == len(p.Machines) }

// busy reports whether other pools wait for this one. Where nothing is to be replaced they do not for what finds no
// host.
func (p Pool) busy() bool {
	return p.rolling() || slices.ContainsFunc(p.Machines, func(m Machine) bool {
		return m.Gated && !m.Deleting && !m.findsNone()
	})
}

// hasOutdated reports whether Machines of the pool belong to another template, those that leave included.
func (p Pool) hasOutdated() bool {
	return slices.ContainsFunc(p.Machines, func(m Machine) bool { return m.Outdated })
}

// completed is the revision whose rollout is done as of now. What finds no host, and what waits behind it, is of a
// scale-up where as many count as were at work: those keep nothing open. Where no Machine is asked for and none counts,
// none has shown that the template works: its first ones are gated, and nobody waits for the pool.
func (p Pool) completed() string {
	if p.Replicas == 0 && p.in(counts) == 0 && p.Completed != p.Revision {
		if len(p.Machines) > 0 {
			return p.Completed
		}
		return ""
	}
	hostless := slices.ContainsFunc(p.Machines, Machine.findsNone)
	for _, m := range p.Machines {
		if s := m.stage(); m.Outdated || s == waits && !hostless || s == inFlight && !m.findsNone() {
			return p.Completed
		}
	}
	if p.Revision == "" || p.in(counts) < p.Replicas && (!hostless || !p.whole()) {
		return p.Completed
	}
	return p.Revision
}

// whole reports whether as many Machines count as were at work when the present template came, or when a person
// selected one.
func (p Pool) whole() bool { return p.in(counts) >= min(p.Replicas, cmp.Or(p.DoneOf, p.Replicas)) }

// doneOf is how many Machines have to count before the present template is done, or what takes the place of the given
// selected Machine, which leaves now: those that are at work as that begins, and what counted since or was waited for
// before. Where nothing is at work nobody was replaced: a pool that is made has all its replicas to make. They are all
// replicas too where it began before and nobody knows any more how many were at work then: those that are at work now
// are fewer.
func (p Pool) doneOf(selected string) int {
	switch {
	case p.Replicas == 0 && len(p.Machines) == 0:
		return 0
	case selected == "" && !p.hasOutdated() && (p.DoneOf == 0 || p.completed() == p.Revision):
		return 0
	case p.DoneOf > 0 && selected == p.Selected:
		return max(p.DoneOf, p.in(counts))
	case p.DoneOf == 0 && p.began(selected):
		return p.Replicas
	}
	n := 0
	for _, m := range p.Machines {
		if s := m.stage(); m.Hosted && (s != leaves || m.leavesReplaced()) {
			n++
		}
	}
	return max(p.DoneOf, min(n, p.Replicas))
}

// began reports whether Machines were replaced before this: by those of the present template that are there beside
// outdated ones, or one in the place of the given selected Machine.
func (p Pool) began(selected string) bool {
	current := func(m Machine) bool { return !m.Outdated && m.started() }
	return selected != "" && selected == p.Selected || p.hasOutdated() && slices.ContainsFunc(p.Machines, current)
}
