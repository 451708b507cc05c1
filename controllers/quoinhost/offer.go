// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// offered says whether the claim comes from a namespace that the host is offered to. Placement asks the same, but anybody
// who may write QuoinHosts, and every object that a move or a restore brings, can carry a claim that placement never saw.
//
// What was begun is seen to its end: an offer that is taken back later does not leave a node without its reset.
func (t *turn) offered() bool {
	ref := t.host.Spec.ConsumerRef
	if ref == nil || t.claim.standing == leaving || t.begun() {
		return true
	}
	return placement.Offered(placement.Host{Namespace: t.host.Namespace, ConsumerNamespaces: t.host.Spec.ConsumerNamespaces}, ref.Namespace)
}

func (t *turn) begun() bool {
	switch t.host.Status.State {
	case infrav1.HostStateProvisioned, infrav1.HostStateCleaning, infrav1.HostStateQuarantined:
		return true
	}
	operation := t.host.Status.Operation
	return operation != nil && operation.ID == infrav1.ProvisionOperation(t.host.Spec.ConsumerRef.Claim) && run.Phase(operation.Phase) != run.NotStarted
}

// refuseClaim does nothing at all, not even connect: no Secret is read for a claim that the host was not offered to.
func (t *turn) refuseClaim() (result, error) {
	ref := t.host.Spec.ConsumerRef
	message := fmt.Sprintf("QuoinMachine %s/%s claims the host, but the host is not offered to namespace %s; nothing is done. "+
		"Add the namespace to spec.consumerNamespaces, or delete Machine %s", ref.Namespace, ref.Name, ref.Namespace, ref.Machine)
	if !t.isFalse(infrav1.HostProvisionedCondition, message) {
		t.event("Warning", infrav1.HostNotOfferedReason, "%s", message)
	}
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostNotOfferedReason, message)
	return onEvent(), nil
}

// forgetRefusal ends what refuseClaim said, once the host is offered or the claim gone.
func (t *turn) forgetRefusal() {
	if hasReason(t.host, infrav1.HostProvisionedCondition, infrav1.HostNotOfferedReason) {
		conditions.Delete(t.host, infrav1.HostProvisionedCondition)
	}
}
