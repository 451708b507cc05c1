// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"reflect"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// hostEvents wakes the QuoinMachines that a host concerns: its consumer at once; those that may have it at once, when
// it is free; and those that only count it a while later, all changes of the while together.
func (r *Reconciler) hostEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			// What was there at the start is seen by every QuoinMachine, none of which was reconciled before.
			r.hostChanged(ctx, nil, asHost(e.Object), e.IsInInitialList, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.hostChanged(ctx, asHost(e.ObjectOld), asHost(e.ObjectNew), false, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.hostChanged(ctx, asHost(e.Object), nil, false, q)
		},
	}
}

func asHost(o client.Object) *infrav1.QuoinHost {
	host, _ := o.(*infrav1.QuoinHost)
	return host
}

// hostChanged queues what a change of a host concerns; it did not exist before when that is nil, and does not exist now
// when that is.
func (r *Reconciler) hostChanged(ctx context.Context, before, now *infrav1.QuoinHost, initial bool, q queue) {
	for _, host := range []*infrav1.QuoinHost{before, now} {
		if host != nil && host.Spec.ConsumerRef != nil {
			q.Add(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: host.Spec.ConsumerRef.Namespace,
				Name: host.Spec.ConsumerRef.Name}})
		}
	}
	if initial || before != nil && now != nil && reflect.DeepEqual(availabilityOf(before), availabilityOf(now)) {
		return
	}
	count := r.counts.changed(r.Clock.Now())
	free := now != nil && placement.Free(placement.HostOf(now))
	if !count && !free {
		return
	}
	waiting := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, waiting, client.UnsafeDisableDeepCopy, fieldindex.MachinesAwaitingHost()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinMachines")
		return
	}
	for i := range waiting.Items {
		m := &waiting.Items[i]
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)}
		switch {
		case free && mayHave(m, now):
			q.Add(request)
		case count && conditions.GetReason(m, infrav1.MachineHostClaimedCondition) == infrav1.MachineNoMatchingHostReason:
			// Hundreds at one instant would be before the claims in the queue.
			q.AddAfter(request, countsEvery+countsEvery*time.Duration(i)/time.Duration(len(waiting.Items)))
		}
	}
}

// availabilityOf is a host as far as it matters to QuoinMachines that have none. Hosts tell their probes every few
// minutes, and the steps of what runs on them every few seconds.
func availabilityOf(host *infrav1.QuoinHost) placement.Host {
	h := placement.HostOf(host)
	if !h.InUse {
		return h
	}
	return placement.Host{InUse: true, Labels: h.Labels, FailureDomain: h.FailureDomain,
		ConsumerNamespaces: h.ConsumerNamespaces}
}

// mayHave reports whether the free host is worth a look to the QuoinMachine. One that is being deleted looks whether
// its own is back.
func mayHave(m *infrav1.QuoinMachine, free *infrav1.QuoinHost) bool {
	if !m.DeletionTimestamp.IsZero() {
		return true
	}
	request, err := selectorOf(m)
	return err == nil && placement.Select(request, []placement.Host{placement.HostOf(free)}).Chosen != nil
}
