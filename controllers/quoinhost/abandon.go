// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// abandonedWord is what fences a host that a person gave up.
const abandonedWord = "a person stated that the host does not run any more, and is gone or will be wiped"

// abandon takes a person's word that the host does not run any more, and is gone or will be wiped. It is the only way out for the Machine of a host
// that never answers again; only a retry, with a reset and its verification, leads the host back.
func (t *turn) abandon() (result, error) {
	delete(t.host.Annotations, infrav1.AbandonAnnotation)
	t.r.Calls.Cancel(t.key())
	t.r.PowerCalls.Cancel(t.key())
	t.enter(infrav1.HostStateQuarantined)
	t.forgetFailures()
	message := fmt.Sprintf(abandonedWord+"; nothing is done to it. To use it again, have it reset and verified: "+
		"kubectl -n %s annotate quoinhost %s %s=", t.host.Namespace, t.host.Name, infrav1.RetryAnnotation)
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostAbandonedReason, message)
	t.condition(infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, abandonedWord)
	if ref := t.host.Spec.ConsumerRef; ref != nil {
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostAbandonedReason,
			fmt.Sprintf("the host was abandoned; delete Machine %s/%s so that another one replaces it", ref.Namespace, ref.Machine))
	}
	t.event("Warning", infrav1.HostAbandonedReason, "%s", message)
	return after(0), nil
}

// abandoned ends the claim of a host that was given up when QuoinMachine and Machine are gone. The host stays where it is.
func (t *turn) abandoned() (result, error) {
	if t.host.Spec.ConsumerRef == nil {
		return onEvent(), nil
	}
	gone, _, err := t.r.consumerGone(t.ctx, t.host)
	if err != nil {
		return result{}, err
	}
	if !gone {
		return after(probeEvery / 6), nil
	}
	if err := t.endClaim(); err != nil {
		return result{}, err
	}
	t.host.Status.Version = ""
	t.host.Status.AddonVersions = nil
	return onEvent(), nil
}

// endClaim takes the consumer off the host.
func (t *turn) endClaim() error {
	changed := t.host.DeepCopy()
	changed.Spec.ConsumerRef = nil
	if err := t.r.Client.Patch(t.ctx, changed, client.MergeFromWithOptions(t.host.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("releasing QuoinHost %s: %w", t.key(), err)
	}
	t.host.Status.Operation = nil
	t.claim = claim{standing: unclaimed}
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostNotClaimedReason, "nobody has the host")
	return nil
}

// notePool writes down, while the Machine is still there to tell, which pool has the host. It is read when the host is free
// again; in metadata, because that is what survives a move.
func (t *turn) notePool() {
	if t.claim.standing != leaving && t.host.Status.State != infrav1.HostStateProvisioned {
		return
	}
	if pool := t.pool(); pool != "" {
		metav1.SetMetaDataAnnotation(&t.host.ObjectMeta, infrav1.FormerPoolAnnotation, pool)
	}
}

// pool of the claim's Machine; empty when nothing would replace it, or when it is gone.
func (t *turn) pool() string {
	if t.claim.machine == nil {
		return ""
	}
	return placement.Pool(t.claim.machine)
}

// wayOut tells of abandon, where a deletion waits for a host that may never answer again.
func (t *turn) wayOut() string {
	return fmt.Sprintf(". If the host does not run any more, and is gone for good or will be wiped, end the wait without a reset (its Node's volumes are freed then): kubectl -n %s annotate quoinhost %s %s=",
		t.host.Namespace, t.host.Name, infrav1.AbandonAnnotation)
}
