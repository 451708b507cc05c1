// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// staleHosts are the hosts of the Machines that say that they serve a newer generation of their claim.
func (inv *Inventory) staleHosts() []controlplane.StaleHost {
	var stale []controlplane.StaleHost
	for _, machine := range inv.Machines.SortedByCreationTimestamp() {
		if found := StaleClaim(inv.Hosts[machine.Name]); found != nil {
			stale = append(stale, controlplane.StaleHost{Name: client.ObjectKeyFromObject(inv.Hosts[machine.Name]).String(),
				Message: found.Message})
		}
	}
	return stale
}

// StaleClaim is the condition that says so; nil when none does.
func StaleClaim(host *infrav1.QuoinHost) *metav1.Condition {
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
