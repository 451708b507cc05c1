// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// consumerMissing holds still, and only looks at the host. Nobody saw the QuoinMachine being deleted, which its
// finalizer ensures, so it was forced away, is on its way from another management cluster, or lives there, where a move
// took it without the host. A reset would then destroy a node that is alive, and the generation of the claim would not
// keep us from it: a plane that never had the host's object has not raised it.
func (r *reconciliation) consumerMissing(ctx context.Context) result {
	ref := r.host.Spec.ConsumerRef
	if _, asked := r.host.Annotations[infrav1.RaiseGenerationAnnotation]; asked {
		r.keepGeneration(fmt.Sprintf("QuoinMachine %s/%s, which has it, is not here", ref.Namespace, ref.Name))
	}
	if r.retried && r.confirmed(r.host.ProviderID(), machineNamed(ref), consumerElsewhere(ref)) {
		r.event("Warning", infrav1.HostConsumerMissingReason, "QuoinMachine %s/%s is gone; resetting its host at a "+
			"person's word, confirmed", ref.Namespace, ref.Name)
		return r.moveTo(infrav1.HostStateCleaning)
	}
	r.condition(infrav1.HostProvisionedCondition, metav1.ConditionUnknown, infrav1.HostConsumerMissingReason, fmt.Sprintf(
		"QuoinMachine %s/%s, which claimed the host, is not here, and its deletion was not seen: it may be on its way from "+
			"another management cluster, or be there, while its node runs on this host. Nothing is done to the host. If "+
			"Machine %s is in another management cluster, this QuoinHost was left behind by a move and belongs there, with "+
			"its Secrets. "+noConsumer,
		ref.Namespace, ref.Name, ref.Machine))
	return r.probe(ctx)
}

// confirmed reports whether a person who asks for the reset of a host that may serve somebody has said so twice, the
// second time with the name of what is lost: the provider ID of the node. The first word is answered with that, and
// with why it is asked.
func (r *reconciliation) confirmed(id, machine, why string) bool {
	if conditions.Has(r.host, infrav1.HostResetConfirmedCondition) && r.word == id {
		conditions.Delete(r.host, infrav1.HostResetConfirmedCondition)
		return true
	}
	h := r.host
	message := fmt.Sprintf("%s asks for a reset of the host, but %s. The reset would destroy the node %s with provider "+
		"ID %s, of %s (%s). Nothing was done. If that node is to be destroyed, confirm it by name: %s",
		infrav1.RetryAnnotation, why, nodeOf(h), id, machine, r.lastSeen(), annotate(h, infrav1.RetryAnnotation, id))
	r.setFalse(infrav1.HostResetConfirmedCondition, infrav1.HostConfirmationNeededReason, message)
	r.event("Warning", infrav1.HostConfirmationNeededReason, "%s", message)
	return false
}

// mayReset reports whether a person's word is enough to have a quarantined host reset. pending says that the host is
// being asked whether it serves somebody whom these objects do not know: they were registered anew, or their claim was
// taken off by hand.
func (r *reconciliation) mayReset(ctx context.Context) (ok bool, o outcome) {
	if r.claim.status == missing {
		ref := r.host.Spec.ConsumerRef
		return r.confirmed(r.host.ProviderID(), machineNamed(ref), consumerElsewhere(ref)), ready
	}
	if r.claim.status != unclaimed || r.host.GivenUp() || r.host.ReleasedUnclean() {
		return true, ready
	}
	probed, o := call(ctx, r, callServes, shortCall, r.controller.Provisioner.Probe)
	switch {
	case o.pending && r.host.Status.NextAttempt == nil:
		r.keepRetry()
		return false, o
	case o.pending:
		r.event("Warning", infrav1.HostConfirmationNeededReason, "%s asks for a reset of the host, which does not answer, "+
			"so nobody knows whether it serves a living node; ask again when it does", infrav1.RetryAnnotation)
		return false, o
	}
	record := probed.Owner
	if record == nil || record.Released() || record.Namespace != r.host.Namespace || record.Host != r.host.Name {
		// Somebody else's host is refused by whatever starts on it.
		return true, ready
	}
	return r.confirmed(infrav1.ProviderID(record.Namespace, record.Host, record.UID), "QuoinMachine "+record.Machine,
		fmt.Sprintf(
			"the host itself says that it serves QuoinMachine %s (claim %s, generation %d), of which this QuoinHost knows "+
				"nothing: another management cluster may have it",
			record.Machine, record.UID, record.Generation)), ready
}

func machineNamed(ref *infrav1.ConsumerReference) string {
	return fmt.Sprintf("Machine %s/%s", ref.Namespace, ref.Machine)
}

func consumerElsewhere(ref *infrav1.ConsumerReference) string {
	return fmt.Sprintf("QuoinMachine %s/%s, which has it, is not here and may be in another management cluster",
		ref.Namespace, ref.Name)
}

// forgetQuestion withdraws what confirmed asked for, once the consumer is there or the claim has ended.
func (r *reconciliation) forgetQuestion() {
	if r.claim.status != missing && (r.claim.status != unclaimed || r.host.Status.State != infrav1.HostStateQuarantined) {
		conditions.Delete(r.host, infrav1.HostResetConfirmedCondition)
	}
}

// nodeOf names the node as it registers, as far as that is known.
func nodeOf(host *infrav1.QuoinHost) string {
	if facts := host.Status.Facts; facts != nil && facts.Hostname != "" {
		return facts.Hostname
	}
	return "on " + host.Spec.Address
}

// lastSeen says when the host answered last, as well as this process knows.
func (r *reconciliation) lastSeen() string {
	if since := r.host.Status.UnreachableSince; since != nil {
		return "it has not answered since " + stamp(since.Time)
	}
	if at, ok := r.pace().last(lastAnswer); ok {
		return "it answered at " + stamp(at)
	}
	if c := conditions.Get(r.host, infrav1.HostReachableCondition); c != nil && c.Status == metav1.ConditionTrue {
		return "it answers since " + stamp(c.LastTransitionTime.Time)
	}
	return "it was not seen from here yet"
}

// moving reports whether the consumer is missing while a Cluster that it may belong to is paused.
func (r *reconciliation) moving() bool {
	return r.claim.status == missing && r.claim.cluster != nil && r.paused
}

// movingNote is what Ready says meanwhile.
func (r *reconciliation) movingNote() string {
	ref := r.host.Spec.ConsumerRef
	return fmt.Sprintf("QuoinMachine %s/%s is not here and Cluster %s/%s is paused, as clusterctl move does while the "+
		"objects move: nothing is done to the host. If no move is under way, "+noConsumer, ref.Namespace,
		ref.Name, ref.Namespace, r.claim.cluster.Name)
}

// bereft reports whether the host has a claim whose consumer is missing, and is not being reset already: a release ends
// without the QuoinMachine as a rule.
func bereft(host *infrav1.QuoinHost, c claim) bool {
	return c.status == missing && host.Status.State != infrav1.HostStateCleaning
}

// staysNote is what Ready says of a QuoinHost that is being deleted while its consumer is missing.
func (r *reconciliation) staysNote() string {
	h, ref := r.host, r.host.Spec.ConsumerRef
	return fmt.Sprintf("the QuoinHost is being deleted, but is claimed by QuoinMachine %s/%s, which is not here: it "+
		"stays, and nothing is done to the host, until that arrives and is deleted. If the host serves its Machine in "+
		"another management cluster, and only this object is to go: %s",
		ref.Namespace, ref.Name, annotate(h, infrav1.ForgetAnnotation, h.ProviderID()))
}

// forgotten reports whether a person said of a QuoinHost in deletion that its host stays with a consumer elsewhere.
func forgotten(host *infrav1.QuoinHost, c claim) bool {
	return !host.DeletionTimestamp.IsZero() && bereft(host, c) && !isDetached(host) &&
		host.Annotations[infrav1.ForgetAnnotation] == host.ProviderID()
}

// pausedCluster returns a paused Cluster of the namespace, which a claim whose Machine is not here may belong to; nil
// when there is none. Objects of its Machines are then on their way to or from another management cluster.
func (r *Reconciler) pausedCluster(ctx context.Context, namespace string) (*clusterv1.Cluster, error) {
	clusters := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the Clusters of namespace %s, where the consumer of a host is missing: %w", namespace,
			err)
	}
	slices.SortFunc(clusters.Items, func(a, b clusterv1.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	for i := range clusters.Items {
		if ptr.Deref(clusters.Items[i].Spec.Paused, false) {
			return &clusters.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // no Cluster is an answer
}
