// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment/mdutil"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// observation is what was read for one decision.
type observation struct {
	state rollout.State
	// machines by name.
	machines map[string]*clusterv1.Machine
	// pools as the cache has them, and the failure domains of hosts by QuoinMachine.
	pools   map[string]*clusterv1.MachineDeployment
	domains map[string]string
	// behind: the cache does not know the MachineSet of a Machine yet, about which nothing is decided.
	behind bool
	// unseen: nobody knows whether a Machine works whose template is to be set back.
	unseen bool
	// guarded Machines are of pools whose policy says how they leave; free ones carry hooks all the same.
	guarded map[string]bool
	free    []*clusterv1.Machine
	// hooked: there are Machines of the first kind.
	hooked bool
	// sets are MachineSets by name.
	sets map[string]*clusterv1.MachineSet
}

// observe reads what a decision rests on; Machines, which alone are changed, through the given reader.
func (r *Reconciler) observe(
	ctx context.Context, machines client.Reader, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster,
) (*observation, error) {
	seen := &observation{machines: map[string]*clusterv1.Machine{}, guarded: map[string]bool{},
		sets: map[string]*clusterv1.MachineSet{}, pools: map[string]*clusterv1.MachineDeployment{}}
	seen.state.Validation, seen.state.Resumed = validationOf(policy, r.Clock.Now()), resumedAt(policy, r.Clock.Now())
	seen.state.Namespace = cluster.Namespace
	seen.state.Unhealthy = lacks(cluster, clusterv1.ClusterControlPlaneAvailableCondition)
	seen.state.Outdated = lacks(cluster, clusterv1.ClusterControlPlaneMachinesUpToDateCondition)
	pools, sets, all := &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}, &clusterv1.MachineList{}
	hosted := &infrav1.QuoinMachineList{}
	in, of := client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}
	asIs := client.UnsafeDisableDeepCopy // nothing but Machines is changed
	for _, list := range []struct {
		reader client.Reader
		of     client.ObjectList
		by     []client.ListOption
	}{
		{r.Client, pools, []client.ListOption{in, asIs}}, {r.Client, sets, []client.ListOption{in, of, asIs}},
		{r.Client, hosted, []client.ListOption{in, of, asIs}}, {machines, all, []client.ListOption{in, of}},
	} {
		if err := list.reader.List(ctx, list.of, list.by...); err != nil {
			return nil, fmt.Errorf("list the workers of Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
		}
	}
	seen.state.Topology = rollout.TopologyOf(cluster, pools.Items)
	seen.domains = domainsOf(hosted.Items)
	hosts := map[string]host{}
	for i := range hosted.Items {
		hosts[hosted.Items[i].Name] = hostOf(&hosted.Items[i])
	}
	nodes := r.markedNodes(ctx, cluster)
	judge, runs, err := r.judgeStarts(ctx, cluster, all.Items)
	if err != nil {
		return nil, err
	}
	spares, err := r.spares(ctx, machines, cluster, hosted.Items)
	if err != nil {
		return nil, err
	}
	for i := range pools.Items {
		if pool := &pools.Items[i]; rollout.Leads(cluster.Name, pool) {
			seen.pools[pool.Name] = pool
			seen.pool(pool, sets.Items, all.Items, hosts, formerOf(policy, pool.Name), metav1.NewTime(r.Clock.Now()))
			added := &seen.state.Pools[len(seen.state.Pools)-1]
			added.Unsupported = judge(pool)
			added.Skewed, err = skewed(ctx, r.APIReader, cluster, pool, seen.sets[added.Revision], runs)
			if err != nil {
				return nil, err
			}
			spares.of(added, seen.machines)
			selectMarked(added, seen.machines, sets.Items, nodes)
		}
	}
	spares.contest(seen.state.Pools, seen.machines)
	if err := r.wanted(ctx, machines, cluster, seen, spares, all.Items); err != nil {
		return nil, err
	}
	seen.guard(&policy.Spec, all.Items)
	err = r.succession(ctx, machines, seen, spares, all.Items)
	r.unstep(seen)
	return seen, err
}

// unstep leaves out of how long a template is tried, and Machines have been leaving, by how much the clock was set
// forward meanwhile: in that time no host was made a Node, nobody evicted a pod, and no replacement came.
func (r *Reconciler) unstep(seen *observation) {
	for i := range seen.state.Pools {
		pool := &seen.state.Pools[i]
		pool.Trial.Since = steady.Shift(r.Clock, pool.Trial.Since)
		for i := range pool.Machines {
			m := &pool.Machines[i]
			if !m.Deleting {
				continue
			}
			for _, at := range []*time.Time{&m.Deleted, &m.Leave.Held, &m.Leave.Began, &m.Leave.Passed} {
				*at = steady.Shift(r.Clock, *at)
			}
		}
	}
}

// judgeStarts returns what says why no Machine of a pool would start, by the API servers, whose versions it returns,
// and the kube-proxy that run, as its QuoinMachine would: what is deleted for it would be missed until then. What a
// distribution asks of pools their Machines alone ask.
func (r *Reconciler) judgeStarts(
	ctx context.Context, cluster *clusterv1.Cluster, machines []clusterv1.Machine,
) (judge func(*clusterv1.MachineDeployment) string, runs []string, err error) {
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		why := err.Error() + "; correct the annotation"
		return func(*clusterv1.MachineDeployment) string { return why }, nil, nil //nolint:nilerr // a person's to correct
	}
	policies, _ = skew.Split(policies)
	var members []clusterv1.Machine
	for i := range machines {
		if _, is := machines[i].Labels[clusterv1.MachineControlPlaneLabel]; is {
			members = append(members, machines[i])
		}
	}
	world, _, err := observed.WithHosted(ctx, r.APIReader, cluster, skew.WorldOf(members))
	if err == nil {
		world, err = observed.WithProxy(ctx, r.APIReader, r.ClusterCache, cluster, policies, world)
	}
	return func(of *clusterv1.MachineDeployment) string {
		version := of.Spec.Template.Spec.Version
		if _, err := skew.Parse(version); err != nil {
			return "" // nothing is judged of a version that is none
		}
		pool := skew.Pool{Object: "MachineDeployment " + of.Name, Version: version}
		return skew.Summary(slices.Concat(pool.Judge(policies, world)))
	}, world.APIServers, err
}

// lacks says what a condition of the Cluster complains about; empty when it is not False.
func lacks(cluster *clusterv1.Cluster, condition string) string {
	if c := conditions.Get(cluster, condition); c != nil && c.Status == metav1.ConditionFalse {
		if c.Message == "" {
			return fmt.Sprintf("%s is False (%s)", condition, c.Reason)
		}
		return c.Message
	}
	return ""
}

// pool adds a MachineDeployment and its Machines.
func (seen *observation) pool(
	of *clusterv1.MachineDeployment, sets []clusterv1.MachineSet, machines []clusterv1.Machine, hosts map[string]host,
	former quoinv1.RolloutProgress, now metav1.Time,
) {
	former = resumed(former, now.Time)
	pool := rollout.Pool{Name: of.Name, Labels: of.Labels, Replicas: int(ptr.Deref(of.Spec.Replicas, 1)),
		Completed: former.Completed, Selected: former.Selected, DoneOf: int(ptr.Deref(former.DoneOf, 0)),
		LastTermination: former.LastTermination.Time, Drains: paceOf(former.RecentDrainSeconds),
		Pace: paceOf(former.RecentMachineSeconds), Trial: trialOf(former), Proofs: proofsOf(former),
		Refused:  former.Reason == quoinv1.WriteRefusedReason,
		Said:     rollout.Reason(former.Reason),
		Since:    former.Since.Time,
		Paused:   ptr.Deref(of.Spec.Paused, false) || annotations.HasPaused(of),
		OnDelete: of.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType}
	if of.Spec.Replicas != nil && !pool.OnDelete {
		pool.Stock = rollout.Limits{Surge: int(mdutil.MaxSurge(*of)), Unavailable: int(mdutil.MaxUnavailable(*of))}
	}
	var own []*clusterv1.MachineSet
	names := map[string]bool{}
	for i := range sets {
		if metav1.IsControlledBy(&sets[i], of) {
			own, names[sets[i].Name], seen.sets[sets[i].Name] = append(own, &sets[i]), true, &sets[i]
		}
	}
	pool.Blocked = blocked(of, clusterv1.MachineDeploymentScalingUpCondition)
	if current, _, _, _ := mdutil.FindNewAndOldMachineSets(of, own, now); current != nil {
		pool.Revision = current.Name
		pool.Blocked = cmp.Or(pool.Blocked, blocked(current, clusterv1.MachineSetScalingUpCondition))
	}
	for i := range machines {
		machine := &machines[i]
		if machine.Labels[clusterv1.MachineDeploymentNameLabel] != of.Name {
			continue
		}
		owner := metav1.GetControllerOf(machine)
		if owner == nil || !names[owner.Name] {
			// Its MachineSet was deleted with it, or has not come here yet.
			seen.behind = seen.behind || owner != nil && machine.DeletionTimestamp.IsZero()
			continue
		}
		lacks, since := health(machine)
		host := hosts[machine.Spec.InfrastructureRef.Name]
		seen.machines[machine.Name] = machine
		pool.Machines = append(pool.Machines, rollout.Machine{
			Name: machine.Name, Created: machine.CreationTimestamp.Time, Outdated: owner.Name != pool.Revision,
			Deleting: !machine.DeletionTimestamp.IsZero(), Hosted: host.claimed, Host: host.name, HostFailed: host.failed,
			Admitted: rollout.AdmittedAt(machine), Resumed: resumedAt(machine, now.Time), Gated: rollout.Gated(machine),
			Joined:    machine.Status.NodeRef.IsDefined(),
			Available: conditions.IsTrue(machine, clusterv1.MachineAvailableCondition), AvailableAt: availableAt(machine),
			Unhealthy: lacks, Since: since, Departure: departure(machine, own, seen.domains),
			Leave: rollout.LeaveOf(machine),
		})
	}
	seen.state.Pools = append(seen.state.Pools, pool)
}

// availableAt is when minReadySeconds of a Machine are over, until which Cluster API deletes no other one for it
// (setAvailableCondition in core/reconcilers/machine/machine_controller_status.go); zero while it is not Ready.
func availableAt(machine *clusterv1.Machine) time.Time {
	if !conditions.IsTrue(machine, clusterv1.MachineReadyCondition) {
		return time.Time{}
	}
	ready := conditions.Get(machine, clusterv1.MachineReadyCondition).LastTransitionTime
	return ready.Add(time.Duration(ptr.Deref(machine.Spec.MinReadySeconds, 0)) * time.Second)
}

// blocked is what Cluster API says keeps it from making Machines; empty when it says nothing. It does so in the message
// of the condition about scaling up alone, be that True or not (core/reconcilers/machineset/
// machineset_controller_status.go, core/reconcilers/machinedeployment/machinedeployment_status.go).
func blocked(of conditions.Getter, condition string) string {
	scaling := conditions.Get(of, condition)
	if scaling == nil || !strings.Contains(scaling.Message, " blocked because") {
		return ""
	}
	return text.Shorten(strings.Join(strings.Fields(scaling.Message), " "), mostResult)
}

// host of a QuoinMachine: whether it claimed one, which one as namespace/name where that is known, and why that does
// not become a Node where another one may.
type host struct {
	claimed      bool
	name, failed string
}

func hostOf(machine *infrav1.QuoinMachine) host {
	of := host{claimed: machine.Spec.ProviderID != ""}
	if namespace, name, _, err := infrav1.ParseProviderID(machine.Spec.ProviderID); err == nil {
		of.name = namespace + "/" + name
	}
	provisioned := conditions.Get(machine, infrav1.MachineHostProvisionedCondition)
	if of.claimed && provisioned != nil && provisioned.Status == metav1.ConditionFalse &&
		placement.HostFails(provisioned.Reason) {
		of.failed = text.Shorten(provisioned.Reason+": "+provisioned.Message, mostResult)
	}
	return of
}

// health says what a Machine lacks to be Ready but for our gate, and since when it lacks that, or nothing. It asks for
// what setReadyCondition in core/reconcilers/machine/machine_controller_status.go asks for.
func health(machine *clusterv1.Machine) (lacks string, since time.Time) {
	type need struct {
		condition string
		want      metav1.ConditionStatus
		optional  bool
	}
	needs := []need{
		{condition: clusterv1.MachineBootstrapConfigReadyCondition, want: metav1.ConditionTrue},
		{condition: clusterv1.MachineInfrastructureReadyCondition, want: metav1.ConditionTrue},
		{condition: clusterv1.MachineNodeHealthyCondition, want: metav1.ConditionTrue},
		{condition: clusterv1.MachineHealthCheckSucceededCondition, want: metav1.ConditionTrue, optional: true},
		{condition: clusterv1.MachineUpdatingCondition, want: metav1.ConditionFalse, optional: true},
	}
	for _, gate := range machine.Spec.ReadinessGates {
		if gate.ConditionType == quoinv1.MachineRolloutValidatedCondition {
			continue
		}
		want := metav1.ConditionTrue
		if gate.Polarity == clusterv1.NegativePolarityCondition {
			want = metav1.ConditionFalse
		}
		needs = append(needs, need{condition: gate.ConditionType, want: want})
	}
	for _, need := range needs {
		c := conditions.Get(machine, need.condition)
		switch {
		case c == nil && need.optional:
		case c == nil:
			return need.condition + " is not known yet", time.Time{}
		case c.Status != need.want:
			return fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason), c.LastTransitionTime.Time
		case c.LastTransitionTime.After(since):
			since = c.LastTransitionTime.Time
		}
	}
	return "", since
}
