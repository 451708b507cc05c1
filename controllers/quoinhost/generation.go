// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// adopted marks, while the process lives, that the host has not heard of the generation that adopt raised.
const adopted = "adopted"

func (t *turn) ownerRecord() owner.Record { return hostaccess.OwnerRecord(t.host) }

// adopt raises the generation of a claim whose host object has come from another management plane, or from a backup: its
// UID is not the one that raised it last. Only then may this plane change the host, and the one before no longer.
//
// A claim whose QuoinMachine is not there is not adopted: its objects may be on their way still, and the plane that they come
// from must be able to go on if they never arrive. A person who then has the host reset says that they never will.
func (t *turn) adopt() (bool, error) {
	h := t.host
	onItsWay := t.claim.standing == missing && h.Status.State != infrav1.HostStateCleaning
	if h.Spec.ConsumerRef == nil || onItsWay || h.UID == "" || h.Spec.ManagedBy == string(h.UID) {
		return false, nil
	}
	if err := t.raise(h.Spec.ClaimGeneration + 1); err != nil {
		return false, err
	}
	if h.Spec.ManagedBy != "" {
		t.event("Normal", "ClaimAdopted", "this management plane took over the host: generation %d of its claim", h.Spec.ClaimGeneration+1)
	}
	t.r.pace.mark(t.key(), adopted, t.now)
	return true, nil
}

// raise writes the generation down, optimistically: of two that raise it, one has to look again.
func (t *turn) raise(generation int64) error {
	changed := t.host.DeepCopy()
	changed.Spec.ClaimGeneration, changed.Spec.ManagedBy = generation, string(t.host.UID)
	if err := t.r.Client.Patch(t.ctx, changed, client.MergeFromWithOptions(t.host.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("raising the claim generation of QuoinHost %s: %w", t.key(), err)
	}
	return nil
}

// takeOver tells a host that serves our claim of the generation that was raised, so that the plane before is kept away from
// now on, and not from the next change of the host on.
func (t *turn) takeOver() outcome {
	record := t.ownerRecord()
	if o := order(t, fmt.Sprintf("take-over %d", record.Generation), shortExchange, func(ctx context.Context, host *infrav1.QuoinHost) error {
		return t.r.Exchanges.TakeOver(ctx, host, record)
	}); o.pending {
		return o
	}
	t.r.pace.unmark(t.key(), adopted)
	t.r.pace.unmark(t.key(), "probe")
	return ready
}

// catchUp raises the generation of a QuoinHost that was registered anew to that of its host. One that has managed the host
// before is not raised: that somebody else counted on says that it is the stale one.
func (t *turn) catchUp(record *owner.Record) (bool, error) {
	if record == nil || record.Generation <= t.host.Spec.ClaimGeneration || t.host.Spec.ManagedBy == string(t.host.UID) {
		return false, nil
	}
	return true, t.raise(record.Generation)
}

// raiseAtWord raises the generation above the host's, because a person says that the plane which it obeys is gone for good. The host is
// asked first: a generation that is not behind is no business of that word.
func (t *turn) raiseAtWord() (r result, handled bool, err error) {
	const op = "raise generation"
	if _, asked := t.host.Annotations[infrav1.RaiseGenerationAnnotation]; !asked {
		t.r.pace.unmark(t.key(), op)
		return result{}, false, nil
	}
	if !t.r.pace.marked(t.key(), op) {
		t.r.pace.mark(t.key(), op, t.now)
		t.forgetFailures()
	}
	pulse, o := exchange(t, op, shortExchange, t.r.Exchanges.Probe)
	if o.pending {
		return o.result, true, nil
	}
	var stale *owner.StaleError
	if pulse.Owner != nil {
		stale = asStale(owner.Check(t.ownerRecord(), *pulse.Owner))
	}
	if stale == nil {
		t.keepGeneration("the host knows nothing that is newer")
		return after(0), true, nil
	}
	generation := stale.Holder.Generation + 1
	if err := t.raise(generation); err != nil {
		return result{}, true, err
	}
	delete(t.host.Annotations, infrav1.RaiseGenerationAnnotation)
	t.event("Warning", "GenerationRaised", "at a person's word the generation of the host's claim is %d from now on; the host knew %d", generation, stale.Holder.Generation)
	t.r.pace.mark(t.key(), adopted, t.now)
	if c := usurped(t.host); c != nil && t.host.Status.State == infrav1.HostStateQuarantined {
		t.condition(c.Type, metav1.ConditionFalse, infrav1.HostNotCleanReason, fmt.Sprintf("the host served another management cluster; have it reset and verified: kubectl -n %s annotate quoinhost %s %s=",
			t.host.Namespace, t.host.Name, infrav1.RetryAnnotation))
	} else if c != nil {
		conditions.Delete(t.host, c.Type)
	}
	return after(0), true, nil
}

// keepGeneration answers a word that there is no cause for.
func (t *turn) keepGeneration(why string) {
	delete(t.host.Annotations, infrav1.RaiseGenerationAnnotation)
	t.event("Normal", "GenerationKept", "%s asks to raise the generation of the host's claim, but %s: it stays %d", infrav1.RaiseGenerationAnnotation, why, hostaccess.Generation(t.host))
}

// staleMessage says what the host knows that is newer, and what a person does who knows that this management plane is the right one.
func staleMessage(stale *owner.StaleError, host *infrav1.QuoinHost) string {
	copied := "delete its objects of the host"
	if stale.Order() {
		copied = "shut it down"
	}
	return fmt.Sprintf("%v. Only reading goes on. Where this plane is a copy, %s. If it is the right one, and the other is gone for good, "+
		"raise the generations of all its hosts: kubectl -n %s annotate quoinhosts --all %s=", stale, copied, host.Namespace, infrav1.RaiseGenerationAnnotation)
}

// compare judges the owner record that a host showed while it was only read. A finding stays until the host shows another.
func (t *turn) compare(record *owner.Record) (ok bool) {
	t.noteVoice(record)
	if record != nil {
		if err := owner.Check(t.ownerRecord(), *record); err != nil {
			t.find(err)
			return false
		}
	}
	if c := usurped(t.host); c != nil {
		conditions.Delete(t.host, c.Type)
	}
	return true
}

// find puts what a look at the host brought up into the conditions, and tells it once.
func (t *turn) find(err error) {
	f := explain(err, t.host)
	before := conditions.Get(t.host, f.condition)
	t.condition(f.condition, metav1.ConditionFalse, f.reason, f.message)
	if before == nil || before.Reason != f.reason || before.Status != metav1.ConditionFalse {
		t.event("Warning", f.reason, "%s", f.message)
	}
}

// usurped is the condition that says that the host serves somebody else, or a newer generation than ours.
func usurped(host *infrav1.QuoinHost) *metav1.Condition {
	kind, _ := subject(host.Status.State)
	c := conditions.Get(host, kind)
	if c == nil || c.Reason != infrav1.HostStaleClaimReason && c.Reason != infrav1.HostOwnedByOtherReason {
		return nil
	}
	return c
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
