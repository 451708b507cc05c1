// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// maxMessage is below what the API server takes (32768), and more than anybody reads. An obstacle has half of it in
// Ready, so that what a person can do about it always follows; its own condition has the rest.
const (
	maxMessage  = 4096
	maxObstacle = maxMessage / 2
)

func (r *reconciliation) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(r.host, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text.Shorten(message, maxMessage),
		ObservedGeneration: r.host.Generation,
	})
}

func (r *reconciliation) setTrue(kind, reason string) {
	r.condition(kind, metav1.ConditionTrue, reason, "")
}

func (r *reconciliation) setFalse(kind, reason, message string) {
	r.condition(kind, metav1.ConditionFalse, reason, message)
}

// warn sets a condition to False, and says so in an event unless it says this already.
func (r *reconciliation) warn(kind, reason, message string) {
	if !r.isFalse(kind, message) {
		r.event("Warning", reason, "%s", message)
	}
	r.setFalse(kind, reason, message)
}

// isFalse says whether the condition says this already, so that an event is not repeated.
func (r *reconciliation) isFalse(kind, message string) bool {
	return conditions.IsFalse(r.host, kind) && conditions.GetMessage(r.host, kind) == text.Shorten(message, maxMessage)
}

func (r *reconciliation) isUnsuitable() bool {
	return conditions.IsFalse(r.host, infrav1.HostInspectedCondition)
}

// summarize completes the conditions and derives Ready: the first obstacle on the way, or what the state waits for.
func (r *reconciliation) summarize() {
	h := r.host
	for _, kind := range []string{infrav1.HostReachableCondition, infrav1.HostKeyVerifiedCondition,
		infrav1.HostInspectedCondition, infrav1.HostProvisionedCondition, infrav1.HostCleanCondition} {
		if !conditions.Has(h, kind) {
			r.setFalse(kind, infrav1.HostNotReachedReason, "the host was not reached yet")
		}
	}
	if h.Status.State != infrav1.HostStateProvisioned {
		conditions.Delete(h, infrav1.HostAddonImagesCondition)
	}
	r.forgetStaged()
	status, reason, message := readiness(h)
	if r.moving() && !isDetached(h) {
		status, reason, message = metav1.ConditionFalse, infrav1.HostMovingReason, r.movingNote()
	}
	message = r.waiting(status, reason, message)
	if !h.DeletionTimestamp.IsZero() {
		ref := h.Spec.ConsumerRef
		status, reason = metav1.ConditionFalse, clusterv1.DeletingReason
		what := "the host goes when its claim has ended"
		switch {
		case ref != nil && bereft(h, r.claim):
			what = r.staysNote()
		case ref != nil:
			what = fmt.Sprintf("the host is claimed by QuoinMachine %s/%s and goes when that is gone; delete Machine %s to "+
				"end the claim", ref.Namespace, ref.Name, ref.Machine)
		}
		if message != "" {
			what += " (" + message + ")"
		}
		message = what
	}
	r.condition(infrav1.HostReadyCondition, status, reason, message)
	states.set(r.key(), h.Status.State)
}

// readiness is True while the host is reachable, trusted and in the state that its claim asks for.
func readiness(h *infrav1.QuoinHost) (metav1.ConditionStatus, string, string) {
	obstacles := []string{infrav1.HostKeyVerifiedCondition, infrav1.HostReachableCondition}
	switch h.Status.State {
	case infrav1.HostStateRegistering:
		// The key counts as not verified until the first contact; what keeps us from that comes first.
		if !hasReason(h, infrav1.HostKeyVerifiedCondition, infrav1.HostKeyChangedReason) &&
			!hasReason(h, infrav1.HostKeyVerifiedCondition, infrav1.HostKeyMissingReason) {
			obstacles = []string{infrav1.HostReachableCondition, infrav1.HostKeyVerifiedCondition}
		}
	case infrav1.HostStateInspecting, infrav1.HostStateAvailable:
		obstacles = append(obstacles, infrav1.HostInspectedCondition)
	case infrav1.HostStateClaimed, infrav1.HostStateProvisioning, infrav1.HostStateProvisioned:
		obstacles = append(obstacles, infrav1.HostProvisionedCondition)
	case infrav1.HostStateCleaning:
		obstacles = append(obstacles, infrav1.HostCleanCondition)
	case infrav1.HostStateQuarantined:
		// Nobody tries to reach it, and after a move nobody has yet.
		obstacles = []string{infrav1.HostCleanCondition}
	}
	switch c := usurped(h); {
	case isDetached(h):
		obstacles = []string{infrav1.HostReachableCondition}
	case c != nil && hasReason(h, infrav1.HostProvisionedCondition, infrav1.HostConsumerMissingReason):
		// The host itself says where its consumer is.
		obstacles = []string{c.Type}
	case c != nil:
		obstacles = append(obstacles, c.Type)
	case conditions.IsFalse(h, infrav1.HostResetConfirmedCondition):
		obstacles = []string{infrav1.HostResetConfirmedCondition}
	case refusedClaim(h):
		obstacles = []string{infrav1.HostProvisionedCondition}
	case h.GivenUp(), h.ReleasedUnclean():
		// Nobody waits for it any more.
		obstacles = []string{infrav1.HostCleanCondition}
	case h.Status.UnreachableSince != nil && conditions.IsFalse(h, infrav1.HostFencedCondition):
		// More than that it does not answer: what is done about it.
		obstacles = []string{infrav1.HostFencedCondition}
	}
	for _, kind := range obstacles {
		if c := conditions.Get(h, kind); c != nil && c.Status != metav1.ConditionTrue {
			return metav1.ConditionFalse, c.Reason, c.Message
		}
	}
	switch h.Status.State {
	case infrav1.HostStateAvailable:
		if h.Spec.Maintenance != nil {
			return metav1.ConditionFalse, infrav1.HostMaintenanceReason, maintenanceNote(h, "nobody can claim the host")
		}
		return metav1.ConditionTrue, infrav1.HostAvailableReason, ""
	case infrav1.HostStateProvisioned:
		return metav1.ConditionTrue, infrav1.HostProvisionedReason, ""
	case infrav1.HostStateCleaning:
		return metav1.ConditionFalse, infrav1.HostReleasePendingReason, conditions.GetMessage(h, infrav1.HostCleanCondition)
	}
	return metav1.ConditionFalse, string(h.Status.State), "the host is " + string(h.Status.State)
}

func hasReason(h *infrav1.QuoinHost, kind, reason string) bool {
	return conditions.GetReason(h, kind) == reason
}

// patchStatus writes down what the reconcile came to, in one request as a rule. Nobody else writes the status, so its
// conditions need no merging with those of others. The annotations by which a person gave an order go last: until the
// rest is written, a manager that dies must find them again. To carry an order out twice changes nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, host *infrav1.QuoinHost) error {
	wanted := host.DeepCopy()
	for name, value := range before.Annotations {
		if _, kept := host.Annotations[name]; !kept {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, name, value)
		}
	}
	if !maps.Equal(before.Annotations, host.Annotations) {
		noted := before.DeepCopy()
		noted.Annotations = host.Annotations
		if err := r.Client.Patch(ctx, noted, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("noting annotations on QuoinHost %s/%s: %w", host.Namespace, host.Name, err)
		}
	}
	if !equality.Semantic.DeepEqual(before.Status, host.Status) {
		patched := before.DeepCopy()
		patched.Status = host.Status
		if err := r.Client.Status().Patch(ctx, patched, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("patching the status of QuoinHost %s/%s: %w", host.Namespace, host.Name, err)
		}
	}
	if len(host.Annotations) == len(wanted.Annotations) {
		return nil
	}
	if err := r.Client.Patch(ctx, wanted, client.MergeFrom(host)); err != nil {
		return fmt.Errorf("removing the annotations of QuoinHost %s/%s that were carried out: %w", host.Namespace, host.Name,
			err)
	}
	return nil
}

// waiting completes the sentence of Ready: since when nothing answers, when the next attempt is, and how to have it
// now. The obstacle's own condition keeps the sentence without it, because that is the same at every attempt.
func (r *reconciliation) waiting(status metav1.ConditionStatus, reason, message string) string {
	h := r.host
	var notes []string
	if since := h.Status.UnreachableSince; since != nil {
		notes = append(notes, "silent since "+stamp(since.Time))
	}
	if next := h.Status.NextAttempt; next != nil && status != metav1.ConditionTrue {
		note := "next attempt at " + stamp(next.Time)
		if n := ptr.Deref(h.Status.Failures, 0); n > 0 {
			note = fmt.Sprintf("failed %d times in a row, %s", n, note)
		}
		if !bereft(h, r.claim) && h.Status.State != infrav1.HostStateQuarantined {
			// There, it is a word, or the first half of one, that resets the host.
			note += "; to try now: " + annotate(h, infrav1.RetryAnnotation, "")
		}
		notes = append(notes, note)
	}
	if r.crowded != "" {
		notes = append(notes, r.crowded)
	}
	if word := r.uncleanNote(); word != "" {
		notes = append(notes, word)
	}
	if r.paused && !isDetached(h) && reason != infrav1.HostMovingReason {
		notes = append(notes, pausedNote(h))
	}
	if c := conditions.Get(h, infrav1.HostUnchangedCondition); c != nil && status == metav1.ConditionTrue {
		notes = append(notes, c.Message)
	}
	if h.Spec.Maintenance != nil && reason != infrav1.HostMaintenanceReason {
		notes = append(notes, maintenanceNote(h, "nothing new is started"))
	}
	shown := text.Shorten(strings.TrimRight(message, "."), maxObstacle)
	if status == metav1.ConditionFalse {
		if way := r.wayOn(shown + strings.Join(notes, "")); way != "" {
			notes = append(notes, way)
		}
	}
	if len(notes) == 0 {
		return message
	}
	if shown != "" {
		shown += ". "
	}
	return shown + strings.Join(notes, ". ")
}

// stamp is a moment as a person reads it, to the second: what is shown must not change with every look.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
