// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// namespaceAllowed says whether the claim comes from a namespace that the host is offered to. Placement asks the same,
// but anybody who may write QuoinHosts, and every object that a move or a restore brings, can carry a claim that
// placement never saw.
//
// What was begun is seen to its end: an offer that is taken back later does not leave a node without its reset.
func (r *reconciliation) namespaceAllowed() bool {
	ref := r.host.Spec.ConsumerRef
	if ref == nil || r.claim.status == leaving || r.begun() {
		return true
	}
	return placement.NamespaceAllowed(placement.Host{Namespace: r.host.Namespace,
		ConsumerNamespaces: r.host.Spec.ConsumerNamespaces}, ref.Namespace)
}

func (r *reconciliation) begun() bool {
	switch r.host.Status.State {
	case infrav1.HostStateProvisioned, infrav1.HostStateCleaning, infrav1.HostStateQuarantined:
		return true
	}
	operation := r.host.Status.Operation
	return operation != nil && operation.ID == infrav1.ProvisionOperation(r.host.Spec.ConsumerRef.Claim) &&
		operation.Phase != infrav1.HostOperationNotStarted
}

// refuseClaim does nothing at all, not even connect: no Secret is read for a claim that the host was not offered to.
func (r *reconciliation) refuseClaim() result {
	ref := r.host.Spec.ConsumerRef
	message := fmt.Sprintf("QuoinMachine %s/%s claims the host, but the host is not offered to namespace %s; nothing is "+
		"done. Add the namespace to spec.consumerNamespaces, or delete Machine %s", ref.Namespace, ref.Name, ref.Namespace,
		ref.Machine)
	r.warn(infrav1.HostProvisionedCondition, infrav1.HostNamespaceNotAllowedReason, message)
	return onEvent()
}

// forgetRefusal ends what refuseClaim said, once the host is offered or the claim gone.
func (r *reconciliation) forgetRefusal() {
	if hasReason(r.host, infrav1.HostProvisionedCondition, infrav1.HostNamespaceNotAllowedReason) {
		conditions.Delete(r.host, infrav1.HostProvisionedCondition)
	}
}
