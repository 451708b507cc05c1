// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// waysBegin begins what a person can do about a quarantine, after its cause.
	waysBegin = ". Ways out: "
	// causeBegin comes before the cause where something else was said first.
	causeBegin = ". It was quarantined because: "
	// giveUpBegin begins what ends the wait for a host that does not run, after its cause.
	giveUpBegin = ". If the host does not run any more"
	// maxCause leaves room for the ways out behind whatever a host was found with.
	maxCause = 1024
	// maxFailing is how long the cleaning of a host fails before its Machine may go at a person's word. A silent host is
	// cycled and powered off before that, where it has a BMC and nothing else is said.
	maxFailing = 30 * time.Minute
)

// waysOut are what a person can do about a quarantine, each with its command. machineWaits says that the deletion of a
// Machine waits for the host.
func waysOut(host *infrav1.QuoinHost, machineWaits bool) string {
	ways := []string{
		"have it reset and verified again: " + annotate(host, infrav1.RetryAnnotation, ""),
		"have what you mended by hand verified, without a reset: " + annotate(host, infrav1.VerifyOnlyAnnotation, ""),
	}
	if machineWaits {
		ways = append(ways, wayUnclean(host))
	}
	return waysBegin + strings.Join(append(ways, orGiveUp(host)), "; ")
}

// wayUnclean is the command by which the Machine of a host goes although the host is not clean.
func wayUnclean(host *infrav1.QuoinHost) string {
	return fmt.Sprintf("let Machine %s/%s go while the host stays quarantined, and perhaps runs: %s",
		host.Spec.ConsumerRef.Namespace, host.Spec.ConsumerRef.Machine,
		annotate(host, infrav1.ReleaseUncleanAnnotation, host.ProviderID()))
}

// orGiveUp is the last way: the command that gives the host up.
func orGiveUp(host *infrav1.QuoinHost) string {
	return "only if it does not run any more, and is gone or will be wiped, give it up (its Node's volumes are freed " +
		"then): " + annotate(host, infrav1.AbandonAnnotation, host.ProviderID())
}

// wayOut tells how the deletion of a Machine ends that waits for a host which may never be clean.
func (r *reconciliation) wayOut() string {
	if !r.stuck() || !r.machineWaits() {
		return fmt.Sprintf("%s, and is gone for good or will be wiped, end the wait without a reset (its Node's volumes are "+
			"freed then): %s", giveUpBegin, annotate(r.host, infrav1.AbandonAnnotation, r.host.ProviderID()))
	}
	return fmt.Sprintf(". It could not be cleaned since %s, and is tried again%s%s; %s",
		stamp(r.host.Status.CleaningFailsSince.Time), waysBegin, wayUnclean(r.host), orGiveUp(r.host))
}

// cleaningFails notes since when the cleaning cannot be carried out, whether the host answers or not.
func (r *reconciliation) cleaningFails() {
	if r.host.Status.State == infrav1.HostStateCleaning && r.host.Status.CleaningFailsSince == nil {
		r.host.Status.CleaningFailsSince = &metav1.Time{Time: r.now}
	}
}

// stuck reports whether the cleaning failed for so long that a person may let the Machine go. A host that serves
// somebody else is none of it: its Node may be wanted there.
func (r *reconciliation) stuck() bool {
	return r.host.Status.CleaningFailsSince != nil && !r.now.Before(r.stuckAt()) && usurped(r.host) == nil
}

func (r *reconciliation) stuckAt() time.Time {
	return steady.Shift(r.controller.Clock, r.host.Status.CleaningFailsSince.Time).Add(maxFailing)
}

// cause is why a host is quarantined, without the ways out, and without what came of a person's words since.
func cause(message string) string {
	why, _, _ := strings.Cut(message, waysBegin)
	why, _, _ = strings.Cut(why, giveUpBegin)
	if _, last, found := strings.Cut(why, causeBegin); found {
		return last
	}
	return why
}

// because is the cause behind another sentence.
func (r *reconciliation) because() string {
	message := conditions.GetMessage(r.host, infrav1.HostCleanCondition)
	if r.host.Status.State == infrav1.HostStateCleaning {
		_, _, message = readiness(r.host)
	}
	return causeBegin + text.Shorten(cause(message), maxCause)
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
	goesOn := ended && h.Status.CleaningFailsSince == nil
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
	case goesOn:
		r.takeBack(infrav1.ReleaseUncleanAnnotation, "the host is not Quarantined, and its cleaning does not fail")
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

// uncleanHold is why the Machine of a host that is not clean cannot go on a person's word yet; empty when it can. Hooks
// hold it as they hold a reset: that of an etcd member which is still in the member list is one.
func (r *reconciliation) uncleanHold() string {
	ref := r.host.Spec.ConsumerRef
	switch infra := r.claim.quoinMachine; {
	case infra == nil:
		return fmt.Sprintf("QuoinMachine %s/%s is not here, so no Machine waits for the host", ref.Namespace, ref.Name)
	case infra.DeletionTimestamp.IsZero():
		return fmt.Sprintf("Machine %s/%s has not come so far: its QuoinMachine is not being deleted. Delete the Machine",
			ref.Namespace, ref.Machine)
	}
	switch since := r.host.Status.CleaningFailsSince; {
	case usurped(r.host) != nil:
		return "the host says that it serves somebody else, whose Node it may be"
	case since != nil && !r.stuck():
		return fmt.Sprintf("its cleaning fails since %s, and may succeed until %s", stamp(since.Time), stamp(r.stuckAt()))
	}
	return lifecycle.Release(r.claim.quoinMachine, r.claim.machine).Message
}

// uncleanNote is what Ready says of a word that waits.
func (r *reconciliation) uncleanNote() string {
	h := r.host
	if h.Status.State != infrav1.HostStateQuarantined && h.Status.CleaningFailsSince == nil ||
		h.Spec.ConsumerRef == nil || h.Annotations[infrav1.ReleaseUncleanAnnotation] != h.ProviderID() {
		return ""
	}
	why := r.uncleanHold()
	if why == "" {
		return ""
	}
	return fmt.Sprintf("%s does nothing yet: %s", infrav1.ReleaseUncleanAnnotation, why)
}

// releaseUnclean lets the Machine of a host go at a person's word that is quarantined, or that cannot be cleaned, and
// reports whether it did. What is tried on the host ends with that, and the host is quarantined. It states nothing
// about the host but what is known: it is not called fenced, so that nothing of its Node is freed, and what may still
// run there is said.
func (r *reconciliation) releaseUnclean() bool {
	h, ref := r.host, r.host.Spec.ConsumerRef
	if !r.said(infrav1.ReleaseUncleanAnnotation) || r.uncleanHold() != "" {
		return false
	}
	delete(h.Annotations, infrav1.ReleaseUncleanAnnotation)
	r.controller.Calls.Cancel(r.key())
	r.controller.PowerCalls.Cancel(r.key())
	message := fmt.Sprintf("a person let Machine %s/%s go although its host is not known to be clean. %s. It is neither "+
		"fenced nor clean, and no volume of its Node was freed", ref.Namespace, ref.Machine, r.mayRun()) + r.because() +
		waysOut(h, false)
	r.enter(infrav1.HostStateQuarantined)
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
