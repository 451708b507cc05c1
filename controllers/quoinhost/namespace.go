// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// objection is why nothing is done for a claim; empty when both sides consent to it.
type objection struct{ reason, message string }

// objection to the claim: the host is not offered to its namespace, its QuoinMachine accepts no hosts of this one, or
// the claim names another Machine than that of the QuoinMachine.
// Placement asks the same, but anybody who may write QuoinHosts, and every object that a move or a restore brings, can
// carry a claim that placement never saw.
//
// What was begun is seen to its end: a consent that is taken back later, or that nobody was asked for when the claim
// began, does not leave a node without its reset.
func (r *reconciliation) objection() objection {
	if r.host.Spec.ConsumerRef == nil || r.claim.status == leaving || r.begun() || r.wasNode() {
		return objection{}
	}
	return objectionTo(r.host, r.claim.quoinMachine, r.claim.machine)
}

// objectionTo the claim that the host carries. Nobody knows what a QuoinMachine accepts that is not here, and nothing
// begins for it either; nor does anything for a Machine that is not.
func objectionTo(host *infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) objection {
	ref := host.Spec.ConsumerRef
	switch {
	case !placement.NamespaceAllowed(placement.Host{Namespace: host.Namespace,
		ConsumerNamespaces: host.Spec.ConsumerNamespaces}, ref.Namespace):
		return objection{infrav1.HostNamespaceNotAllowedReason, fmt.Sprintf("QuoinMachine %s/%s claims the host, but the "+
			"host is not offered to namespace %s; nothing is done. Add the namespace to spec.consumerNamespaces, or delete "+
			"Machine %s", ref.Namespace, ref.Name, ref.Namespace, ref.Machine)}
	case quoinMachine != nil && !accepts(quoinMachine, host):
		return objection{infrav1.HostNotAcceptedReason, fmt.Sprintf("QuoinMachine %s/%s has the claim on the host, but "+
			"accepts no hosts of namespace %s; nothing is done. If whoever registers hosts there may have the bootstrap data "+
			"of Machine %s, add %s to spec.hostNamespaces of the QuoinMachine, and to that of the template of those to come; "+
			"if not, delete Machine %s", ref.Namespace, ref.Name, host.Namespace, ref.Machine, host.Namespace, ref.Machine)}
	case quoinMachine != nil && machine != nil && (!host.ClaimedBy(quoinMachine) || !paired(quoinMachine, machine)):
		return objection{infrav1.HostMachineMismatchReason, fmt.Sprintf("the claim on the host names QuoinMachine %s/%s and "+
			"Machine %s/%s, but QuoinMachine %s/%s is not that of Machine %s/%s, or has another host; nothing is done. "+
			"If nobody is moving or restoring these objects, somebody wrote the claim: to end it, %s",
			ref.Namespace, ref.Name, ref.Namespace, ref.Machine, ref.Namespace, ref.Name, ref.Namespace, ref.Machine,
			endOfClaim(host, quoinMachine))}
	}
	return objection{}
}

// paired reports whether Machine and QuoinMachine are each other's: the Machine names its infrastructure, and that is
// owned by this Machine and no earlier one of its name. Whoever writes a claim names both, and the bootstrap data are
// those of the Machine, while the QuoinMachine is what consents.
func paired(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) bool {
	infra := machine.Spec.InfrastructureRef
	return infra.APIGroup == infrav1.GroupVersion.Group && infra.Kind == "QuoinMachine" &&
		infra.Name == quoinMachine.Name && machine.Namespace == quoinMachine.Namespace &&
		slices.ContainsFunc(quoinMachine.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "Machine" && owner.Name == machine.Name && owner.UID == machine.UID
		})
}

// endOfClaim says how a claim ends that somebody wrote. One whose QuoinMachine has this host ends with that; any other
// may be taken off.
func endOfClaim(host *infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine) string {
	ref := host.Spec.ConsumerRef
	if quoinMachine.Spec.ProviderID != host.ProviderID() {
		return fmt.Sprintf("kubectl -n %s patch quoinhost %s --type=json -p '[{\"op\":\"remove\",\"path\":"+
			"\"/spec/consumerRef\"}]'", host.Namespace, host.Name)
	}
	for _, owner := range quoinMachine.OwnerReferences {
		if owner.Kind == "Machine" {
			return fmt.Sprintf("kubectl -n %s delete machine %s, whose QuoinMachine has the host", ref.Namespace, owner.Name)
		}
	}
	return fmt.Sprintf("kubectl -n %s delete quoinmachine %s, which has the host", ref.Namespace, ref.Name)
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
// namespace is given what cannot be taken back. Whose Machine it is follows from that QuoinMachine too.
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
	return objectionTo(r.host, machine, r.claim.machine), nil
}

// refuseClaim does nothing at all, not even connect: no Secret is read for a claim that one side does not consent to.
func (r *reconciliation) refuseClaim(why objection) result {
	r.warn(infrav1.HostProvisionedCondition, why.reason, why.message)
	return onEvent()
}

// refusedClaim reports whether that is what the condition says.
func refusedClaim(host *infrav1.QuoinHost) bool {
	return hasReason(host, infrav1.HostProvisionedCondition, infrav1.HostNamespaceNotAllowedReason) ||
		hasReason(host, infrav1.HostProvisionedCondition, infrav1.HostNotAcceptedReason) ||
		hasReason(host, infrav1.HostProvisionedCondition, infrav1.HostMachineMismatchReason)
}

// forgetRefusal ends what refuseClaim said, once both sides consent or the claim is gone.
func (r *reconciliation) forgetRefusal() {
	if refusedClaim(r.host) {
		conditions.Delete(r.host, infrav1.HostProvisionedCondition)
	}
}
