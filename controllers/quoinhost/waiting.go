// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/utils/ptr"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// waiting completes the sentence of Ready: since when nothing answers, when the next attempt is, and how to have it now.
// The obstacle's own condition keeps the sentence without it, because that is the same at every attempt.
func (t *turn) waiting(status metav1.ConditionStatus, reason, message string) string {
	h := t.host
	var notes []string
	if since := h.Status.UnreachableSince; since != nil {
		notes = append(notes, "silent since "+stamp(since.Time))
	}
	if next := h.Status.NextAttempt; next != nil && status != metav1.ConditionTrue {
		note := "next attempt at " + stamp(next.Time)
		if n := ptr.Deref(h.Status.Failures, 0); n > 0 {
			note = fmt.Sprintf("failed %d times in a row, %s", n, note)
		}
		if !bereft(h, t.claim) {
			// There, it is the first half of the word that resets the host.
			note += fmt.Sprintf("; to try now: kubectl -n %s annotate quoinhost %s %s=", h.Namespace, h.Name, infrav1.RetryAnnotation)
		}
		notes = append(notes, note)
	}
	if t.paused && !isDetached(h) && reason != infrav1.HostMovingReason {
		notes = append(notes, pausedNote(h))
	}
	if h.Spec.Maintenance != nil && reason != infrav1.HostMaintenanceReason {
		notes = append(notes, maintenanceNote(h, "nothing new is started"))
	}
	if len(notes) == 0 {
		return message
	}
	if message = strings.TrimRight(message, "."); message != "" {
		message += ". "
	}
	return message + strings.Join(notes, ". ")
}

// stamp is a moment as a person reads it, to the second: what is shown must not change with every look.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
