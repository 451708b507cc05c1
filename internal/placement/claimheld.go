// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// ClaimHeld reports whether the Machine was made ahead and claims no host yet, by the Machine alone. Where it has
// a host all the same, its provider ID says so only when its bootstrap data have run.
func ClaimHeld(machine *clusterv1.Machine) bool {
	_, held := machine.Annotations[infrav1.HoldClaimAnnotation]
	return held && machine.Spec.ProviderID == "" && !machine.Status.NodeRef.IsDefined()
}
