// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

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
		return ok && host.Spec.ConsumerRef != nil && observe.HeldUp(host) != ""
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return held(e.ObjectNew) && !held(e.ObjectOld) },
	}
}

// lackImages lists the hosts that are not waited for, and says what to do about them.
func (s *summary) lackImages() string {
	var names []string
	for _, host := range s.State.Hosts {
		if host.Unfit != "" && host.Provisioned && !host.Present && host.Version != s.State.Version {
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
		strings.Join(names, ", "), s.State.Version)
}
