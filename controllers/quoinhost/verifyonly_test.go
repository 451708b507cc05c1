// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// mend is what a person does to the host by hand.
func mend(w *world) {
	w.room.set(func() { w.room.findings, w.room.facts.KubernetesPresent = nil, nil })
}

func TestAHostThatWasMendedByHandIsFreeWithoutAnotherReset(t *testing.T) {
	w := unclean(t, false)
	resets, inspections := w.room.count("clean"), w.room.count("inspect")
	mend(w)
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	host := w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.VerifyOnlyAnnotation))
	w.g.Expect(host.Spec.Quarantine).To(BeNil())
	w.g.Expect(w.room.record.Released()).To(BeTrue())
	w.restart()
	w.linger(3)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "its Machine, and the Node with it, is still there")

	finish(w, &infrav1.QuoinMachine{}, "qm1")
	finish(w, &clusterv1.Machine{}, "m1")
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.count("clean")).To(Equal(resets), "no reset")
	w.g.Expect(w.room.count("inspect")).To(BeNumerically(">", inspections))
}

func TestAHostThatWasNotMendedStaysQuarantinedAndSaysWhatWasFound(t *testing.T) {
	w := unclean(t, false)
	w.room.set(func() { w.room.findings[0].What = "process kubelet runs (pid 7)" })
	resets, verified := w.room.count("clean"), w.room.count("verify")
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.never("left its quarantine", func(h *infrav1.QuoinHost) bool {
		return h.Status.State != infrav1.HostStateQuarantined || h.Spec.Quarantine == nil
	}, 10)
	host := w.host()
	w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.VerifyOnlyAnnotation))
	w.g.Expect(w.room.count("verify")).To(Equal(verified+1), "one look at what the person left")
	w.g.Expect(w.room.count("clean")).To(Equal(resets))
	ready := condition1(host, infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal(infrav1.HostNotCleanReason))
	w.g.Expect(ready.Message).To(And(ContainSubstring("verified without a reset: process kubelet runs (pid 7)"),
		ContainSubstring(infrav1.ReleaseUncleanAnnotation)))
	w.g.Expect(host.Status.Operation.ID).To(Equal("reset-0123abcd"), "the next reset is another one still")
}

// The manager dies after each reconcile.
func TestAMendedHostIsVerifiedAgainAfterABootWhenThatIsAsked(t *testing.T) {
	w := unclean(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Cleaning.Reboot = ptr.To(true) })
	resets := w.room.count("clean")
	mend(w)
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	for range 100 {
		if w.host().Released() {
			break
		}
		result := w.reconcile()
		w.now = w.now.Add(min(result.RequeueAfter, 10*time.Second))
		if result.RequeueAfter > 0 {
			w.restart()
		}
	}
	w.g.Expect(w.host().Released()).To(BeTrue(), describe(w.host()))
	w.g.Expect(w.room.boots).To(Equal(1))
	w.g.Expect(w.room.count("clean")).To(Equal(resets), "no reset")
	w.g.Expect(w.room.verified[len(w.room.verified)-1].RebootFollows).To(BeFalse())
}

func TestAFreeHostThatWasMendedIsInspectedAnew(t *testing.T) {
	w := dirty(t)
	mend(w)
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.record.Quarantine).To(Equal(owner.Quarantine{}))
	w.g.Expect(w.room.count("clean")).To(BeZero())

	w = dirty(t)
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.until("verified", func(*infrav1.QuoinHost) bool { return w.room.count("verify") > 0 })
	w.linger(5)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined), "the inspection finds what it found before")
}

func TestASilentHostIsVerifiedWhenItAnswersAndAPersonAsksAgain(t *testing.T) {
	w := unclean(t, false)
	mend(w)
	recorder := events.NewFakeRecorder(100)
	w.r.Recorder = recorder
	w.room.set(func() { w.room.err = errNoRoute })
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.linger(5)
	host := w.host()
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.VerifyOnlyAnnotation))
	w.g.Expect(told(recorder)).To(And(ContainSubstring("ask again when it does"), ContainSubstring("no route to host")))
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(ContainSubstring("a mount"), "why it is there")
	w.g.Expect(host.Status.NextAttempt).To(BeNil())

	w.room.set(func() { w.room.err = errors.New("Secret ssh cannot be read") })
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.linger(5)
	w.g.Expect(told(recorder)).To(And(ContainSubstring("Secret ssh cannot be read"), Not(ContainSubstring("no route"))),
		"what kept this look from its end, and not an earlier one")

	w.room.set(func() { w.room.err = nil })
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.until("clean", (*infrav1.QuoinHost).Released)
}

// A host that does not run is not verified.
func TestAHostThatIsGivenUpIsNotVerifiedAtAnEarlierWord(t *testing.T) {
	w := unclean(t, false)
	w.room.set(func() { w.room.err = errNoRoute })
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
	verified := w.room.count("verify")
	w.update(func(h *infrav1.QuoinHost) {
		h.Annotations = map[string]string{infrav1.AbandonAnnotation: h.ProviderID(), infrav1.VerifyOnlyAnnotation: ""}
	})
	w.linger(5)
	w.g.Expect(w.host().Abandoned()).To(BeTrue())
	w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.VerifyOnlyAnnotation))
	w.g.Expect(w.room.count("verify")).To(Equal(verified))
}

// A host that cannot tell, or serves another management cluster, is not clean.
func TestAHostThatCannotBeVerifiedSaysWhy(t *testing.T) {
	w := unclean(t, false)
	w.room.set(func() {
		w.room.findings = nil
		w.room.errs["verify"] = &ssh.ExitError{Code: 1, Stderr: "awk or ip is not installed on this host"}
	})
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.linger(5)
	host := w.host()
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(And(ContainSubstring("awk or ip is not installed"),
		ContainSubstring("because: after the reset: a mount")))
	w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.VerifyOnlyAnnotation))

	w = unclean(t, false)
	mend(w)
	w.room.set(func() { w.room.record.Generation = 7 })
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	stale := w.untilReason(infrav1.HostCleanCondition, infrav1.HostStaleClaimReason)
	w.g.Expect(stale.Message).To(ContainSubstring("knows generation 7"))
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined))

	// Whose it is was not asked again where something is found before, or the verification ends early.
	for _, change := range []func(){
		func() { w.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} },
		func() {
			w.room.errs["verify"] = &ssh.ExitError{Code: 1, Stderr: "awk or ip is not installed on this host"}
		},
	} {
		verified := w.room.count("verify")
		w.room.set(change)
		w.annotate(infrav1.VerifyOnlyAnnotation, "")
		w.until("verified", func(h *infrav1.QuoinHost) bool {
			_, asked := h.Annotations[infrav1.VerifyOnlyAnnotation]
			return !asked && w.room.count("verify") > verified
		})
		ready := condition1(w.host(), infrav1.HostReadyCondition)
		w.g.Expect(ready.Reason).To(Equal(infrav1.HostStaleClaimReason))
		w.g.Expect(ready.Message).To(And(ContainSubstring("knows generation 7"),
			Not(ContainSubstring(infrav1.ReleaseUncleanAnnotation))))
	}
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.never("was let go", (*infrav1.QuoinHost).ReleasedUnclean, 5)
}

func TestAHostThatServesSomebodyUnknownIsTakenFromThatByNameOnly(t *testing.T) {
	w := dirty(t)
	mend(w)
	w.room.set(func() {
		w.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm9", UID: "99999999",
			Generation: w.host().Spec.ClaimGeneration, ManagementCluster: w.room.record.ManagementCluster}
	})
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.linger(5)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(w.room.count("verify")).To(BeZero())
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring(
		infrav1.VerifyOnlyAnnotation + "=quoin://hosts/h1/99999999"))
	w.g.Expect(w.room.record.UID).To(Equal("99999999"))
}

// It answers, so it is not off; and its Machine need not wait for it again.
func TestAnAbandonedHostThatIsNotCleanStaysGivenUpButNotFenced(t *testing.T) {
	w := givenUpWorld(t)
	w.g.Expect(w.host().Fenced()).To(BeTrue())
	w.room.set(func() { w.room.err = nil })
	w.room.set(func() { w.room.findings = unclean(t, false).room.findings })
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.untilReason(infrav1.HostCleanCondition, infrav1.HostReturnedReason)
	w.g.Expect(w.host().GivenUp()).To(BeTrue())
	w.g.Expect(w.host().Fenced()).To(BeFalse())

	target := copyOf(w, "target")
	deleteMachine(target)
	target.until("given up", (*infrav1.QuoinHost).GivenUp)
	target.g.Expect(target.host().Fenced()).To(BeFalse(), "nor after a move")
	mend(w)
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.until("clean", (*infrav1.QuoinHost).Released)
}

func TestAManagerKilledWhileItVerifiesOnlyNeverResets(t *testing.T) {
	for n := 1; n <= 6; n++ {
		w := unclean(t, false)
		resets := w.room.count("clean")
		mend(w)
		w.annotate(infrav1.VerifyOnlyAnnotation, "")
		killed(w, n)
		w.until("clean", (*infrav1.QuoinHost).Released)
		w.linger(2)
		w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.VerifyOnlyAnnotation))
		w.g.Expect(w.room.count("clean")).To(Equal(resets), "write %d", n)
	}
}
