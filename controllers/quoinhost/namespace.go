// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// objection is why nothing is done for a claim; empty when both sides consent to it.
type objection struct{ reason, message string }

// objection to the claim: the host is not offered to its namespace, or its QuoinMachine accepts no hosts of this one.
// Placement asks the same, but anybody who may write QuoinHosts, and every object that a move or a restore brings, can
// carry a claim that placement never saw.
//
// What was begun is seen to its end: a consent that is taken back later, or that nobody was asked for when the claim
// began, does not leave a node without its reset.
func (r *reconciliation) objection() objection {
	if r.host.Spec.ConsumerRef == nil || r.claim.status == leaving || r.begun() || r.wasNode() {
		return objection{}
	}
	return objectionTo(r.host, r.claim.quoinMachine)
}

// objectionTo the claim that the host carries. Nobody knows what a QuoinMachine accepts that is not here, and nothing
// begins for it either.
func objectionTo(host *infrav1.QuoinHost, machine *infrav1.QuoinMachine) objection {
	ref := host.Spec.ConsumerRef
	switch {
	case !placement.NamespaceAllowed(placement.Host{Namespace: host.Namespace,
		ConsumerNamespaces: host.Spec.ConsumerNamespaces}, ref.Namespace):
		return objection{infrav1.HostNamespaceNotAllowedReason, fmt.Sprintf("QuoinMachine %s/%s claims the host, but the "+
			"host is not offered to namespace %s; nothing is done. Add the namespace to spec.consumerNamespaces, or delete "+
			"Machine %s", ref.Namespace, ref.Name, ref.Namespace, ref.Machine)}
	case machine != nil && !accepts(machine, host):
		return objection{infrav1.HostNotAcceptedReason, fmt.Sprintf("QuoinMachine %s/%s has the claim on the host, but "+
			"accepts no hosts of namespace %s; nothing is done. If whoever registers hosts there may have the bootstrap data "+
			"of Machine %s, add %s to spec.hostNamespaces of the QuoinMachine, and to that of the template of those to come; "+
			"if not, delete Machine %s", ref.Namespace, ref.Name, host.Namespace, ref.Machine, host.Namespace, ref.Machine)}
	}
	return objection{}
}

// accepts reports whether the QuoinMachine names the namespace of the host.
func accepts(machine *infrav1.QuoinMachine, host *infrav1.QuoinHost) bool {
	return placement.NamespaceAccepted(machine.Spec.HostNamespaces, machine.Namespace, host.Namespace)
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

// withheld is why the host does not get the bootstrap data. Whether a claim was begun is what the host and its object
// say, which are the word of the one side; that the other consents is asked of the API server, before a host of another
// namespace is given what cannot be taken back.
func (r *reconciliation) withheld(ctx context.Context) (objection, error) {
	machine := r.claim.quoinMachine
	if r.host.Namespace != machine.Namespace {
		live := &infrav1.QuoinMachine{}
		if err := r.controller.APIReader.Get(ctx, client.ObjectKeyFromObject(machine), live); err != nil {
			return objection{}, fmt.Errorf("reading QuoinMachine %s, which is to accept the host: %w",
				client.ObjectKeyFromObject(machine), err)
		}
		machine = live
	}
	return objectionTo(r.host, machine), nil
}

// refuseClaim does nothing at all, not even connect: no Secret is read for a claim that one side does not consent to.
func (r *reconciliation) refuseClaim(why objection) result {
	r.warn(infrav1.HostProvisionedCondition, why.reason, why.message)
	return onEvent()
}

// refusedClaim reports whether that is what the condition says.
func refusedClaim(host *infrav1.QuoinHost) bool {
	return hasReason(host, infrav1.HostProvisionedCondition, infrav1.HostNamespaceNotAllowedReason) ||
		hasReason(host, infrav1.HostProvisionedCondition, infrav1.HostNotAcceptedReason)
}

// forgetRefusal ends what refuseClaim said, once both sides consent or the claim is gone.
func (r *reconciliation) forgetRefusal() {
	if refusedClaim(r.host) {
		conditions.Delete(r.host, infrav1.HostProvisionedCondition)
	}
}
