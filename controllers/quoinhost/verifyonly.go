// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// saidBegin comes before what a host said of whom it serves, where something was found there since.
const saidBegin = ". Before that it said: "

// reading is what a host answered to a verification without a reset.
type reading struct {
	reset.Verification
	// serves is set when the host says that it serves somebody whom its QuoinHost does not know; nothing was verified.
	serves *owner.Record
	// refused is why the host could not be verified, in its own words.
	refused error
}

// verifyOnly verifies a quarantined host that a person mended, and resets nothing. The host is Quarantined until it has
// passed, and the annotation stays until it has answered: whoever finds it after a kill verifies once more. There is
// one attempt, so that the answer is about the host as the person left it.
func (r *reconciliation) verifyOnly(ctx context.Context) (result, error) {
	word := r.host.Annotations[infrav1.VerifyOnlyAnnotation]
	if r.claim.status == missing && word != r.host.ProviderID() {
		return r.notAsked(fmt.Sprintf("%s. If the host is to go on all the same when nothing is found there: %s",
			consumerElsewhere(r.host.Spec.ConsumerRef),
			annotate(r.host, infrav1.VerifyOnlyAnnotation, r.host.ProviderID())))
	}
	// What is counted is of before the word.
	r.forgetFailures()
	id := r.nextReset()
	order := r.cleanOrder(id)
	order.RebootFollows = ptr.Deref(r.host.Spec.Cleaning.Reboot, false)
	known := r.claim.status != unclaimed || r.host.GivenUp() || r.host.ReleasedUnclean()
	read, o := call(ctx, r, callVerifyOnly(word), shortCall,
		func(ctx context.Context, host *infrav1.QuoinHost) (reading, error) {
			return r.controller.read(ctx, host, order, known, word)
		})
	switch {
	case o.pending && r.host.Status.NextAttempt == nil:
		return o.result, nil
	case o.pending:
		r.forgetFailures()
		r.takeBack(infrav1.VerifyOnlyAnnotation, "the host did not answer, or not to the end; ask again when it does: "+
			r.failure)
		return r.stayQuarantined(ctx)
	case read.serves != nil:
		id := infrav1.ProviderID(read.serves.Namespace, read.serves.Host, read.serves.UID)
		return r.notAsked(fmt.Sprintf("the host itself says that it serves QuoinMachine %s "+
			"(claim %s, generation %d), of which this QuoinHost knows nothing: another management cluster may have it. If it "+
			"is to be taken from that when nothing is found there: %s", read.serves.Machine, read.serves.UID,
			read.serves.Generation, annotate(r.host, infrav1.VerifyOnlyAnnotation, id)))
	case read.refused != nil:
		f := explain(read.refused, r.host)
		return r.notVerified(f.reason, "the host could not be verified: "+f.message+r.because())
	case len(read.Findings) > 0:
		return r.notVerified(infrav1.HostNotCleanReason, "verified without a reset: "+listed(read.Findings))
	}
	return r.verified(id, order.RebootFollows, read.Skipped)
}

// read is the conversation. known says that whomever the host serves, its QuoinHost knows of; word names somebody else
// whom a person takes it from.
func (r *Reconciler) read(
	ctx context.Context, host *infrav1.QuoinHost, order CleanOrder, known bool, word string,
) (reading, error) {
	if !known {
		probed, err := r.Provisioner.Probe(ctx, host)
		if err != nil {
			return reading{}, err
		}
		if o := probed.Owner; o != nil && !o.Released() && o.Namespace == host.Namespace && o.Host == host.Name &&
			word != infrav1.ProviderID(o.Namespace, o.Host, o.UID) {
			return reading{serves: o}, nil
		}
	}
	verified, err := r.Provisioner.Verify(ctx, host, order)
	if err != nil && answered(err) {
		return reading{refused: err}, nil
	}
	return reading{Verification: verified}, err
}

// notAsked keeps the host for its reason, and says what a person has to say first.
func (r *reconciliation) notAsked(why string) (result, error) {
	return r.notVerified(conditions.GetReason(r.host, infrav1.HostCleanCondition), infrav1.VerifyOnlyAnnotation+
		" did nothing: "+why+r.because())
}

// notVerified keeps the host where it is, and says what was found. What a person said of it before stays, but that it
// does not run: it answers. So does that it serves somebody else, which is asked last: that nothing of a node is left
// comes first.
func (r *reconciliation) notVerified(reason, found string) (result, error) {
	delete(r.host.Annotations, infrav1.VerifyOnlyAnnotation)
	found = text.Shorten(found, 2*maxCause)
	switch c := usurped(r.host); {
	case c != nil && !usurps(reason):
		reason, found = c.Reason, text.Shorten(found, maxCause)+saidBegin+text.Shorten(served(c.Message), maxCause)
	case r.host.GivenUp() && r.running:
		reason = infrav1.HostReturnedReason
	case r.host.ReleasedUnclean():
		reason = infrav1.HostReleasedUncleanReason
	}
	message := found + waysOut(r.host, r.machineWaits() && !r.host.GivenUp() && !r.host.ReleasedUnclean() &&
		!usurps(reason))
	r.setFalse(infrav1.HostCleanCondition, reason, message)
	r.event("Warning", reason, "%s", message)
	return after(0), nil
}

// served is whom a host serves by a message, without what was found there since.
func served(message string) string {
	before, _, _ := strings.Cut(message, waysBegin)
	if _, last, found := strings.Cut(before, saidBegin); found {
		return last
	}
	return before
}

// verified takes a host on which nothing was found out of its quarantine, to where a verified reset ends, or to the
// boot that comes between its two verifications. The attempt has no plan: none ran.
func (r *reconciliation) verified(id string, rebootFollows bool, skipped []string) (result, error) {
	delete(r.host.Annotations, infrav1.VerifyOnlyAnnotation)
	r.lifted = true
	r.event("Normal", "VerifiedOnly", "nothing was found on the host, which was verified without a reset at a person's "+
		"word")
	r.record(id, run.Status{Phase: run.Succeeded})
	r.enter(infrav1.HostStateCleaning)
	if rebootFollows {
		r.host.Status.Operation.Step = stageVerified
		r.setFalse(infrav1.HostCleanCondition, infrav1.HostCleaningReason, "nothing was found on the host; it reboots, and "+
			"is verified once more")
		return r.moveTo(infrav1.HostStateCleaning), nil
	}
	return r.clean(skipped)
}
