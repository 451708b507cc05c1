// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// nothingRuns is the message of a quiet host.
const nothingRuns = "nothing of ours runs on the host"

// watchOnly is a reconcile of a host that is paused or held: nothing new starts, and what runs is seen to its end.
// Quiet says whether it has ended: clusterctl move is kept from copying the objects until then.
func (r *reconciliation) watchOnly(ctx context.Context) result {
	if op, under := r.conversation(); under {
		// A look at the plan is no news: what the last one found stays.
		if !strings.HasPrefix(op, "follow ") || !conditions.Has(r.host, infrav1.HostQuietCondition) {
			r.busy(fmt.Sprintf("a conversation with the host has not ended yet (%s)", op))
		}
		return onEvent()
	}
	operation := r.host.Status.Operation
	if operation == nil || operation.Final() || r.pace().marked(askedWhilePaused) {
		r.quiet(nothingRuns)
		return onEvent()
	}
	if operation.Phase != infrav1.HostOperationRunning {
		// It may have been handed over just before the pause, by this process or the one before: the host knows.
		r.pace().unmark(callFollow(operation.ID))
	}
	status, o := r.follow(ctx, operation.ID)
	switch {
	case status.Phase == "":
		if r.host.Status.NextAttempt != nil || !conditions.Has(r.host, infrav1.HostQuietCondition) {
			r.busy(fmt.Sprintf("plan %s may run, and the host has not said yet how far it is", operation.ID))
		}
		return o.result
	case status.Phase.Final():
		// What follows from the end is done after the pause; it then asks the host again.
		r.pace().unmark(callFollow(operation.ID))
		r.quiet(nothingRuns)
		return onEvent()
	case status.Phase != run.Running || status.Lost:
		r.pace().mark(askedWhilePaused)
		r.quiet(nothingRuns)
		return onEvent()
	}
	r.busy(fmt.Sprintf("plan %s runs (%s)", operation.ID, status.Step))
	if o.pending {
		return o.result
	}
	return r.poll()
}

// conversation is what this process has under way with the host or its BMC.
func (r *reconciliation) conversation() (op string, under bool) {
	if op, _, under = r.controller.Calls.Running(r.key()); under {
		return op, true
	}
	op, _, under = r.controller.PowerCalls.Running(r.key())
	return op, under
}

func (r *reconciliation) quiet(message string) {
	r.condition(infrav1.HostQuietCondition, metav1.ConditionTrue, infrav1.HostQuietReason, message)
}

func (r *reconciliation) busy(what string) {
	r.setFalse(infrav1.HostQuietCondition, infrav1.HostBusyReason, fmt.Sprintf(
		"%s; its end is waited for. If it never comes, nobody asks the host any more after: %s",
		what, annotate(r.host, infrav1.DetachedAnnotation, "")))
}

// detachedQuiet says of a detached host that it is paused or held as well: nothing of it is waited for, because nobody
// may ask.
func (r *reconciliation) detachedQuiet() {
	if _, under := r.conversation(); under {
		r.busy("a conversation with the detached host is being ended")
		return
	}
	r.quiet("the host is detached: what runs there is not waited for")
}

// notQuiet ends what Quiet said.
func (r *reconciliation) notQuiet() {
	conditions.Delete(r.host, infrav1.HostQuietCondition)
	r.pace().unmark(askedWhilePaused)
}

// pausedNote says, in Ready, why a paused or held host stands still, and how that ends.
func pausedNote(host *infrav1.QuoinHost) string {
	if _, own := host.Annotations[clusterv1.PausedAnnotation]; own {
		return fmt.Sprintf("paused: nothing new is started; to go on: kubectl -n %s annotate quoinhost %s %s-",
			host.Namespace, host.Name, clusterv1.PausedAnnotation)
	}
	hold := host.Spec.HeldFor
	if hold == nil {
		return "paused with its Cluster, as clusterctl move does while the objects move: nothing new is started until " +
			"spec.paused of the Cluster is false"
	}
	end := fmt.Sprintf(`kubectl -n %s patch quoinhost %s --type merge -p '{"spec":{"heldFor":null}}'`, host.Namespace,
		host.Name)
	if len(hold.Clusters) == 0 {
		return fmt.Sprintf("held (%s): nobody claims the host and nothing is started on it; to end it: %s", hold.Reason, end)
	}
	const shown = 3
	names := strings.Join(hold.Clusters[:min(len(hold.Clusters), shown)], ", ")
	if more := len(hold.Clusters) - shown; more > 0 {
		names = fmt.Sprintf("%s and %d more", names, more)
	}
	return fmt.Sprintf("held while Cluster %s moves: nobody claims the host and nothing is started on it until that is "+
		"unpaused. If it never comes: %s", names, end)
}
