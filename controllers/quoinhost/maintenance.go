// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// What maintenance, pause and the detached annotation each stop is the table in docs/hosts.md, which a test holds this
// package to.

// isDetached says whether nobody may connect to the host.
func isDetached(host *infrav1.QuoinHost) bool {
	_, ok := host.Annotations[infrav1.DetachedAnnotation]
	return ok
}

// detached ends whatever conversation is under way and keeps the state. What this process learned of the host is
// forgotten, so that it asks for everything again when the host is attached.
func (r *reconciliation) detached() result {
	r.controller.Calls.Cancel(r.key())
	r.controller.PowerCalls.Cancel(r.key())
	r.controller.Provisioner.Forget(r.host)
	r.controller.pace.forget(r.key())
	r.host.Status.UnreachableSince, r.host.Status.CleaningFailsSince = nil, nil
	if !r.host.Abandoned() {
		// Nobody looks any more whether it stays off.
		conditions.Delete(r.host, infrav1.HostFencedCondition)
	}
	r.forgetFailures()
	if r.paused {
		r.detachedQuiet()
	} else {
		r.notQuiet()
	}
	if !hasReason(r.host, infrav1.HostReachableCondition, infrav1.HostDetachedReason) {
		r.event("Normal", infrav1.HostDetachedReason, "nobody connects to the host any more: it has the annotation %s",
			infrav1.DetachedAnnotation)
	}
	r.condition(infrav1.HostReachableCondition, metav1.ConditionUnknown, infrav1.HostDetachedReason, fmt.Sprintf(
		"the host is detached: nothing is read or written there, and its claim neither begins nor ends. To go on: kubectl "+
			"-n %s annotate quoinhost %s %s-",
		r.host.Namespace, r.host.Name, infrav1.DetachedAnnotation))
	return onEvent()
}

// attach ends what detached said.
func (r *reconciliation) attach() {
	if hasReason(r.host, infrav1.HostReachableCondition, infrav1.HostDetachedReason) {
		r.condition(infrav1.HostReachableCondition, metav1.ConditionUnknown, infrav1.HostNotReachedReason,
			"the host was attached again, and was not reached yet")
		r.event("Normal", "Attached", "the host is reconciled again")
	}
}

// maintenanceGate holds up what is about to start on a host in maintenance, and says who waits for what.
func (r *reconciliation) maintenanceGate(what string) bool {
	if r.host.Spec.Maintenance == nil {
		return false
	}
	if operation := r.host.Status.Operation; operation != nil {
		// It may have been about to start when the maintenance began: the host knows.
		r.pace().unmark(callFollow(operation.ID))
	}
	// While nothing is tried, nothing fails.
	r.host.Status.CleaningFailsSince = nil
	kind, _ := subject(r.host.Status.State)
	message := maintenanceNote(r.host, what+" waits for its end")
	if !r.isFalse(kind, message) {
		r.event("Normal", infrav1.HostMaintenanceReason, "%s", message)
	}
	r.setFalse(kind, infrav1.HostMaintenanceReason, message)
	return true
}

// maintenanceNote gives the reason in the words of the person who set it.
func maintenanceNote(host *infrav1.QuoinHost, what string) string {
	return fmt.Sprintf(`in maintenance (%s): %s. To end it: kubectl -n %s patch quoinhost %s --type merge `+
		`-p '{"spec":{"maintenance":null}}'`,
		host.Spec.Maintenance.Reason, what, host.Namespace, host.Name)
}

// forgetMaintenance ends what maintained said, so that the condition tells what is waited for now.
func (r *reconciliation) forgetMaintenance() {
	if r.host.Spec.Maintenance != nil {
		return
	}
	for _, kind := range []string{infrav1.HostProvisionedCondition, infrav1.HostCleanCondition,
		infrav1.HostAddonImagesCondition} {
		if hasReason(r.host, kind, infrav1.HostMaintenanceReason) {
			conditions.Delete(r.host, kind)
		}
	}
}
