// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

func (r *reconciliation) ownerRecord() owner.Record { return hostaccess.OwnerRecord(r.host) }

// adopt raises the generation of a claim whose host object has come from another management cluster, or from a backup:
// its UID is not the one that raised it last. Only then may this cluster change the host, and the one before no longer.
//
// A claim whose QuoinMachine is not there is not adopted: its objects may be on their way still, and the plane that
// they come from must be able to go on if they never arrive. A person who then has the host reset says that they never
// will.
func (r *reconciliation) adopt(ctx context.Context) (bool, error) {
	h := r.host
	onItsWay := r.claim.status == missing && h.Status.State != infrav1.HostStateCleaning
	if h.Spec.ConsumerRef == nil || onItsWay || h.UID == "" || h.Spec.ManagedBy == string(h.UID) {
		return false, nil
	}
	if err := r.bumpToken(ctx, h.Spec.ClaimGeneration+1); err != nil {
		return false, err
	}
	if h.Spec.ManagedBy != "" {
		r.event("Normal", "ClaimAdopted", "this management plane took over the host: generation %d of its claim",
			h.Spec.ClaimGeneration+1)
	}
	r.pace().mark(adopted)
	return true, nil
}

// bumpToken writes the generation down, optimistically: of two that raise it, one has to look again.
func (r *reconciliation) bumpToken(ctx context.Context, generation int64) error {
	return r.patch(ctx, "raising the claim generation of", func(h *infrav1.QuoinHost) {
		h.Spec.ClaimGeneration, h.Spec.ManagedBy = generation, string(h.UID)
	})
}

// acquireToken tells a host that serves our claim of the generation that was raised, so that the cluster before is kept
// away from now on, and not from the next change of the host on.
func (r *reconciliation) acquireToken(ctx context.Context) outcome {
	record := r.ownerRecord()
	op := callAcquire(strconv.FormatInt(record.Generation, 10))
	if o := command(ctx, r, op, shortCall, record, r.controller.Provisioner.AcquireToken); o.pending {
		return o
	}
	r.pace().unmark(adopted)
	r.pace().unmark(callProbe)
	return ready
}

// syncToken raises the generation of a QuoinHost that was registered anew to that of its host. One that has managed the
// host before is not raised: that somebody else counted on says that it is the stale one.
func (r *reconciliation) syncToken(ctx context.Context, record *owner.Record) (bool, error) {
	if record == nil || record.Generation <= r.host.Spec.ClaimGeneration || r.host.Spec.ManagedBy == string(r.host.UID) {
		return false, nil
	}
	return true, r.bumpToken(ctx, record.Generation)
}

// bumpTokenAtWord raises the generation above the host's, because a person says that the plane which it obeys is gone
// for good. The host is asked first: a generation that is not behind is no business of that word.
func (r *reconciliation) bumpTokenAtWord(ctx context.Context) (res result, handled bool, err error) {
	op := callGeneration
	if _, asked := r.host.Annotations[infrav1.RaiseGenerationAnnotation]; !asked {
		r.pace().unmark(op)
		return result{}, false, nil
	}
	if !r.pace().marked(op) {
		r.pace().mark(op)
		r.forgetFailures()
	}
	probed, o := call(ctx, r, op, shortCall, r.controller.Provisioner.Probe)
	if o.pending {
		return o.result, true, nil
	}
	var stale *owner.StaleError
	if probed.Owner != nil {
		stale = asStale(owner.Check(r.ownerRecord(), *probed.Owner))
	}
	if stale == nil {
		r.keepGeneration("the host knows nothing that is newer")
		return after(0), true, nil
	}
	generation := stale.Holder.Generation + 1
	if err := r.bumpToken(ctx, generation); err != nil {
		return result{}, true, err
	}
	delete(r.host.Annotations, infrav1.RaiseGenerationAnnotation)
	r.event("Warning", "GenerationRaised", "at a person's word the generation of the host's claim is %d from now on; "+
		"the host knew %d", generation, stale.Holder.Generation)
	r.pace().mark(adopted)
	if c := usurped(r.host); c != nil && r.host.Status.State == infrav1.HostStateQuarantined {
		r.setFalse(c.Type, infrav1.HostNotCleanReason, fmt.Sprintf("the host served another management cluster; have it "+
			"reset and verified: %s", annotate(r.host, infrav1.RetryAnnotation, "")))
	} else if c != nil {
		conditions.Delete(r.host, c.Type)
	}
	return after(0), true, nil
}

// keepGeneration answers a word that there is no cause for.
func (r *reconciliation) keepGeneration(why string) {
	delete(r.host.Annotations, infrav1.RaiseGenerationAnnotation)
	r.event("Normal", "GenerationKept", "%s asks to raise the generation of the host's claim, but %s: it stays %d",
		infrav1.RaiseGenerationAnnotation, why, hostaccess.Generation(r.host))
}

// staleMessage says what the host knows that is newer, and what a person does who knows that this management cluster is
// the right one.
func staleMessage(stale *owner.StaleError, host *infrav1.QuoinHost) string {
	copied := "delete its objects of the host"
	if stale.Order() {
		copied = "shut it down"
	}
	return fmt.Sprintf("%v. Only reading goes on. Where this plane is a copy, %s. If it is the right one, and the other "+
		"is gone for good, raise the generations of all its hosts: kubectl -n %s annotate quoinhosts --all %s=", stale,
		copied, host.Namespace, infrav1.RaiseGenerationAnnotation)
}

// compare judges the owner record that a host showed while it was only read. A finding stays until the host shows
// another.
func (r *reconciliation) compare(record *owner.Record) (ok bool) {
	r.noteVoice(record)
	if record != nil {
		if err := owner.Check(r.ownerRecord(), *record); err != nil {
			r.find(err)
			return false
		}
	}
	if c := usurped(r.host); c != nil {
		conditions.Delete(r.host, c.Type)
	}
	return true
}

// find puts what a look at the host brought up into the conditions, and tells it once.
func (r *reconciliation) find(err error) {
	f := explain(err, r.host)
	before := conditions.Get(r.host, f.condition)
	r.setFalse(f.condition, f.reason, f.message)
	if before == nil || before.Reason != f.reason || before.Status != metav1.ConditionFalse {
		r.event("Warning", f.reason, "%s", f.message)
	}
}

// usurped is the condition that says that the host serves somebody else, or a newer generation than ours.
func usurped(host *infrav1.QuoinHost) *metav1.Condition {
	kind, _ := subject(host.Status.State)
	c := conditions.Get(host, kind)
	if c == nil || !usurps(c.Reason) {
		return nil
	}
	return c
}

func usurps(reason string) bool {
	return reason == infrav1.HostStaleClaimReason || reason == infrav1.HostOwnedByOtherReason
}

// recordOf reads the owner record among the facts of a host; nil when there is none.
func recordOf(raw string) (*owner.Record, error) {
	if raw == "" {
		return nil, nil //nolint:nilnil // no record is an answer
	}
	return owner.Parse(raw)
}

func asStale(err error) *owner.StaleError {
	var stale *owner.StaleError
	if errors.As(err, &stale) {
		return stale
	}
	return nil
}
