// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		reason := HeldUp(host)
		if reason == "" && !nodeWell[machines[i].Name] && conditions.IsFalse(host, infrav1.HostReachableCondition) {
			reason = "unreachable"
		}
		if reason != "" {
			unfit[machines[i].Name] = reason
		}
	}
	return unfit
}

// HeldUp says why nothing is brought to the host by a person's will; empty when something is.
func HeldUp(host *infrav1.QuoinHost) string {
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
