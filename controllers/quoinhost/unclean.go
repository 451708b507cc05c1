// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// waysBegin begins what a person can do about a quarantine, after its cause.
	waysBegin = ". Ways out: "
	// causeBegin comes before the cause where something else was said first.
	causeBegin = ". It was quarantined because: "
	// maxCause leaves room for the ways out behind whatever a host was found with.
	maxCause = 1024
)

// waysOut are what a person can do about a quarantine, each with its command. machineWaits says that the deletion of a
// Machine waits for the host.
func waysOut(host *infrav1.QuoinHost, machineWaits bool) string {
	ways := []string{
		"have it reset and verified again: " + annotate(host, infrav1.RetryAnnotation, ""),
		"have what you mended by hand verified, without a reset: " + annotate(host, infrav1.VerifyOnlyAnnotation, ""),
	}
	if machineWaits {
		ways = append(ways, fmt.Sprintf("let Machine %s/%s go while the host stays quarantined, and perhaps runs: %s",
			host.Spec.ConsumerRef.Namespace, host.Spec.ConsumerRef.Machine,
			annotate(host, infrav1.ReleaseUncleanAnnotation, host.ProviderID())))
	}
	ways = append(ways, "only if it does not run any more, and is gone or will be wiped, give it up (its Node's volumes "+
		"are freed then): "+annotate(host, infrav1.AbandonAnnotation, ""))
	return waysBegin + strings.Join(ways, "; ")
}

// cause is why a host is quarantined, without the ways out, and without what came of a person's words since.
func cause(message string) string {
	why, _, _ := strings.Cut(message, waysBegin)
	if _, last, found := strings.Cut(why, causeBegin); found {
		return last
	}
	return why
}

// because is the cause behind another sentence.
func (r *reconciliation) because() string {
	return causeBegin + text.Shorten(cause(conditions.GetMessage(r.host, infrav1.HostCleanCondition)), maxCause)
}

// said reports whether the annotation is there, whatever its value.
func (r *reconciliation) said(annotation string) bool {
	_, asked := r.host.Annotations[annotation]
	return asked
}

// machineWaits reports whether the deletion of a Machine waits for the host.
func (r *reconciliation) machineWaits() bool {
	return r.host.Spec.ConsumerRef != nil && r.claim.quoinMachine != nil &&
		!r.claim.quoinMachine.DeletionTimestamp.IsZero()
}

// forgetWords takes back what a person said of a quarantine that is none, of one that no Machine waits for, and of a
// claim that is not the host's: provider IDs do not recur, so that word would never be true again.
func (r *reconciliation) forgetWords() {
	h := r.host
	ended := h.Status.State != infrav1.HostStateQuarantined
	if r.said(infrav1.VerifyOnlyAnnotation) && ended {
		r.takeBack(infrav1.VerifyOnlyAnnotation, "the host is not Quarantined")
	}
	word, asked := h.Annotations[infrav1.ReleaseUncleanAnnotation]
	switch {
	case !asked:
	case h.Spec.ConsumerRef == nil:
		r.takeBack(infrav1.ReleaseUncleanAnnotation, "no Machine has the host")
	case word != h.ProviderID():
		r.takeBack(infrav1.ReleaseUncleanAnnotation, fmt.Sprintf("it names %q, and the claim of the host is %s", word,
			h.ProviderID()))
	case ended:
		r.takeBack(infrav1.ReleaseUncleanAnnotation, "the host is not Quarantined")
	case h.GivenUp():
		r.takeBack(infrav1.ReleaseUncleanAnnotation, "the host was given up, so nobody waits for its reset")
	case h.ReleasedUnclean():
		// Carried out; only the end of that was not written down.
		delete(h.Annotations, infrav1.ReleaseUncleanAnnotation)
	}
}

// takeBack removes a word that there is no cause for, and says why nothing came of it.
func (r *reconciliation) takeBack(annotation, why string) {
	delete(r.host.Annotations, annotation)
	r.event("Warning", "WordTakenBack", "%s did nothing, and was taken off: %s", annotation, why)
}

// uncleanHold is why the Machine of a quarantined host cannot go on a person's word yet; empty when it can. Hooks hold
// it as they hold a reset: that of an etcd member which is still in the member list is one.
func (r *reconciliation) uncleanHold() string {
	ref := r.host.Spec.ConsumerRef
	switch infra := r.claim.quoinMachine; {
	case infra == nil:
		return fmt.Sprintf("QuoinMachine %s/%s is not here, so no Machine waits for the host", ref.Namespace, ref.Name)
	case infra.DeletionTimestamp.IsZero():
		return fmt.Sprintf("Machine %s/%s has not come so far: its QuoinMachine is not being deleted. Delete the Machine",
			ref.Namespace, ref.Machine)
	}
	return lifecycle.Release(r.claim.quoinMachine, r.claim.machine).Message
}

// uncleanNote is what Ready says of a word that waits.
func (r *reconciliation) uncleanNote() string {
	h := r.host
	if h.Status.State != infrav1.HostStateQuarantined || h.Spec.ConsumerRef == nil ||
		h.Annotations[infrav1.ReleaseUncleanAnnotation] != h.ProviderID() {
		return ""
	}
	why := r.uncleanHold()
	if why == "" {
		return ""
	}
	return fmt.Sprintf("%s does nothing yet: %s", infrav1.ReleaseUncleanAnnotation, why)
}

// releaseUnclean lets the Machine of a quarantined host go at a person's word, and reports whether it did. It states
// nothing about the host but what is known: it is not called fenced, so that nothing of its Node is freed, and what may
// still run there is said.
func (r *reconciliation) releaseUnclean() bool {
	h, ref := r.host, r.host.Spec.ConsumerRef
	if !r.said(infrav1.ReleaseUncleanAnnotation) || r.uncleanHold() != "" {
		return false
	}
	delete(h.Annotations, infrav1.ReleaseUncleanAnnotation)
	message := fmt.Sprintf("a person let Machine %s/%s go although its host is not known to be clean. %s. It is neither "+
		"fenced nor clean, and no volume of its Node was freed", ref.Namespace, ref.Machine, r.mayRun()) + r.because() +
		waysOut(h, false)
	r.setFalse(infrav1.HostCleanCondition, infrav1.HostReleasedUncleanReason, message)
	if !h.Fenced() {
		r.setFalse(infrav1.HostFencedCondition, infrav1.HostNotFencedReason,
			"nothing says that the host does not run any more")
	}
	r.event("Warning", infrav1.HostReleasedUncleanReason, "%s", message)
	return true
}

// mayRun says what may still run on a host whose claim ends without a verified reset, by how far the reset came.
func (r *reconciliation) mayRun() string {
	operation := r.host.Status.Operation
	if operation != nil && attemptOf(operation.ID, r.resetPlan()) > 0 {
		switch {
		case operation.Succeeded() && staged(operation.Step):
			return "Nothing was found on it before it booted, so what may still run is what was found since"
		case operation.Succeeded():
			return "The reset ran to its end, which ends the kubelet and every container, so what may still run is what was " +
				"found afterwards"
		case operation.Failed() && operation.Step != "":
			return fmt.Sprintf("The reset ended at its step %s, so %s may still run", operation.Step, r.ofNode())
		}
	}
	return fmt.Sprintf("No reset is known to have run to its end, so %s may still run", r.ofNode())
}

// ofNode names what makes the host a node.
func (r *reconciliation) ofNode() string {
	what := "the kubelet with the credentials of its Node, and its containers"
	if _, controlPlane := r.claim.quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
		what += ", among them the API server and etcd of a control plane that it has left,"
	}
	return what
}
