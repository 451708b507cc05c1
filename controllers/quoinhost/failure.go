// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// finding is what an error means: which condition is False, and why.
type finding struct{ condition, reason, message string }

// explain turns the error of a call into a condition with a sentence that says what to do. An error about the
// connection concerns the host; any other concerns what the host's state is about.
func explain(err error, host *infrav1.QuoinHost) finding {
	about, fallback := subject(host.Status.State)
	hostKey, keyChanged := errors.AsType[*ssh.HostKeyChangedError](err)
	unreachable, silent := errors.AsType[*ssh.UnreachableError](err)
	stale, isStale := errors.AsType[*owner.StaleError](err)
	switch {
	case is[*hostaccess.CredentialsError](err):
		return finding{infrav1.HostReachableCondition, infrav1.HostCredentialsInvalidReason, err.Error()}
	case is[*hostaccess.HostKeyMissingError](err):
		return finding{infrav1.HostKeyVerifiedCondition, infrav1.HostKeyMissingReason, err.Error()}
	case keyChanged:
		return finding{infrav1.HostKeyVerifiedCondition, infrav1.HostKeyChangedReason, hostKeyMessage(hostKey, host)}
	case is[*ssh.AuthError](err), is[*ssh.AlgorithmsError](err), is[*ssh.SudoError](err):
		return finding{infrav1.HostReachableCondition, infrav1.HostAuthenticationFailedReason, err.Error()}
	case is[*egress.RefusedError](err):
		return finding{infrav1.HostReachableCondition, infrav1.HostAddressRefusedReason, err.Error()}
	case is[*ssh.BastionError](err), is[*ssh.RefusedError](err):
		return finding{infrav1.HostReachableCondition, infrav1.HostUnreachableReason, err.Error()}
	case silent:
		return finding{infrav1.HostReachableCondition, infrav1.HostUnreachableReason, unreachable.Error()}
	case isStale:
		return finding{about, infrav1.HostStaleClaimReason, staleMessage(stale, host)}
	case is[*owner.HeldError](err):
		return finding{about, infrav1.HostOwnedByOtherReason, err.Error()}
	case is[*EndpointInUseError](err):
		return finding{about, infrav1.HostEndpointInUseReason, err.Error()}
	case is[*ArtifactsError](err):
		return finding{about, infrav1.HostArtifactsUnavailableReason, err.Error()}
	case is[*LacksError](err), is[*run.ClockError](err), is[*cloudinit.DiskError](err):
		return finding{about, infrav1.HostUnsuitableReason, err.Error()}
	case is[*ssh.OutputError](err):
		return finding{about, fallback, err.Error()}
	case ssh.IsTransient(err):
		return finding{infrav1.HostReachableCondition, infrav1.HostUnreachableReason,
			fmt.Sprintf("the host did not answer in time: %v", err)}
	}
	return finding{about, fallback, err.Error()}
}

// subject is the condition that a call in this state is about, and the reason when nothing better is known. That is
// never StepFailed: a step that failed is final for its Machine, a call that failed is tried again.
func subject(state infrav1.HostState) (condition, reason string) {
	switch state {
	case infrav1.HostStateClaimed, infrav1.HostStateProvisioning:
		return infrav1.HostProvisionedCondition, infrav1.HostOperationFailedReason
	case infrav1.HostStateProvisioned:
		return infrav1.HostAddonImagesCondition, infrav1.HostOperationFailedReason
	case infrav1.HostStateCleaning, infrav1.HostStateQuarantined:
		return infrav1.HostCleanCondition, infrav1.HostOperationFailedReason
	case infrav1.HostStateRegistering:
		return infrav1.HostReachableCondition, infrav1.HostOperationFailedReason
	}
	return infrav1.HostInspectedCondition, infrav1.HostInspectionFailedReason
}

// answered says whether the host itself gave the error: a script that ran and failed, or what was found there. Anything
// else, such as a Secret that the API server did not hand out, tells nothing about the host.
func answered(err error) bool {
	return is[*run.ClockError](err) || is[*cloudinit.DiskError](err) || is[*ssh.ExitError](err) ||
		is[*owner.HeldError](err) || is[*owner.StaleError](err) || is[*owner.UnreadableError](err) ||
		is[*EndpointInUseError](err) || is[*ArtifactsError](err) || is[*LacksError](err) || is[*ssh.OutputError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func hostKeyMessage(changed *ssh.HostKeyChangedError, host *infrav1.QuoinHost) string {
	if changed.Bastion {
		return changed.Error() + ". Nothing is done to the host meanwhile"
	}
	if changed.Key == nil {
		// There is nothing to accept: the command would carry words in place of a fingerprint.
		return fmt.Sprintf("%s presented a host key %s, but %s is pinned; nothing is done to the host. If it was "+
			"reinstalled on purpose, write its new key to spec.hostKeys; else somebody answers in its place", changed.Endpoint,
			changed.Seen(), changed.Expected())
	}
	message := fmt.Sprintf("%s presented host key %s, but %s is pinned; nothing is done to the host. If it was "+
		"reinstalled on purpose: kubectl -n %s annotate quoinhost %s %s=%s; else somebody answers in its place",
		changed.Endpoint, changed.Seen(), changed.Expected(), host.Namespace, host.Name, infrav1.AcceptHostKeyAnnotation,
		changed.Got)
	if accepted := host.Annotations[infrav1.AcceptHostKeyAnnotation]; accepted != "" && accepted != changed.Got {
		message += fmt.Sprintf(". The annotation accepts %s, which is not the presented key", accepted)
	}
	return message
}

// failed puts the error of a call into the conditions and sets the time of the next attempt.
func (r *reconciliation) failed(ctx context.Context, err error) result {
	if r.tookHostKey(ctx, err) {
		return after(time.Millisecond)
	}
	f := explain(err, r.host)
	f.message = readable(err, f.message)
	r.failure = f.message
	callFailures.WithLabelValues(f.reason).Inc()
	r.cleaningFails()
	if r.host.Status.State == infrav1.HostStateCleaning && (!answered(err) || r.stuck()) {
		f.message = text.Shorten(f.message, maxCause) + r.wayOut()
	}
	if f.condition == infrav1.HostCleanCondition && r.host.Status.State == infrav1.HostStateQuarantined {
		// Why it is there stays what its condition says, whatever becomes of a look whether it is back.
		return r.tryLater()
	}
	before := conditions.Get(r.host, f.condition)
	r.setFalse(f.condition, f.reason, f.message)
	switch f.condition {
	case infrav1.HostReachableCondition:
		r.noteUnreachable(err, f.reason)
	case infrav1.HostKeyVerifiedCondition:
		var changed *ssh.HostKeyChangedError
		if errors.As(err, &changed) && !changed.Bastion {
			// Nothing is done to what answers there until a person has said what it is, and least of all is it powered off.
			r.runs()
		}
		r.setFalse(infrav1.HostReachableCondition, infrav1.HostKeyChangedReason, "the host presents a key that is not pinned")
	default:
		if answered(err) {
			r.reached()
		}
	}
	if before == nil || before.Reason != f.reason || before.Status != metav1.ConditionFalse {
		r.event("Warning", f.reason, "%s", f.message)
	}
	// The host decides what was done of a call that failed half-way.
	if operation := r.host.Status.Operation; operation != nil && !ssh.NeverRan(err) && ssh.IsTransient(err) {
		r.pace().unmark(callFollow(operation.ID))
	}
	res := r.tryLater()
	if _, must := r.mustEnd(); must && r.host.Status.UnreachableSince != nil {
		// Between two attempts is the time to judge whether it is dead.
		return after(r.timings().Next)
	}
	return res
}

// noteUnreachable records since when the host does not answer. A host that refuses our key or algorithms, or asks
// for a password, does answer; a bastion that fails says nothing about the hosts behind it.
func (r *reconciliation) noteUnreachable(err error, reason string) {
	switch {
	case is[*ssh.RefusedError](err) && !is[*egress.RefusedError](err):
		// It is not known which addresses are allowed, which says nothing about the host.
	case is[*ssh.BastionError](err), reason == infrav1.HostAddressRefusedReason:
		if !r.host.Fenced() {
			// Whether the silence goes on, nobody knows.
			r.host.Status.UnreachableSince = nil
		}
	case reason == infrav1.HostAuthenticationFailedReason:
		r.runs()
	case reason == infrav1.HostUnreachableReason && r.host.Status.UnreachableSince == nil:
		r.host.Status.UnreachableSince = &metav1.Time{Time: r.now}
	}
}

// tookHostKey pins the key that a person accepted by its fingerprint.
func (r *reconciliation) tookHostKey(ctx context.Context, err error) bool {
	var changed *ssh.HostKeyChangedError
	if !errors.As(err, &changed) || changed.Key == nil ||
		r.host.Annotations[infrav1.AcceptHostKeyAnnotation] != changed.Got {
		return false
	}
	if err := r.pin(ctx, ssh.FormatHostKey(changed.Key)); err != nil {
		// Not lost: the next attempt ends here again.
		return false
	}
	r.event("Normal", "HostKeyAccepted", "host key %s is pinned in place of %s", changed.Got, changed.Expected())
	r.setTrue(infrav1.HostKeyVerifiedCondition, infrav1.HostKeyPinnedReason)
	r.forgetFailures()
	if state := r.host.Status.State; state == infrav1.HostStateAvailable || state == infrav1.HostStateInspecting {
		// Another key most often means another installation.
		r.enter(infrav1.HostStateRegistering)
	}
	return true
}

// pin records the host key in spec, and with it removes the annotation that accepted it.
func (r *reconciliation) pin(ctx context.Context, key string) error {
	return r.patch(ctx, "pinning the host key of", func(h *infrav1.QuoinHost) {
		h.Spec.HostKeys = []string{key}
		delete(h.Annotations, infrav1.AcceptHostKeyAnnotation)
	})
}

// acceptHostKey ends the back-off when a person accepts the very key that was last presented.
func (r *reconciliation) acceptHostKey() {
	accepted := r.host.Annotations[infrav1.AcceptHostKeyAnnotation]
	if accepted != "" && conditions.IsFalse(r.host, infrav1.HostKeyVerifiedCondition) &&
		presented(conditions.GetMessage(r.host, infrav1.HostKeyVerifiedCondition), accepted) {
		r.host.Status.NextAttempt = nil
	}
}

// presented says whether this key is the one that the message of hostKeyMessage speaks of.
func presented(message, fingerprint string) bool {
	_, rest, found := strings.Cut(message, "presented host key "+fingerprint)
	return found && (strings.HasPrefix(rest, ",") || strings.HasPrefix(rest, " "))
}

// succeeded notes that the host answered, to us and with the right key.
func (r *reconciliation) succeeded() {
	r.pace().mark(lastAnswer)
	r.reached()
	r.forgetFailures()
	r.noteCredentials()
}

// trusted says whether there is anything to know the host by.
func trusted(host *infrav1.QuoinHost) bool {
	return len(host.Spec.HostKeys) > 0 || len(host.Spec.HostCertificateAuthorities) > 0
}

// noteCredentials shows which key of which version of the Secret the host accepted, so that a rotation can be followed
// over a fleet: the old key may go when no host uses it any more.
func (r *reconciliation) noteCredentials() {
	fingerprint, version, ok := r.controller.Provisioner.Used(r.host)
	before := r.host.Status.Credentials
	if !ok || before != nil && before.Fingerprint == fingerprint && before.SecretVersion == version {
		return
	}
	r.host.Status.Credentials = &infrav1.HostCredentials{Fingerprint: fingerprint, SecretVersion: version,
		Since: &metav1.Time{Time: r.now}}
	if before != nil && before.Fingerprint != fingerprint {
		r.event("Normal", "CredentialsRotated", "the host accepts key %s now, and %s before", fingerprint, before.Fingerprint)
	}
}

// runs notes that something answers at the host's address, so that it counts neither as silent nor as fenced.
func (r *reconciliation) runs() {
	r.running = true
	r.withdrawPower()
	// A person's word for its power was about this silence.
	delete(r.host.Annotations, infrav1.PowerOffAnnotation)
	r.host.Status.UnreachableSince = nil
	if r.host.Fenced() {
		r.event("Warning", infrav1.HostNotFencedReason, "the host answers, so it runs: it is fenced no more")
	}
	conditions.Delete(r.host, infrav1.HostFencedCondition)
	if stateOf(r.host.Status.Power) == powerOff {
		r.host.Status.Power.State = ""
	}
}

func (r *reconciliation) reached() {
	r.runs()
	r.setTrue(infrav1.HostReachableCondition, infrav1.HostReachableReason)
	if trusted(r.host) {
		r.setTrue(infrav1.HostKeyVerifiedCondition, infrav1.HostKeyPinnedReason)
	}
}

func (r *reconciliation) forgetFailures() {
	r.host.Status.Failures = nil
	r.host.Status.NextAttempt = nil
}

// tryLater counts a failure and sets the time of the next attempt.
func (r *reconciliation) tryLater() result {
	failures := ptr.Deref(r.host.Status.Failures, 0) + 1
	wait := r.timings().distance(failures, r.controller.jitter())
	r.host.Status.Failures = &failures
	r.host.Status.NextAttempt = &metav1.Time{Time: r.now.Add(wait)}
	return after(wait)
}

// backOff is the time until the next attempt is due. One that is further ahead than any is put off was put off before
// the clock was set back, and is due.
func (r *reconciliation) backOff() time.Duration {
	if r.host.Status.NextAttempt == nil {
		return 0
	}
	wait := r.host.Status.NextAttempt.Sub(r.now)
	if wait > r.timings().furthest() {
		return 0
	}
	return wait
}

// keepRetry leaves a person's word for the next reconcile, because this one ends before anything was done about it.
func (r *reconciliation) keepRetry() {
	if r.retried {
		metav1.SetMetaDataAnnotation(&r.host.ObjectMeta, infrav1.RetryAnnotation, r.word)
	}
}

// takeRetry carries out what ends a back-off: a person's word, or a changed spec.
func (r *reconciliation) takeRetry() {
	if word, ok := r.host.Annotations[infrav1.RetryAnnotation]; ok {
		delete(r.host.Annotations, infrav1.RetryAnnotation)
		r.retried, r.word = true, word
		// On a host that nothing happens to, the next attempt is the next look.
		r.pace().unmark(callProbe)
		r.acceptChanged()
	}
	if r.retried || r.host.Status.ObservedGeneration != r.host.Generation {
		r.forgetFailures()
	}
	r.host.Status.ObservedGeneration = r.host.Generation
}
