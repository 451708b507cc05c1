// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// errFullDisk is what the host says of a plan that it cannot store.
var errFullDisk = &ssh.ExitError{Code: 1, Stderr: "mkdir: No space left on device"}

// stuckWorld is a host whose Machine is being deleted, and whose cleaning ends each time as the room is made to.
func stuckWorld(t *testing.T, controlPlane bool, fails func(*machineRoom)) *world {
	w := claimedWorld(t, controlPlane)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { fails(w.room) })
	deleteMachine(w)
	w.untilState(infrav1.HostStateCleaning)
	return w
}

// pass reconciles, as often as the host asks for it, until the time has passed.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		result := w.reconcile()
		w.now = w.now.Add(min(max(result.RequeueAfter, time.Second), end.Sub(w.now)))
	}
	w.linger(1)
}

// Whatever keeps a reset from being carried out, its Machine is let go at a person's word after a bounded time.
func TestAMachineIsLetGoAtAPersonsWordWhenItsHostCannotBeCleaned(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(*machineRoom)
		said  string
	}{
		"a full disk": {func(m *machineRoom) { m.errs["clean"] = errFullDisk },
			"No space left"},
		"a start that takes too long": {func(m *machineRoom) {
			m.errs["clean"] = &ssh.UnreachableError{
				Endpoint: "192.0.2.11:22", Err: errors.New("i/o timeout")}
		}, "not answered since"},
		"a containerd that hangs": {func(m *machineRoom) {
			m.errs["verify"] = &ssh.ExitError{Code: 1,
				Stderr: "containerd has not answered within 30 s"}
		}, "containerd"},
		"a lost key": {func(m *machineRoom) { m.err = &ssh.AuthError{Endpoint: "192.0.2.11:22", User: "root"} },
			"192.0.2.11:22"},
		"lost rights": {func(m *machineRoom) { m.errs["follow"] = &ssh.SudoError{User: "quoin"} },
			"quoin"},
		"silence": {func(m *machineRoom) { m.err = errNoRoute }, "not answered since"},
	} {
		t.Run(name, func(t *testing.T) {
			w := stuckWorld(t, false, c.fails)
			w.pass(maxFailing / 2)
			w.g.Expect(w.host().Status.CleaningFailsSince).NotTo(BeNil())
			w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).NotTo(
				ContainSubstring(infrav1.ReleaseUncleanAnnotation), "what passes by itself is waited for")

			w.restart()
			w.pass(maxFailing)
			host := w.host()
			w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateCleaning))
			ready := condition1(host, infrav1.HostReadyCondition)
			w.g.Expect(ready.Message).To(And(ContainSubstring(c.said), ContainSubstring("Machine team/m1"),
				ContainSubstring(annotate(host, infrav1.ReleaseUncleanAnnotation, host.ProviderID())),
				ContainSubstring(annotate(host, infrav1.AbandonAnnotation, host.ProviderID()))))

			recorder := events.NewFakeRecorder(100)
			w.r.Recorder = recorder
			w.annotate(infrav1.ReleaseUncleanAnnotation, host.ProviderID())
			host = w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
			w.g.Expect(told(recorder)).To(ContainSubstring(infrav1.HostReleasedUncleanReason))
			w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.ReleaseUncleanAnnotation))
			w.g.Expect(host.GivenUp()).To(BeFalse())
			w.g.Expect(host.Fenced()).To(BeFalse(), "nothing is claimed of it")
			w.g.Expect(host.Status.CleaningFailsSince).To(BeNil())
			w.g.Expect(host.Spec.Quarantine.By).To(Equal(infrav1.WordGiverPerson))
			w.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(And(ContainSubstring("may still run"),
				ContainSubstring("neither fenced nor clean"), ContainSubstring(c.said)))

			orphaned(w).until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
			w.g.Expect(w.host().ReleasedUnclean()).To(BeTrue())
		})
	}
}

// A message that a host fills with its output still ends with what a person can do.
func TestTheWaysOutOfACleaningThatFailsFollowALongOutput(t *testing.T) {
	w := stuckWorld(t, false, func(m *machineRoom) {
		m.errs["clean"] = &ssh.ExitError{Code: 1, Stderr: strings.Repeat("see kubectl reset. ", 400)}
	})
	w.pass(2 * maxFailing)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring(
		annotate(w.host(), infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())))
}

func TestAHostThatCanBeCleanedAfterAllIsReleasedAsAnyOther(t *testing.T) {
	w := stuckWorld(t, false, func(m *machineRoom) { m.errs["clean"] = errFullDisk })
	w.pass(2 * maxFailing)
	w.room.set(func() { delete(w.room.errs, "clean") })
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.host().Status.CleaningFailsSince).To(BeNil())
	orphaned(w)
	w.untilState(infrav1.HostStateAvailable)
}

// A word that is given early waits for the time, and is taken back when the cleaning goes on.
func TestAWordAboutACleaningThatFailsWaitsForItsTime(t *testing.T) {
	w := stuckWorld(t, false, func(m *machineRoom) { m.errs["clean"] = errFullDisk })
	w.pass(maxFailing / 3)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.pass(maxFailing / 3)
	w.g.Expect(w.host().Annotations).To(HaveKey(infrav1.ReleaseUncleanAnnotation))
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(
		ContainSubstring(infrav1.ReleaseUncleanAnnotation + " does nothing yet: its cleaning fails since"))
	w.room.set(func() { delete(w.room.errs, "clean") })
	w.now = w.now.Add(w.r.Timings.RetryLast)
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.linger(2)
	w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.ReleaseUncleanAnnotation))

	w = stuckWorld(t, false, func(m *machineRoom) { m.errs["clean"] = errFullDisk })
	w.pass(maxFailing / 3)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.pass(maxFailing)
	w.g.Expect(w.host().ReleasedUnclean()).To(BeTrue())
}

func TestAHostThatCannotBeCleanedAndMayRunAMemberIsNotLetGo(t *testing.T) {
	w := stuckWorld(t, true, func(m *machineRoom) { m.errs["clean"] = errFullDisk })
	hook(w, infrav1.LifecycleHook{Name: controlplanev1.HookName, Owner: "QuoinControlPlane/cp"})
	w.pass(2 * maxFailing)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.never("was let go", (*infrav1.QuoinHost).ReleasedUnclean, 10)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring("QuoinControlPlane/cp"))

	hook(w)
	host := w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
	w.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(ContainSubstring("API server and etcd"))
}

// Another management cluster has the host, and the Node there may be that of the Machine here.
func TestAHostThatServesAnotherManagementClusterIsNotLetGoUnclean(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		record := *w.room.record
		record.Generation++
		w.room.record = &record
	})
	deleteMachine(w)
	w.untilState(infrav1.HostStateCleaning)
	w.pass(2 * maxFailing)
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal(infrav1.HostStaleClaimReason))
	w.g.Expect(ready.Message).NotTo(ContainSubstring(infrav1.ReleaseUncleanAnnotation))
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.never("was let go", (*infrav1.QuoinHost).ReleasedUnclean, 10)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring("serves somebody else"))
}

// A host that takes the order to boot and never does is asked for ever; nor does it ever leave its boot.
func TestAHostThatNeverBootsIsLetGoAtAPersonsWord(t *testing.T) {
	w := claimedWorld(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Cleaning.Reboot = ptr.To(true) })
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.until("booting", func(*infrav1.QuoinHost) bool { return w.room.boots > 0 })
	w.room.set(func() { w.room.neverBoots, w.room.facts.BootID = true, "boot-1" })
	w.pass(2 * maxFailing)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
}
