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

// consumerMissing holds still, and only looks at the host. Nobody saw the QuoinMachine being deleted, which its finalizer
// ensures, so it was forced away, is on its way from another management cluster, or lives there, where a move took it without
// the host. A reset would then destroy a node that is alive, and the generation of the claim would not keep us from it: a
// plane that never had the host's object has not raised it.
func (t *turn) consumerMissing() (result, error) {
	ref := t.host.Spec.ConsumerRef
	if _, asked := t.host.Annotations[infrav1.RaiseGenerationAnnotation]; asked {
		t.keepGeneration(fmt.Sprintf("QuoinMachine %s/%s, which has it, is not here", ref.Namespace, ref.Name))
	}
	if t.retried && t.confirmed(t.host.ProviderID(), machineNamed(ref), consumerElsewhere(ref)) {
		t.event("Warning", infrav1.HostConsumerMissingReason, "QuoinMachine %s/%s is gone; resetting its host at a person's word, confirmed", ref.Namespace, ref.Name)
		return t.moveTo(infrav1.HostStateCleaning)
	}
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionUnknown, infrav1.HostConsumerMissingReason, fmt.Sprintf(
		"QuoinMachine %s/%s, which claimed the host, is not here, and its deletion was not seen: it may be on its way from another management cluster, "+
			"or be there, while its node runs on this host. Nothing is done to the host. If Machine %s is in another management cluster, this QuoinHost was "+
			"left behind by a move and belongs there, with its Secrets. docs/hosts.md (A host without its consumer) has every way out",
		ref.Namespace, ref.Name, ref.Machine))
	return t.probe()
}

// confirmed reports whether a person who asks for the reset of a host that may serve somebody has said so twice, the second time
// with the name of what is lost: the provider ID of the node. The first word is answered with that, and with why it is asked.
func (t *turn) confirmed(id, machine, why string) bool {
	if conditions.Has(t.host, infrav1.HostResetConfirmedCondition) && t.word == id {
		conditions.Delete(t.host, infrav1.HostResetConfirmedCondition)
		return true
	}
	h := t.host
	message := fmt.Sprintf("%s asks for a reset of the host, but %s. "+
		"The reset would destroy the node %s with provider ID %s, of %s (%s). Nothing was done. If that node is to be destroyed, confirm it by name: "+
		"kubectl -n %s annotate quoinhost %s %s=%s", infrav1.RetryAnnotation, why, nodeOf(h), id, machine,
		t.lastSeen(), h.Namespace, h.Name, infrav1.RetryAnnotation, id)
	t.condition(infrav1.HostResetConfirmedCondition, metav1.ConditionFalse, infrav1.HostConfirmationNeededReason, message)
	t.event("Warning", infrav1.HostConfirmationNeededReason, "%s", message)
	return false
}

// mayReset reports whether a person's word is enough to have a quarantined host reset. pending says that the host is being asked whether
// it serves somebody whom these objects do not know: they were registered anew, or their claim was taken off by hand.
func (t *turn) mayReset() (ok bool, o outcome) {
	if t.claim.standing == missing {
		ref := t.host.Spec.ConsumerRef
		return t.confirmed(t.host.ProviderID(), machineNamed(ref), consumerElsewhere(ref)), ready
	}
	if t.claim.standing != unclaimed || t.host.GivenUp() {
		return true, ready
	}
	pulse, o := exchange(t, "whom it serves", shortExchange, t.r.Exchanges.Probe)
	switch {
	case o.pending && t.host.Status.NextAttempt == nil:
		t.keepRetry()
		return false, o
	case o.pending:
		t.event("Warning", infrav1.HostConfirmationNeededReason, "%s asks for a reset of the host, which does not answer, so nobody knows whether it serves a living node; ask again when it does",
			infrav1.RetryAnnotation)
		return false, o
	}
	record := pulse.Owner
	if record == nil || record.Released() || record.Namespace != t.host.Namespace || record.Host != t.host.Name {
		// Somebody else's host is refused by whatever starts on it.
		return true, ready
	}
	return t.confirmed(infrav1.ProviderID(record.Namespace, record.Host, record.UID), "QuoinMachine "+record.Machine, fmt.Sprintf(
		"the host itself says that it serves QuoinMachine %s (claim %s, generation %d), of which this QuoinHost knows nothing: another management cluster may have it",
		record.Machine, record.UID, record.Generation)), ready
}

func machineNamed(ref *infrav1.ConsumerReference) string {
	return fmt.Sprintf("Machine %s/%s", ref.Namespace, ref.Machine)
}

func consumerElsewhere(ref *infrav1.ConsumerReference) string {
	return fmt.Sprintf("QuoinMachine %s/%s, which has it, is not here and may be in another management cluster", ref.Namespace, ref.Name)
}

// forgetQuestion withdraws what confirmed asked for, once the consumer is there or the claim has ended.
func (t *turn) forgetQuestion() {
	if t.claim.standing != missing && (t.claim.standing != unclaimed || t.host.Status.State != infrav1.HostStateQuarantined) {
		conditions.Delete(t.host, infrav1.HostResetConfirmedCondition)
	}
}

// answer marks when the host answered last.
const answer = "answer"

// nodeOf names the node as it registers, as far as that is known.
func nodeOf(host *infrav1.QuoinHost) string {
	if facts := host.Status.Facts; facts != nil && facts.Hostname != "" {
		return facts.Hostname
	}
	return "on " + host.Spec.Address
}

// lastSeen says when the host answered last, as well as this process knows.
func (t *turn) lastSeen() string {
	if since := t.host.Status.UnreachableSince; since != nil {
		return "it has not answered since " + stamp(since.Time)
	}
	if at := t.r.pace.last(t.key(), answer); !at.IsZero() {
		return "it answered at " + stamp(at)
	}
	if c := conditions.Get(t.host, infrav1.HostReachableCondition); c != nil && c.Status == metav1.ConditionTrue {
		return "it answers since " + stamp(c.LastTransitionTime.Time)
	}
	return "it was not seen from here yet"
}

// moving reports whether the consumer is missing while a Cluster that it may belong to is paused.
func (t *turn) moving() bool {
	return t.claim.standing == missing && t.claim.cluster != nil && t.paused
}

// movingNote is what Ready says meanwhile.
func (t *turn) movingNote() string {
	ref := t.host.Spec.ConsumerRef
	return fmt.Sprintf("QuoinMachine %s/%s is not here and Cluster %s/%s is paused, as clusterctl move does while the objects move: nothing is done to the host. "+
		"If no move is under way, docs/hosts.md (A host without its consumer) has every way out", ref.Namespace, ref.Name, ref.Namespace, t.claim.cluster.Name)
}

// bereft reports whether the host has a claim whose consumer is missing, and is not being reset already: a release ends without
// the QuoinMachine as a rule.
func bereft(host *infrav1.QuoinHost, c claim) bool {
	return c.standing == missing && host.Status.State != infrav1.HostStateCleaning
}

// staysNote is what Ready says of a QuoinHost that is being deleted while its consumer is missing.
func (t *turn) staysNote() string {
	h, ref := t.host, t.host.Spec.ConsumerRef
	return fmt.Sprintf("the QuoinHost is being deleted, but is claimed by QuoinMachine %s/%s, which is not here: it stays, and nothing is done to the host, until that arrives and is deleted. "+
		"If the host serves its Machine in another management cluster, and only this object is to go: kubectl -n %s annotate quoinhost %s %s=%s",
		ref.Namespace, ref.Name, h.Namespace, h.Name, infrav1.ForgetAnnotation, h.ProviderID())
}

// forgotten reports whether a person said of a QuoinHost in deletion that its host stays with a consumer elsewhere.
func forgotten(host *infrav1.QuoinHost, c claim) bool {
	return !host.DeletionTimestamp.IsZero() && bereft(host, c) && !isDetached(host) &&
		host.Annotations[infrav1.ForgetAnnotation] == host.ProviderID()
}

// pausedCluster returns a paused Cluster of the namespace, which a claim whose Machine is not here may belong to; nil when
// there is none. Objects of its Machines are then on their way to or from another management cluster.
func (r *Reconciler) pausedCluster(ctx context.Context, namespace string) (*clusterv1.Cluster, error) {
	clusters := &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the Clusters of namespace %s, where the consumer of a host is missing: %w", namespace, err)
	}
	slices.SortFunc(clusters.Items, func(a, b clusterv1.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	for i := range clusters.Items {
		if ptr.Deref(clusters.Items[i].Spec.Paused, false) {
			return &clusters.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // no Cluster is an answer
}
