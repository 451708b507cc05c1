// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
)

// unfitHosts says, by QuoinMachine, why its host can take no images now. A host that is silent while its Node is well
// may yet be asked, because what runs there would miss them.
func unfitHosts(
	machines []infrav1.QuoinMachine, hosts []infrav1.QuoinHost, nodeWell map[string]bool,
) map[string]string {
	byKey := map[client.ObjectKey]*infrav1.QuoinHost{}
	for i := range hosts {
		byKey[client.ObjectKeyFromObject(&hosts[i])] = &hosts[i]
	}
	unfit := map[string]string{}
	for i := range machines {
		key, ok := hostOf(&machines[i])
		host := byKey[key]
		if !ok || host == nil {
			continue
		}
		reason := heldUp(host)
		if reason == "" && !nodeWell[machines[i].Name] && conditions.IsFalse(host, infrav1.HostReachableCondition) {
			reason = "unreachable"
		}
		if reason != "" {
			unfit[machines[i].Name] = reason
		}
	}
	return unfit
}

// heldUp says why nothing is brought to the host by a person's will; empty when something is.
func heldUp(host *infrav1.QuoinHost) string {
	_, detached := host.Annotations[infrav1.DetachedAnnotation]
	power := host.Status.Power
	switch {
	case detached:
		return "detached"
	case annotations.HasPaused(host):
		return "paused"
	case power != nil && power.State == string(redfish.Off):
		return "powered off"
	case host.Spec.Maintenance != nil:
		return "in maintenance"
	}
	return ""
}

// clusterOfHost names the QuoinControlPlane of the Cluster whose Machine, a worker perhaps, has the host.
func (r *Reconciler) clusterOfHost(ctx context.Context, object client.Object) []ctrl.Request {
	if machine := r.machineOfHost(ctx, object); machine != nil {
		return r.controlPlaneOfLabelled(ctx, machine)
	}
	return nil
}

// hostHeldUp lets through hosts for whose images nobody waits any more.
func hostHeldUp() predicate.Predicate {
	held := func(object client.Object) bool {
		host, ok := object.(*infrav1.QuoinHost)
		return ok && host.Spec.ConsumerRef != nil && heldUp(host) != ""
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return held(e.ObjectNew) && !held(e.ObjectOld) },
	}
}

// lackImages lists the hosts that are not waited for, and says what to do about them.
func (s *scope) lackImages() string {
	var names []string
	for _, host := range s.snapshot.Hosts {
		if host.Unfit != "" && host.Provisioned && !host.Present && host.Version != s.snapshot.Version {
			names = append(names, fmt.Sprintf("%s (%s)", host.Name, host.Unfit))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("\n* Not waited for: the hosts of %s, which cannot take the add-on images of %s now. They get "+
		"them first of all when "+
		"they are back, and until then kube-proxy may not start there: end the maintenance, repair them or delete their "+
		"Machines",
		strings.Join(names, ", "), s.snapshot.Version)
}
