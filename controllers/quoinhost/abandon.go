// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// abandonedWord is what fences a host that a person gave up.
const abandonedWord = "a person stated that the host does not run any more, and is gone or will be wiped"

// notAbandoned is why a person's word that gives the host up is not true of it; empty when it may be, or was not said.
func (r *reconciliation) notAbandoned() string {
	word, asked := r.host.Annotations[infrav1.AbandonAnnotation]
	switch {
	case !asked:
	case word != r.host.ProviderID():
		return fmt.Sprintf("it names %q, and the claim of the host is %q", word, r.host.ProviderID())
	case r.host.Answers():
		return "the host answers, so it runs, and the volumes of its Node would be freed under it"
	}
	return ""
}

// abandon takes a person's word that the host does not run any more, and is gone or will be wiped. It is the only way
// out for the Machine of a host that never answers again; only a retry, with a reset and its verification, leads the
// host back.
func (r *reconciliation) abandon() result {
	delete(r.host.Annotations, infrav1.AbandonAnnotation)
	// That it was mended was said before.
	delete(r.host.Annotations, infrav1.VerifyOnlyAnnotation)
	r.controller.Calls.Cancel(r.key())
	r.controller.PowerCalls.Cancel(r.key())
	r.enter(infrav1.HostStateQuarantined)
	r.forgetFailures()
	message := fmt.Sprintf(abandonedWord+"; nothing is done to it. To use it again, have it reset and verified: %s",
		annotate(r.host, infrav1.RetryAnnotation, ""))
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostAbandonedReason, message)
	r.condition(infrav1.HostFencedCondition, metav1.ConditionTrue, infrav1.HostFencedReason, abandonedWord)
	if ref := r.host.Spec.ConsumerRef; ref != nil {
		r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostAbandonedReason,
			fmt.Sprintf("the host was abandoned; delete Machine %s/%s so that another one replaces it", ref.Namespace,
				ref.Machine))
	}
	r.event("Warning", infrav1.HostAbandonedReason, "%s", message)
	return after(0)
}

// abandoned ends the claim of a host that was given up when QuoinMachine and Machine are gone. The host stays where it
// is.
func (r *reconciliation) abandoned(ctx context.Context) (result, error) {
	if r.host.Spec.ConsumerRef == nil {
		return onEvent(), nil
	}
	gone, _, err := r.controller.consumerGone(ctx, r.host)
	if err != nil {
		return result{}, err
	}
	if !gone {
		return after(r.timings().Probe / 6), nil
	}
	if err := r.endClaim(ctx); err != nil {
		return result{}, err
	}
	r.host.Status.Version = ""
	r.host.Status.AddonVersions = nil
	return onEvent(), nil
}

// endClaim takes the consumer off the host.
func (r *reconciliation) endClaim(ctx context.Context) error {
	if err := r.patch(ctx, "releasing", func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil }); err != nil {
		return err
	}
	r.host.Status.Operation = nil
	r.claim = claim{status: unclaimed}
	r.setFalse(infrav1.HostProvisionedCondition, infrav1.HostNotClaimedReason, "nobody has the host")
	return nil
}

// notePool writes down, while the Machine is still there to tell, which pool has the host. It is read when the host is
// free again; in metadata, because that is what survives a move.
func (r *reconciliation) notePool() {
	if r.claim.status != leaving && r.host.Status.State != infrav1.HostStateProvisioned {
		return
	}
	if pool := r.pool(); pool != "" {
		metav1.SetMetaDataAnnotation(&r.host.ObjectMeta, infrav1.FormerPoolAnnotation, pool)
	}
}

// pool of the claim's Machine; empty when nothing would replace it, or when it is gone.
func (r *reconciliation) pool() string {
	if r.claim.machine == nil {
		return ""
	}
	return placement.Pool(r.claim.machine)
}
