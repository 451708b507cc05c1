// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// finding is what an error means: which condition is False, and why.
type finding struct{ condition, reason, message string }

// explain turns the error of an exchange into a condition with a sentence that says what to do. An error about the
// connection concerns the host; any other concerns what the host's state is about.
func explain(err error, host *infrav1.QuoinHost) finding {
	var (
		credentials *hostaccess.CredentialsError
		keyMissing  *hostaccess.HostKeyMissingError
		bastion     *ssh.BastionError
		hostKey     *ssh.HostKeyChangedError
		auth        *ssh.AuthError
		sudo        *ssh.SudoError
		unreachable *ssh.UnreachableError
		held        *owner.HeldError
		stale       *owner.StaleError
		inUse       *EndpointInUseError
		source      *ArtifactsError
		lacks       *LacksError
		clock       *run.ClockError
		disk        *cloudinit.DiskError
	)
	about, fallback := subject(host.Status.State)
	switch {
	case errors.As(err, &credentials):
		return finding{infrav1.HostReachableCondition, infrav1.HostCredentialsInvalidReason, err.Error()}
	case errors.As(err, &keyMissing):
		return finding{infrav1.HostKeyVerifiedCondition, infrav1.HostKeyMissingReason, err.Error()}
	case errors.As(err, &hostKey):
		return finding{infrav1.HostKeyVerifiedCondition, infrav1.HostKeyChangedReason, hostKeyMessage(hostKey, host)}
	case errors.As(err, &auth), errors.As(err, &sudo):
		return finding{infrav1.HostReachableCondition, infrav1.HostAuthenticationFailedReason, err.Error()}
	case errors.As(err, &bastion):
		return finding{infrav1.HostReachableCondition, infrav1.HostUnreachableReason, err.Error()}
	case errors.As(err, &unreachable):
		return finding{infrav1.HostReachableCondition, infrav1.HostUnreachableReason, unreachable.Error()}
	case errors.As(err, &stale):
		return finding{about, infrav1.HostStaleClaimReason, staleMessage(stale, host)}
	case errors.As(err, &held):
		return finding{about, infrav1.HostOwnedByOtherReason, err.Error()}
	case errors.As(err, &inUse):
		return finding{about, infrav1.HostEndpointInUseReason, err.Error()}
	case errors.As(err, &source):
		return finding{about, infrav1.HostArtifactsUnavailableReason, err.Error()}
	case errors.As(err, &lacks), errors.As(err, &clock), errors.As(err, &disk):
		return finding{about, infrav1.HostUnsuitableReason, err.Error()}
	case ssh.IsTransient(err):
		return finding{infrav1.HostReachableCondition, infrav1.HostUnreachableReason, fmt.Sprintf("the host did not answer in time: %v", err)}
	}
	return finding{about, fallback, err.Error()}
}

// subject is the condition that an exchange in this state is about, and the reason when nothing better is known. That is
// never StepFailed: a step that failed is final for its Machine, an exchange that failed is tried again.
func subject(state infrav1.HostState) (condition, reason string) {
	switch state {
	case infrav1.HostStateClaimed, infrav1.HostStateProvisioning:
		return infrav1.HostProvisionedCondition, infrav1.HostExchangeFailedReason
	case infrav1.HostStateProvisioned:
		return infrav1.HostAddonImagesCondition, infrav1.HostExchangeFailedReason
	case infrav1.HostStateCleaning, infrav1.HostStateQuarantined:
		return infrav1.HostCleanCondition, infrav1.HostExchangeFailedReason
	case infrav1.HostStateRegistering:
		return infrav1.HostReachableCondition, infrav1.HostExchangeFailedReason
	}
	return infrav1.HostInspectedCondition, infrav1.HostInspectionFailedReason
}

// answered says whether the host itself gave the error: a script that ran and failed, or what was found there. Anything
// else, such as a Secret that the API server did not hand out, tells nothing about the host.
func answered(err error) bool {
	var (
		exit   *ssh.ExitError
		held   *owner.HeldError
		stale  *owner.StaleError
		inUse  *EndpointInUseError
		source *ArtifactsError
		lacks  *LacksError
		clock  *run.ClockError
		disk   *cloudinit.DiskError
	)
	return errors.As(err, &clock) || errors.As(err, &disk) || errors.As(err, &exit) || errors.As(err, &held) || errors.As(err, &stale) ||
		errors.As(err, &inUse) || errors.As(err, &source) || errors.As(err, &lacks)
}

func hostKeyMessage(changed *ssh.HostKeyChangedError, host *infrav1.QuoinHost) string {
	if changed.Bastion {
		return changed.Error() + ". Nothing is done to the host meanwhile"
	}
	if changed.Key == nil {
		// There is nothing to accept: the command would carry words in place of a fingerprint.
		return fmt.Sprintf("%s presented a host key %s, but %s is pinned; nothing is done to the host. If it was reinstalled on purpose, "+
			"write its new key to spec.hostKeys; else somebody answers in its place", changed.Endpoint, changed.Seen(), changed.Expected())
	}
	message := fmt.Sprintf("%s presented host key %s, but %s is pinned; nothing is done to the host. If it was reinstalled on purpose: "+
		"kubectl -n %s annotate quoinhost %s %s=%s; else somebody answers in its place",
		changed.Endpoint, changed.Seen(), changed.Expected(), host.Namespace, host.Name, infrav1.AcceptHostKeyAnnotation, changed.Got)
	if accepted := host.Annotations[infrav1.AcceptHostKeyAnnotation]; accepted != "" && accepted != changed.Got {
		message += fmt.Sprintf(". The annotation accepts %s, which is not the presented key", accepted)
	}
	return message
}

// failed puts the error of an exchange into the conditions and sets the time of the next attempt.
func (t *turn) failed(err error) result {
	if t.tookHostKey(err) {
		return after(time.Millisecond)
	}
	f := explain(err, t.host)
	exchangeFailures.WithLabelValues(f.reason).Inc()
	if t.host.Status.State == infrav1.HostStateCleaning && !answered(err) {
		f.message += t.wayOut()
	}
	if f.condition == infrav1.HostCleanCondition && t.host.Status.State == infrav1.HostStateQuarantined {
		// Why it is there stays what its condition says, whatever becomes of a look whether it is back.
		return t.tryLater()
	}
	before := conditions.Get(t.host, f.condition)
	t.condition(f.condition, metav1.ConditionFalse, f.reason, f.message)
	switch f.condition {
	case infrav1.HostReachableCondition:
		t.noteSilence(err, f.reason)
	case infrav1.HostKeyVerifiedCondition:
		var changed *ssh.HostKeyChangedError
		if errors.As(err, &changed) && !changed.Bastion {
			// Nothing is done to what answers there until a person has said what it is, and least of all is it powered off.
			t.runs()
		}
		t.condition(infrav1.HostReachableCondition, metav1.ConditionFalse, infrav1.HostKeyChangedReason, "the host presents a key that is not pinned")
	default:
		if answered(err) {
			t.reached()
		}
	}
	if before == nil || before.Reason != f.reason || before.Status != metav1.ConditionFalse {
		t.event("Warning", f.reason, "%s", f.message)
	}
	// The host decides what was done of an exchange that failed half-way.
	if operation := t.host.Status.Operation; operation != nil && !ssh.NeverRan(err) && ssh.IsTransient(err) {
		t.r.pace.unmark(t.key(), "follow "+operation.ID)
	}
	r := t.tryLater()
	if _, must := t.mustEnd(); must && t.host.Status.UnreachableSince != nil {
		// Between two attempts is the time to judge whether it is dead.
		return after(time.Second)
	}
	return r
}

// noteSilence records since when the host does not answer. A host that refuses our key, or asks for a password, does answer;
// a bastion that fails says nothing about the hosts behind it.
func (t *turn) noteSilence(err error, reason string) {
	var bastion *ssh.BastionError
	switch {
	case errors.As(err, &bastion):
		if !t.host.Fenced() {
			// Whether the silence goes on behind it, nobody knows.
			t.host.Status.UnreachableSince = nil
		}
	case reason == infrav1.HostAuthenticationFailedReason:
		t.runs()
	case reason == infrav1.HostUnreachableReason && t.host.Status.UnreachableSince == nil:
		t.host.Status.UnreachableSince = &metav1.Time{Time: t.now}
	}
}

// tookHostKey pins the key that a person accepted by its fingerprint.
func (t *turn) tookHostKey(err error) bool {
	var changed *ssh.HostKeyChangedError
	if !errors.As(err, &changed) || changed.Key == nil || t.host.Annotations[infrav1.AcceptHostKeyAnnotation] != changed.Got {
		return false
	}
	if err := t.pin(ssh.FormatHostKey(changed.Key)); err != nil {
		// Not lost: the next attempt ends here again.
		return false
	}
	t.event("Normal", "HostKeyAccepted", "host key %s is pinned in place of %s", changed.Got, changed.Expected())
	t.condition(infrav1.HostKeyVerifiedCondition, metav1.ConditionTrue, infrav1.HostKeyPinnedReason, "")
	t.forgetFailures()
	if state := t.host.Status.State; state == infrav1.HostStateAvailable || state == infrav1.HostStateInspecting {
		// Another key most often means another installation.
		t.enter(infrav1.HostStateRegistering)
	}
	return true
}

// pin records the host key in spec, and with it removes the annotation that accepted it.
func (t *turn) pin(key string) error {
	changed := t.host.DeepCopy()
	changed.Spec.HostKeys = []string{key}
	delete(changed.Annotations, infrav1.AcceptHostKeyAnnotation)
	if err := t.r.Client.Patch(t.ctx, changed, client.MergeFromWithOptions(t.host.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("pinning the host key of QuoinHost %s: %w", t.key(), err)
	}
	return nil
}

// acceptHostKey ends the back-off when a person accepts the very key that was last presented.
func (t *turn) acceptHostKey() {
	accepted := t.host.Annotations[infrav1.AcceptHostKeyAnnotation]
	if accepted != "" && conditions.IsFalse(t.host, infrav1.HostKeyVerifiedCondition) &&
		presented(conditions.GetMessage(t.host, infrav1.HostKeyVerifiedCondition), accepted) {
		t.host.Status.NextAttempt = nil
	}
}

// presented says whether this key is the one that the message of hostKeyMessage speaks of.
func presented(message, fingerprint string) bool {
	_, rest, found := strings.Cut(message, "presented host key "+fingerprint)
	return found && (strings.HasPrefix(rest, ",") || strings.HasPrefix(rest, " "))
}

// succeeded notes that the host answered, to us and with the right key.
func (t *turn) succeeded() {
	t.r.pace.mark(t.key(), answer, t.now)
	t.reached()
	t.forgetFailures()
	t.noteCredentials()
}

// trusted says whether there is anything to know the host by.
func trusted(host *infrav1.QuoinHost) bool {
	return len(host.Spec.HostKeys) > 0 || len(host.Spec.HostCertificateAuthorities) > 0
}

// noteCredentials shows which key of which version of the Secret the host accepted, so that a rotation can be followed over
// a fleet: the old key may go when no host uses it any more.
func (t *turn) noteCredentials() {
	fingerprint, version, ok := t.r.Exchanges.Used(t.host)
	before := t.host.Status.Credentials
	if !ok || before != nil && before.Fingerprint == fingerprint && before.SecretVersion == version {
		return
	}
	t.host.Status.Credentials = &infrav1.HostCredentials{Fingerprint: fingerprint, SecretVersion: version, Since: &metav1.Time{Time: t.now}}
	if before != nil && before.Fingerprint != fingerprint {
		t.event("Normal", "CredentialsRotated", "the host accepts key %s now, and %s before", fingerprint, before.Fingerprint)
	}
}

// runs notes that something answers at the host's address, so that it counts neither as silent nor as fenced.
func (t *turn) runs() {
	t.running = true
	// A person's word for its power was about this silence.
	delete(t.host.Annotations, infrav1.PowerOffAnnotation)
	t.host.Status.UnreachableSince = nil
	if t.host.Fenced() {
		t.event("Warning", infrav1.HostNotFencedReason, "the host answers, so it runs: it is fenced no more")
	}
	conditions.Delete(t.host, infrav1.HostFencedCondition)
	if stateOf(t.host.Status.Power) == powerOff {
		t.host.Status.Power.State = ""
	}
}

func (t *turn) reached() {
	t.runs()
	t.condition(infrav1.HostReachableCondition, metav1.ConditionTrue, infrav1.HostReachableReason, "")
	if trusted(t.host) {
		t.condition(infrav1.HostKeyVerifiedCondition, metav1.ConditionTrue, infrav1.HostKeyPinnedReason, "")
	}
}

func (t *turn) forgetFailures() {
	t.host.Status.Failures = nil
	t.host.Status.NextAttempt = nil
}

// tryLater counts a failure and sets the time of the next attempt.
func (t *turn) tryLater() result {
	failures := ptr.Deref(t.host.Status.Failures, 0) + 1
	wait := t.r.hurry(distance(failures, t.r.jitter()))
	t.host.Status.Failures = &failures
	t.host.Status.NextAttempt = &metav1.Time{Time: t.now.Add(wait)}
	return after(wait)
}

const (
	firstDistance = 5 * time.Second
	lastDistance  = 5 * time.Minute
)

// distance is the time between an exchange's n-th failure in a row and the next attempt: it doubles up to a bound, and
// jitter in [0, 1) takes up to a fifth off, so that hosts which failed together do not come back together.
func distance(n int32, jitter float64) time.Duration {
	d := lastDistance
	if shift := n - 1; shift < 6 {
		d = min(firstDistance<<shift, lastDistance)
	}
	return d - time.Duration(jitter*float64(d)/5)
}

// backOff is the time until the next attempt is due.
func (t *turn) backOff() time.Duration {
	if t.host.Status.NextAttempt == nil {
		return 0
	}
	return t.host.Status.NextAttempt.Sub(t.now)
}

// keepRetry leaves a person's word for the next reconcile, because this one ends before anything was done about it.
func (t *turn) keepRetry() {
	if t.retried {
		metav1.SetMetaDataAnnotation(&t.host.ObjectMeta, infrav1.RetryAnnotation, t.word)
	}
}

// takeRetry carries out what ends a back-off: a person's word, or a changed spec.
func (t *turn) takeRetry() {
	if word, ok := t.host.Annotations[infrav1.RetryAnnotation]; ok {
		delete(t.host.Annotations, infrav1.RetryAnnotation)
		t.retried, t.word = true, word
		// On a host that nothing happens to, the next attempt is the next look.
		t.r.pace.unmark(t.key(), "probe")
	}
	if t.retried || t.host.Status.ObservedGeneration != t.host.Generation {
		t.forgetFailures()
	}
	t.host.Status.ObservedGeneration = t.host.Generation
}
