// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// staleHosts are the hosts of the Machines that say that they serve a newer generation of their claim.
func (s *scope) staleHosts() []controlplane.StaleHost {
	var stale []controlplane.StaleHost
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if found := staleClaim(s.hosts[machine.Name]); found != nil {
			stale = append(stale, controlplane.StaleHost{Name: client.ObjectKeyFromObject(s.hosts[machine.Name]).String(),
				Message: found.Message})
		}
	}
	return stale
}

// staleClaim is the condition that says so; nil when none does.
func staleClaim(host *infrav1.QuoinHost) *metav1.Condition {
	if host == nil {
		return nil
	}
	at := slices.IndexFunc(host.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Status == metav1.ConditionFalse && condition.Reason == infrav1.HostStaleClaimReason
	})
	if at < 0 {
		return nil
	}
	return &host.Status.Conditions[at]
}

// hostServesAnother lets through hosts that begin or cease to say that they serve a newer generation.
func hostServesAnother() predicate.Predicate {
	stale := func(object client.Object) bool {
		host, ok := object.(*infrav1.QuoinHost)
		return ok && staleClaim(host) != nil
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return stale(e.ObjectNew) != stale(e.ObjectOld) },
	}
}
