// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldowner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// observation is what was read for one decision.
type observation struct {
	world   upgrade.World
	cluster *clusterv1.Cluster
	// objects whose versions may be set, as the world names them.
	objects map[string]client.Object
	// machines of the Cluster.
	machines []clusterv1.Machine
}

// observe reads what a decision rests on. Through the API server it also finds who owns the versions, which the cache
// does not keep.
func (r *Reconciler) observe(
	ctx context.Context, reader client.Reader, of *quoinv1.ClusterUpgrade,
) (*observation, error) {
	seen := &observation{objects: map[string]client.Object{}}
	key, cluster := client.ObjectKey{Namespace: of.Namespace, Name: of.Spec.ClusterName}, &clusterv1.Cluster{}
	switch err := reader.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		return seen, nil
	case err != nil:
		return nil, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	seen.cluster, seen.world.Steps = cluster, steady.StepsOf(r.Clock)
	for _, look := range []func(context.Context, client.Reader, *observation) error{
		r.lookAtCluster, r.lookAtInfrastructure, r.lookAtControlPlane, lookAtPools,
	} {
		if err := look(ctx, reader, seen); err != nil {
			return nil, err
		}
	}
	if err := seen.lookAtUpgrades(ctx, reader, of); err != nil {
		return nil, err
	}
	var err error
	if seen.world.Policy, err = r.policy(ctx, reader, of); err != nil {
		return nil, err
	}
	return seen, r.lookAtSpares(ctx, seen, of)
}

// policy is the RolloutPolicy that holds for the Cluster: pools are raised in its order.
func (r *Reconciler) policy(
	ctx context.Context, reader client.Reader, of *quoinv1.ClusterUpgrade,
) (*quoinv1.RolloutPolicy, error) {
	policies := &quoinv1.RolloutPolicyList{}
	if err := reader.List(ctx, policies, client.InNamespace(of.Namespace)); err != nil {
		return nil, fmt.Errorf("list the RolloutPolicies: %w", err)
	}
	return rollout.Of(policies.Items, of.Spec.ClusterName), nil
}

func (r *Reconciler) lookAtCluster(ctx context.Context, _ client.Reader, seen *observation) error {
	cluster := seen.cluster
	found := &upgrade.Cluster{Name: cluster.Name, Paused: ptr.Deref(cluster.Spec.Paused, false),
		Deleting:    !cluster.DeletionTimestamp.IsZero(),
		Initialized: ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)}
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		found.Problem = err.Error()
	}
	found.Policies, seen.world.Cluster = policies, found
	if !cluster.Spec.Topology.IsDefined() {
		return nil
	}
	class := &clusterv1.ClusterClass{}
	if err := client.IgnoreNotFound(r.APIReader.Get(ctx, cluster.GetClassKey(), class)); err != nil {
		return fmt.Errorf("read ClusterClass %s: %w", cluster.GetClassKey(), err)
	}
	found.Topology = &upgrade.Topology{Known: class.Spec.KubernetesVersions,
		Extension: class.Spec.Upgrade.External.GenerateUpgradePlanExtension,
		Field:     seen.field("Cluster", cluster, cluster.Spec.Topology.Version, "spec", "topology", "version")}
	return nil
}

func (r *Reconciler) lookAtInfrastructure(ctx context.Context, _ client.Reader, seen *observation) error {
	ref := seen.cluster.Spec.InfrastructureRef
	if ref.Kind != "QuoinCluster" || ref.APIGroup != infrav1.GroupVersion.Group {
		return nil
	}
	key, found := client.ObjectKey{Namespace: seen.cluster.Namespace, Name: ref.Name}, &infrav1.QuoinCluster{}
	if err := r.APIReader.Get(ctx, key, found); err != nil {
		return fmt.Errorf("read QuoinCluster %s: %w", key, err)
	}
	seen.world.Infrastructure = &upgrade.Infrastructure{Reached: found.Status.Version,
		Field: seen.field("QuoinCluster", found, found.Spec.Version, "spec", "version")}
	return nil
}

// lookAtControlPlane reads a QuoinControlPlane, or what the contract of Cluster API has every control plane tell.
func (r *Reconciler) lookAtControlPlane(ctx context.Context, reader client.Reader, seen *observation) error {
	ref, controlPlane := seen.cluster.Spec.ControlPlaneRef, &seen.world.ControlPlane
	controlPlane.Object, controlPlane.Unsettled = ref.Kind+" "+ref.Name, "the control plane is not there"
	if !ref.IsDefined() {
		return nil
	}
	if ref.Kind != "QuoinControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		found, err := external.GetObjectFromContractVersionedRef(ctx, r.APIReader, ref, seen.cluster.Namespace)
		if err != nil {
			return fmt.Errorf("read the control plane of Cluster %s: %w", seen.cluster.Name, err)
		}
		version, _, _ := unstructured.NestedString(found.Object, "spec", "version")
		controlPlane.Field = seen.field(ref.Kind, found, version, "spec", "version")
		controlPlane.Unsettled, controlPlane.Unwatched = foreignUnsettled(seen.cluster, found), true
		controlPlane.Runs = observed.VersionsOf(found) // of a hosted one, unless there are Machines
		return nil
	}
	key, found := client.ObjectKey{Namespace: seen.cluster.Namespace, Name: ref.Name}, &controlplanev1.QuoinControlPlane{}
	switch err := reader.Get(ctx, key, found); {
	case apierrors.IsNotFound(err):
		return nil // a plan is made by the Machines, and the preflight says what to do
	case err != nil:
		return fmt.Errorf("read QuoinControlPlane %s: %w", key, err)
	}
	controlPlane.Field = seen.field("QuoinControlPlane", found, found.Spec.Version, "spec", "version")
	controlPlane.Unsettled = unsettled(found, counts{ptr.To(ptr.Deref(found.Spec.Replicas, 1)), found.Status.Replicas,
		found.Status.UpToDateReplicas, found.Status.AvailableReplicas, found.Status.ObservedGeneration})
	const follow = controlplanev1.ControlPlaneAddonsUpToDateCondition
	if addons := conditions.Get(found, follow); addons == nil || addons.Status != metav1.ConditionTrue {
		controlPlane.Addons = fmt.Sprintf("add-ons do not follow yet: %s. Where that does not pass, mend it, or have them "+
			"left alone by annotations %s and %s of %s", conditions.GetMessage(found, follow), kcpv1.SkipKubeProxyAnnotation,
			kcpv1.SkipCoreDNSAnnotation, controlPlane.Object)
		controlPlane.AddonsHeld = conditions.GetReason(found, follow) == controlplanev1.VersionSkewReason
	}
	return nil
}

// lookAtPools reads the MachineDeployments, and what runs by the Machines of all.
func lookAtPools(ctx context.Context, reader client.Reader, seen *observation) error {
	key := client.ObjectKeyFromObject(seen.cluster)
	deployments := &clusterv1.MachineDeploymentList{}
	if err := reader.List(ctx, deployments, client.InNamespace(key.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
		return fmt.Errorf("list the MachineDeployments of Cluster %s: %w", key, err)
	}
	machines, err := observed.Machines(ctx, reader, key)
	if err != nil {
		return err
	}
	// One that is being deleted is no pool, and its kubelets are of none until they are gone.
	pools := slices.DeleteFunc(deployments.Items, func(of clusterv1.MachineDeployment) bool {
		return !of.DeletionTimestamp.IsZero()
	})
	seen.machines = machines
	controlPlane, runs := &seen.world.ControlPlane, map[string][]string{}
	for i := range pools {
		runs[pools[i].Name] = nil
	}
	state := skew.WorldOf(machines)
	if controlPlane.Hosted = len(state.APIServers) == 0 && len(controlPlane.Runs) > 0; !controlPlane.Hosted {
		controlPlane.Runs = state.APIServers
	}
	for i := range machines {
		name := machines[i].Labels[clusterv1.MachineDeploymentNameLabel]
		_, pooled := runs[name]
		for _, kubelet := range skew.WorldOf(machines[i : i+1]).Components {
			if pooled {
				runs[name] = append(runs[name], kubelet.Version)
			} else {
				seen.world.Others = append(seen.world.Others, kubelet)
			}
		}
	}
	for i := range pools {
		of := &pools[i]
		pool := upgrade.Pool{Name: of.Name, Runs: runs[of.Name], Labels: of.Labels,
			Paused:   ptr.Deref(of.Spec.Paused, false),
			OnDelete: of.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType,
			Field: seen.field("MachineDeployment", of, of.Spec.Template.Spec.Version, "spec", "template", "spec",
				"version")}
		pool.Unsettled = unsettled(of, counts{ptr.To(ptr.Deref(of.Spec.Replicas, 1)), of.Status.Replicas,
			of.Status.UpToDateReplicas, of.Status.AvailableReplicas, of.Status.ObservedGeneration})
		if pool.Paused {
			pool.Unsettled = fmt.Sprintf("MachineDeployment %s is paused: set spec.paused to false", of.Name)
		}
		seen.world.Pools = append(seen.world.Pools, pool)
	}
	slices.SortFunc(seen.world.Pools, func(a, b upgrade.Pool) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// lookAtUpgrades reads the other upgrades of the Cluster, and the checks that were made for this one.
func (o *observation) lookAtUpgrades(ctx context.Context, reader client.Reader, of *quoinv1.ClusterUpgrade) error {
	upgrades, checks := &quoinv1.ClusterUpgradeList{}, &quoinv1.PreflightCheckList{}
	if err := reader.List(ctx, upgrades, client.InNamespace(of.Namespace)); err != nil {
		return fmt.Errorf("list the ClusterUpgrades: %w", err)
	}
	if err := reader.List(ctx, checks, client.InNamespace(of.Namespace)); err != nil {
		return fmt.Errorf("list the PreflightChecks: %w", err)
	}
	o.world.Attempts = map[string]int{}
	o.world.First = firstOf(upgrades.Items, of)
	o.world.Took, o.world.PerMachine = tookOf(upgrades.Items, of)
	for i := range checks.Items {
		found := &checks.Items[i]
		rest, ours := strings.CutPrefix(found.Name, of.Name+"-")
		sort, number, named := strings.Cut(rest, "-")
		attempt, err := strconv.Atoi(number)
		if !ours || !named || err != nil {
			continue
		}
		o.world.Attempts[sort] = max(o.world.Attempts[sort], attempt)
		if !metav1.IsControlledBy(found, of) {
			continue
		}
		o.objects[found.Name] = found
		o.world.Checks = append(o.world.Checks, upgrade.Check{Name: found.Name, Health: sort == upgrade.Health,
			Attempt: attempt, Completed: found.Status.CompletionTime.Time, Blocks: found.Status.Verdict == quoinv1.VerdictBlock,
			Summary: conditions.GetMessage(found, quoinv1.PreflightCheckPassedCondition), Skip: found.Spec.Skip,
			Moved: conditions.GetReason(found, quoinv1.PreflightCheckCompletedCondition) == quoinv1.MovedReason,
			Via:   found.Spec.Via, Workers: found.Spec.Workers})
	}
	slices.SortFunc(o.world.Checks, func(a, b upgrade.Check) int { return a.Attempt - b.Attempt })
	return nil
}

// tookOf is how long steps took in upgrades that are done, the latest of each: of the Cluster by the step's key, and of
// all of its namespace by its kind, for each Machine. Other namespaces are other people's, and not read.
func tookOf(
	all []quoinv1.ClusterUpgrade, of *quoinv1.ClusterUpgrade,
) (took map[string]time.Duration, perMachine map[upgrade.StepKind]time.Duration) {
	took, perMachine = map[string]time.Duration{}, map[upgrade.StepKind]time.Duration{}
	latest, latestOf := map[string]time.Time{}, map[upgrade.StepKind]time.Time{}
	for i := range all {
		if all[i].Namespace != of.Namespace || !upgrade.Ended(&all[i]) {
			continue
		}
		for _, step := range all[i].Status.Steps {
			key, done := upgrade.StepKey(step), step.CompletionTime.Time
			lasted := done.Sub(step.StartTime.Time)
			if lasted < 0 { // the clock was set back meanwhile
				continue
			}
			if all[i].Spec.ClusterName == of.Spec.ClusterName && done.After(latest[key]) {
				took[key], latest[key] = lasted, done
			}
			kind, machines := upgrade.StepKindOf(step), time.Duration(1)
			if kind.Machines {
				machines = time.Duration(ptr.Deref(step.Machines.Count, 0))
			}
			if machines > 0 && done.After(latestOf[kind]) {
				perMachine[kind], latestOf[kind] = lasted/machines, done
			}
		}
	}
	return took, perMachine
}

// field remembers the object, and names it.
func (o *observation) field(kind string, of client.Object, value string, path ...string) upgrade.Field {
	name := kind + " " + of.GetName()
	o.objects[name] = of
	return upgrade.Field{Object: name, Value: value, Owner: fieldowner.Last(of.GetManagedFields(), path...)}
}

// counts are what every control plane and every MachineDeployment tells of its Machines. One that is not asked for a
// number of Machines has none to count.
type counts struct {
	desired, replicas, upToDate, available *int32
	observed                               int64
}

// foreignUnsettled says what keeps a control plane of another provider from being settled. Cluster API counts its
// Machines in the Cluster, whatever contract the provider follows and what its fields mean by that. A generation that
// nobody tells was observed.
func foreignUnsettled(cluster *clusterv1.Cluster, of *unstructured.Unstructured) string {
	generation, known, _ := unstructured.NestedInt64(of.Object, "status", "observedGeneration")
	if !known {
		generation = of.GetGeneration()
	}
	counted := cluster.Status.ControlPlane
	if counted == nil {
		return fmt.Sprintf("Cluster API did not look yet how many Machines of %s there are", of.GetName())
	}
	return unsettled(of, counts{counted.DesiredReplicas, counted.Replicas, counted.UpToDateReplicas,
		counted.AvailableReplicas, generation})
}

// unsettled says what keeps the spec of an object from being carried out everywhere; empty when that is done.
func unsettled(of client.Object, c counts) string {
	count := func(of *int32) int32 { return ptr.Deref(of, 0) }
	desired := count(c.desired)
	switch {
	case annotations.HasPaused(of):
		return of.GetName() + " is paused: remove annotation " + clusterv1.PausedAnnotation
	case c.observed < of.GetGeneration():
		return of.GetName() + " was edited, and its controller did not look yet"
	case c.desired == nil:
	case count(c.upToDate) != desired || count(c.replicas) != desired || count(c.available) != desired:
		return fmt.Sprintf("%d of %d Machines of %s are up to date, %d are available, and there are %d", count(c.upToDate),
			desired, of.GetName(), count(c.available), count(c.replicas))
	}
	return ""
}
