// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// unseenRecheck is how long a Machine waits for what no event tells of: other clusters, the catalog of releases, and
// how the kubelets of its cluster are configured.
const unseenRecheck = time.Minute

// unsupported says why a Machine of its version may not become a Node; empty when it may. A worker's pool may be ahead
// of its control plane for a while, because both were written in one commit; its Machines wait without a host. The
// first Machine of a control plane waits while its Cluster may not be made of that version at all.
func (r *Reconciler) unsupported(
	ctx context.Context, reader client.Reader, v *observation,
) (why string, again time.Duration, err error) {
	if _, err := skew.Parse(v.machine.Spec.Version); err != nil {
		return "", 0, nil //nolint:nilerr // nothing is judged of a version that is none
	}
	policies, err := skew.PoliciesOf(v.cluster)
	first := util.IsControlPlaneMachine(v.machine)
	made := ptr.Deref(v.cluster.Status.Initialization.ControlPlaneInitialized, false)
	switch {
	case first && (err != nil || made || !skew.AskForEstate(policies)):
		return "", 0, nil //nolint:nilerr // it is what others wait for
	case err != nil:
		return err.Error() + "; correct the annotation", 0, nil //nolint:nilerr // a person's to correct
	case skew.AskForEstate(policies):
		again = unseenRecheck
	}
	if first {
		world, err := observed.World(ctx, r.APIReader, v.cluster, policies)
		if err != nil {
			return "", 0, err
		}
		nothing := skew.World{Estate: world.Estate}
		if refusal, _ := skew.Target(policies, nothing, v.machine.Spec.Version); refusal != "" {
			return "no host is claimed for the first Machine of a cluster that may not be made: " + refusal, again, nil
		}
		return "", 0, nil
	}
	world, err := observed.APIServers(ctx, reader, v.cluster, policies)
	if err != nil {
		return "", 0, err
	}
	if len(world.APIServers) == 0 {
		again = unseenRecheck // nobody watches a control plane of another provider
		if world, _, err = observed.WithHosted(ctx, r.APIReader, v.cluster, world); err != nil {
			return "", 0, err
		}
	}
	if world.RunsOnly(v.machine.Spec.Version) {
		// A catalog that is gone must not keep a cluster from having as many Machines as it had.
		policies, _ = skew.Split(policies)
	}
	if skew.AskForProxy(policies) {
		again = unseenRecheck
	}
	if world, err = observed.WithProxy(ctx, r.APIReader, r.ClusterCache, v.cluster, policies, world); err != nil {
		return "", 0, err
	}
	pool := skew.Pool{Object: "Machine " + v.machine.Name, Version: v.machine.Spec.Version}
	refused, waits := pool.Judge(policies, world)
	if violations := slices.Concat(refused, waits); len(violations) > 0 {
		return "no host is claimed while the control plane or kube-proxy is of another version: " +
			skew.Summary(violations), again, nil
	}
	return "", 0, nil
}

// waitingForControlPlane names the QuoinMachines of a control-plane Machine's Cluster that wait for other API servers.
func (r *Reconciler) waitingForControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	machines := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, machines, client.UnsafeDisableDeepCopy, client.InNamespace(machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: machine.Spec.ClusterName}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the QuoinMachines that wait for a control plane",
			"cluster", machine.Spec.ClusterName)
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		reason := conditions.GetReason(&machines.Items[i], infrav1.MachineHostClaimedCondition)
		if reason == infrav1.MachineWaitingForControlPlaneReason {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
		}
	}
	return requests
}

// versionsRunChanges lets events of control-plane Machines through after which other API servers run.
func versionsRunChanges() predicate.Predicate {
	runs := func(object client.Object) string {
		machine, ok := object.(*clusterv1.Machine)
		if !ok || !util.IsControlPlaneMachine(machine) {
			return ""
		}
		return fmt.Sprint(machine.Status.NodeRef.IsDefined(), skew.WorldOf([]clusterv1.Machine{*machine}).APIServers)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return runs(e.Object) != "" },
		DeleteFunc:  func(e event.DeleteEvent) bool { return runs(e.Object) != "" },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return runs(e.ObjectOld) != runs(e.ObjectNew) },
	}
}

// policyChanges lets events of Clusters through for which another version-skew policy holds.
func policyChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
			return before[skew.PolicyAnnotation] != after[skew.PolicyAnnotation]
		},
	}
}
