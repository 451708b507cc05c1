// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"strings"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// waysOn say of each state what bounds its waits, and what a person can do who does not want to wait. Condition Ready
// says so where what is waited for has no command of its own.
var waysOn = map[infrav1.HostState]func(*reconciliation) string{
	infrav1.HostStateRegistering:  (*reconciliation).orDetach,
	infrav1.HostStateInspecting:   (*reconciliation).orDetach,
	infrav1.HostStateAvailable:    (*reconciliation).orDetach,
	infrav1.HostStateClaimed:      (*reconciliation).orDeleteMachine,
	infrav1.HostStateProvisioning: (*reconciliation).orDeleteMachine,
	infrav1.HostStateProvisioned:  (*reconciliation).orDeleteMachine,
	infrav1.HostStateCleaning:     (*reconciliation).orAbandon,
	infrav1.HostStateQuarantined:  (*reconciliation).orReset,
}

// noConsumer points to the ways out of a host whose consumer is not here: a command that fits another one may destroy a
// node that runs.
const noConsumer = "docs/hosts.md (A host without its consumer) has every way out"

// wayOn of the host's state; empty where the message has a command already, or nothing is done to the host at all: what
// says so names the way out.
func (r *reconciliation) wayOn(message string) string {
	way, ok := waysOn[r.host.Status.State]
	switch {
	case !ok, r.hasCommand(message), strings.Contains(message, noConsumer), r.paused, isDetached(r.host):
		return ""
	case bereft(r.host, r.claim):
		return noConsumer
	}
	return way(r)
}

// hasCommand reports whether the message names a command about the host or its consumer. What a host printed may name
// any other.
func (r *reconciliation) hasCommand(message string) bool {
	about := func(namespace string) bool { return strings.Contains(message, "kubectl -n "+namespace+" ") }
	ref := r.host.Spec.ConsumerRef
	return about(r.host.Namespace) || ref != nil && about(ref.Namespace)
}

// orDetach is for hosts that nobody has: what asks them has an end, and is done again.
func (r *reconciliation) orDetach() string {
	if r.host.Spec.ConsumerRef != nil {
		return r.orDeleteMachine()
	}
	return fmt.Sprintf("Each look at the host ends within %s, and another one follows. To leave it alone meanwhile: %s",
		shortCall, annotate(r.host, infrav1.DetachedAnnotation, ""))
}

// orDeleteMachine is for hosts with a Machine, which can have another one.
func (r *reconciliation) orDeleteMachine() string {
	ref := r.host.Spec.ConsumerRef
	if ref == nil {
		return r.orDetach()
	}
	if m := r.claim.machine; m != nil && !m.DeletionTimestamp.IsZero() {
		return fmt.Sprintf("Machine %s is being deleted since %s; what that waits for: kubectl -n %s describe machine %s%s",
			ref.Machine, stamp(m.DeletionTimestamp.Time), ref.Namespace, ref.Machine, r.wayOut())
	}
	return fmt.Sprintf("%sTo end it, and have another Machine made: kubectl -n %s delete machine %s",
		r.runsSince("after which the Machine is to be replaced"), ref.Namespace, ref.Machine)
}

// orAbandon is for hosts that are being reset, or wait for their Machine to go.
func (r *reconciliation) orAbandon() string {
	ref := r.host.Spec.ConsumerRef
	if ref != nil && r.host.Released() {
		return fmt.Sprintf("What keeps it: kubectl -n %s describe machine/%s quoinmachine/%s", ref.Namespace, ref.Machine,
			ref.Name)
	}
	return r.runsSince(fmt.Sprintf("and after %d resets a person is asked", maxResets)) +
		strings.TrimPrefix(r.wayOut(), ". ")
}

// orReset is for hosts that wait for a person.
func (r *reconciliation) orReset() string {
	return "To have it reset and verified: " + annotate(r.host, infrav1.RetryAnnotation, "")
}

// runsSince says since when the step runs that the host is at, and that it has an end; empty while none runs.
func (r *reconciliation) runsSince(then string) string {
	operation := r.host.Status.Operation
	if operation == nil || operation.Since == nil || operation.Phase != infrav1.HostOperationRunning {
		return ""
	}
	return fmt.Sprintf("At this step since %s; each has its time, %s. ", stamp(operation.Since.Time), then)
}
