// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// mostSpares is how many hosts are asked for the Machines of one group.
const mostSpares = 8

// group is what claims hosts: the control plane, or a pool.
type group struct {
	object   string
	machines int
	request  placement.Request
}

// lookAtSpares reads what can be staged, and on which hosts. It reads the cache alone: what comes of it is advice.
func (r *Reconciler) lookAtSpares(ctx context.Context, seen *observation, of *quoinv1.ClusterUpgrade) error {
	groups, err := r.lookAtSupplies(ctx, seen, of)
	if err != nil {
		return err
	}
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the QuoinHosts: %w", err)
	}
	seen.world.Nodes = seen.nodes(hosts.Items)
	var free []placement.Host
	for i := range hosts.Items {
		if host := placement.HostOf(&hosts.Items[i]); placement.Free(host) {
			free = append(free, host)
		}
	}
	serves := servedBy(groups, free)
	for i := range hosts.Items {
		host := &hosts.Items[i]
		name := client.ObjectKeyFromObject(host).String()
		asked := host.Spec.Stage != nil && host.Spec.Stage.RequestedBy == client.ObjectKeyFromObject(of).String()
		if len(serves[name]) == 0 && !asked {
			continue
		}
		spare := upgrade.Spare{Name: name, Serves: serves[name], Stage: host.Spec.Stage, Staged: host.Status.Staged}
		if conditions.GetReason(host, infrav1.HostStagedCondition) == infrav1.HostStagingFailedReason {
			spare.Failed = conditions.GetMessage(host, infrav1.HostStagedCondition)
		}
		seen.world.Spares = append(seen.world.Spares, spare)
	}
	slices.SortFunc(seen.world.Spares, func(a, b upgrade.Spare) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// nodes are the Machines by what made them, and the hosts that they have.
func (o *observation) nodes(hosts []infrav1.QuoinHost) map[string][]upgrade.Node {
	claims := map[types.NamespacedName]string{}
	for i := range hosts {
		if by := hosts[i].Spec.ConsumerRef; by != nil {
			claims[types.NamespacedName{Namespace: by.Namespace, Name: by.Name}] = client.ObjectKeyFromObject(&hosts[i]).String()
		}
	}
	nodes := map[string][]upgrade.Node{}
	for i := range o.machines {
		machine := &o.machines[i]
		object := "MachineDeployment " + machine.Labels[clusterv1.MachineDeploymentNameLabel]
		if util.IsControlPlaneMachine(machine) {
			object = o.world.ControlPlane.Object
		}
		node := upgrade.Node{Host: "Machine " + machine.Name, Version: skew.Runs(machine)}
		if ref := machine.Spec.InfrastructureRef; ref.Kind == "QuoinMachine" && ref.APIGroup == infrav1.GroupVersion.Group {
			node.Host = cmp.Or(claims[types.NamespacedName{Namespace: machine.Namespace, Name: ref.Name}], node.Host)
		}
		nodes[object] = append(nodes[object], node)
	}
	return nodes
}

// servedBy has placement choose as many hosts for each group as it may need, and lists the groups by host.
func servedBy(groups []group, free []placement.Host) map[string][]string {
	serves := map[string][]string{}
	for _, group := range groups {
		left := slices.Clone(free)
		for range min(group.machines, mostSpares) {
			chosen := placement.Select(group.request, left).Chosen
			if chosen == nil {
				break
			}
			name := types.NamespacedName{Namespace: chosen.Namespace, Name: chosen.Name}.String()
			serves[name] = append(serves[name], group.object)
			left = slices.DeleteFunc(left, func(host placement.Host) bool {
				return host.Namespace == chosen.Namespace && host.Name == chosen.Name
			})
		}
	}
	return serves
}

// lookAtSupplies reads the machine templates of what is raised. What cannot be staged is left out.
func (r *Reconciler) lookAtSupplies(
	ctx context.Context, seen *observation, of *quoinv1.ClusterUpgrade,
) ([]group, error) {
	var groups []group
	seen.world.Supplies = map[string]infrav1.StagedArtifacts{}
	add := func(object, role, domain string, machines int, ref clusterv1.ContractVersionedObjectReference) error {
		if ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
			return nil
		}
		template, key := &infrav1.QuoinMachineTemplate{}, client.ObjectKey{Namespace: of.Namespace, Name: ref.Name}
		if err := r.Client.Get(ctx, key, template); err != nil {
			return client.IgnoreNotFound(err) // the preflight says so
		}
		bundle := template.Spec.Template.Spec.Artifacts.Bundle
		selector, err := metav1.LabelSelectorAsSelector(cmp.Or(template.Spec.Template.Spec.HostSelector,
			&metav1.LabelSelector{}))
		if err != nil || bundle == nil || bundle.Delivery == infrav1.BundleDeliveryPush {
			return nil //nolint:nilerr // the preflight says what is wrong with the selector
		}
		seen.world.Supplies[object] = infrav1.StagedArtifacts{Namespace: of.Namespace, Template: ref.Name, Role: role}
		groups = append(groups, group{object, machines, placement.Request{Namespace: of.Namespace, Selector: selector,
			HostNamespaces: template.Spec.Template.Spec.HostNamespaces, Worker: role == infrav1.StageRoleWorker,
			FailureDomain: domain, Version: nextVersion(of, object), Now: r.Clock.Now()}})
		return nil
	}
	plane := seen.world.ControlPlane
	if found, ours := seen.objects[plane.Object].(*controlplanev1.QuoinControlPlane); ours {
		if err := add(plane.Object, infrav1.StageRoleControlPlane, "", len(plane.Runs),
			found.Spec.MachineTemplate.Spec.InfrastructureRef); err != nil {
			return nil, fmt.Errorf("read the machine template of %s: %w", plane.Object, err)
		}
	}
	for _, pool := range seen.world.Pools {
		if found, is := seen.objects[pool.Object].(*clusterv1.MachineDeployment); is {
			template := found.Spec.Template.Spec
			if err := add(pool.Object, infrav1.StageRoleWorker, template.FailureDomain, len(pool.Runs),
				template.InfrastructureRef); err != nil {
				return nil, fmt.Errorf("read the machine template of %s: %w", pool.Object, err)
			}
		}
	}
	return groups, nil
}

// nextVersion is that of the object's next Machines, by the plan; the target while there is none.
func nextVersion(of *quoinv1.ClusterUpgrade, object string) string {
	for _, step := range of.Status.Steps {
		if step.State != quoinv1.UpgradeStepDone && step.Object == object &&
			(step.Type == quoinv1.UpgradeStepControlPlane || step.Type == quoinv1.UpgradeStepWorkers) {
			return step.To
		}
	}
	return of.Spec.Version
}

// stage asks hosts for what comes next. It is advice, so what cannot be written waits for the next look.
func (r *Reconciler) stage(ctx context.Context, requests []upgrade.StageRequest) {
	for _, request := range requests {
		namespace, name, _ := strings.Cut(request.Host, "/")
		host := &infrav1.QuoinHost{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, host)
		if err == nil {
			before := host.DeepCopy()
			host.Spec.Stage = request.Stage
			err = r.Client.Patch(ctx, host, objectpatch.OnlyOf(before))
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to ask a QuoinHost for what comes next", "host", request.Host)
		}
	}
}

// ofHost is the ClusterUpgrade that asks the host for something.
func ofHost(_ context.Context, object client.Object) []reconcile.Request {
	host, is := object.(*infrav1.QuoinHost)
	if !is || host.Spec.Stage == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(host.Spec.Stage.RequestedBy, "/")
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// stagedChanged lets hosts through of which there is something new to tell.
func stagedChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*infrav1.QuoinHost)
		after, is := e.ObjectNew.(*infrav1.QuoinHost)
		return was && is && (!slices.Equal(before.Status.Staged, after.Status.Staged) ||
			(before.Spec.ConsumerRef == nil) != (after.Spec.ConsumerRef == nil) ||
			conditions.GetReason(before, infrav1.HostStagedCondition) !=
				conditions.GetReason(after, infrav1.HostStagedCondition))
	}}
}
