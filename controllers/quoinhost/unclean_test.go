// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// unclean is a host whose Machine is being deleted, and on which something is found after each reset.
func unclean(t *testing.T, controlPlane bool) *world {
	w := claimedWorld(t, controlPlane)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { w.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} })
	deleteMachine(w)
	w.untilState(infrav1.HostStateQuarantined)
	w.linger(3)
	return w
}

// told are the events since the last look.
func told(recorder *events.FakeRecorder) (all string) {
	for {
		select {
		case one := <-recorder.Events:
			all += one + "\n"
		default:
			return all
		}
	}
}

// killed has the manager die instead of its n-th write, and another one go on.
func killed(w *world, n int) {
	w.t.Helper()
	died, writes := errors.New("the manager died"), 0
	die := func() error {
		if writes++; writes >= n {
			return died
		}
		return nil
	}
	w.r.defaults()
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			if err := die(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			options ...client.SubResourcePatchOption) error {
			if err := die(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, options...)
		},
	})
	for range 10 {
		if _, err := w.attempt(); errors.Is(err, died) {
			break
		}
	}
	w.restart()
}

func TestAQuarantineNamesAllWaysOut(t *testing.T) {
	command := func(annotation string) string { return "kubectl -n hosts annotate quoinhost h1 " + annotation + "=" }
	w := unclean(t, false)
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Message).To(And(ContainSubstring("a mount (umount it)"),
		ContainSubstring(command(infrav1.RetryAnnotation)), ContainSubstring(command(infrav1.VerifyOnlyAnnotation)),
		ContainSubstring(command(infrav1.ReleaseUncleanAnnotation)+"quoin://hosts/h1/0123abcd"),
		ContainSubstring("Machine team/m1"), ContainSubstring(command(infrav1.AbandonAnnotation))))

	w = dirty(t)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(And(
		ContainSubstring(command(infrav1.VerifyOnlyAnnotation)),
		Not(ContainSubstring(infrav1.ReleaseUncleanAnnotation))), "no Machine waits for it")
}

func TestAMachineIsLetGoAtAPersonsWordAndItsHostStaysQuarantined(t *testing.T) {
	w := unclean(t, false)
	recorder := events.NewFakeRecorder(100)
	w.r.Recorder = recorder
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	host := w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
	w.g.Expect(told(recorder)).To(ContainSubstring(infrav1.HostReleasedUncleanReason))
	w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.ReleaseUncleanAnnotation))
	w.g.Expect(host.GivenUp()).To(BeFalse())
	fenced := condition1(host, infrav1.HostFencedCondition)
	w.g.Expect(fenced.Status).To(Equal(metav1.ConditionFalse))
	w.g.Expect(fenced.Reason).To(Equal(infrav1.HostNotFencedReason))
	ready := condition1(host, infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal(infrav1.HostReleasedUncleanReason))
	w.g.Expect(ready.Message).To(And(ContainSubstring("The reset ran to its end"), ContainSubstring("neither fenced"),
		ContainSubstring("no volume"), ContainSubstring("because: after the reset: a mount"),
		ContainSubstring(infrav1.VerifyOnlyAnnotation), Not(ContainSubstring(infrav1.ReleaseUncleanAnnotation))))
	w.g.Expect(host.Spec.Quarantine.By).To(Equal(infrav1.WordGiverPerson))
	w.linger(3)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "its Machine is still there")

	orphaned(w).until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
	w.linger(5)
	w.g.Expect(w.host().ReleasedUnclean()).To(BeTrue())
	w.g.Expect(w.room.record.UID).To(Equal("0123abcd"), "nothing was released there")
	w.g.Expect(w.room.record.Quarantine.Reason).To(Equal(infrav1.HostNotCleanReason),
		"objects that are older must not take the word for theirs")

	w.room.set(func() { w.room.findings = nil })
	w.annotate(infrav1.RetryAnnotation, "")
	host = w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(host.Spec.Quarantine).To(BeNil())
	w.g.Expect(condition1(host, infrav1.HostFencedCondition)).To(BeNil())
}

func TestAMachineThatWasLetGoIsLetGoAfterAMove(t *testing.T) {
	source := unclean(t, false)
	source.annotate(infrav1.ReleaseUncleanAnnotation, source.host().ProviderID())
	source.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)

	target := copyOf(source, "target")
	deleteMachine(target)
	host := target.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
	target.g.Expect(host.Fenced()).To(BeFalse())
	orphaned(target).until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
	target.linger(5)
	target.g.Expect(target.host().ReleasedUnclean()).To(BeTrue())
}

// hook holds the QuoinMachine as a control plane does whose etcd member is in the member list.
func hook(w *world, hooks ...infrav1.LifecycleHook) {
	w.t.Helper()
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.LifecycleHooks.PreTerminate = hooks
	w.g.Expect(w.client.Update(w.t.Context(), quoinMachine)).To(Succeed())
}

func TestAHostWithAnEtcdMemberIsNotLetGoUnclean(t *testing.T) {
	w := unclean(t, true)
	hook(w, infrav1.LifecycleHook{Name: controlplanev1.HookName, Owner: "QuoinControlPlane/cp"})
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.never("was let go", (*infrav1.QuoinHost).ReleasedUnclean, 10)
	host := w.host()
	w.g.Expect(host.Annotations).To(HaveKey(infrav1.ReleaseUncleanAnnotation), "the word waits")
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(And(
		ContainSubstring(infrav1.ReleaseUncleanAnnotation+" does nothing yet"),
		ContainSubstring("QuoinControlPlane/cp")))

	hook(w)
	w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
}

func TestAWantedMachineIsNotLetGoUnclean(t *testing.T) {
	w := claimedWorld(t, true)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		w.room.record.Quarantine = owner.Quarantine{Reason: infrav1.HostStepFailedReason, Message: "the reset failed"}
	})
	w.now = w.now.Add(w.r.Timings.Probe)
	w.untilState(infrav1.HostStateQuarantined)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	w.never("was let go", (*infrav1.QuoinHost).ReleasedUnclean, 5)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring("Delete the Machine"))

	deleteMachine(w)
	host := w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(And(ContainSubstring("No reset is known"),
		ContainSubstring("kubelet"), ContainSubstring("API server and etcd"), ContainSubstring("may still run")))
}

func TestWhatMayRunIsSaidByHowFarTheResetCame(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	for _, id := range []string{"reset-0123abcd", "reset-0123abcd-2", "reset-0123abcd-3"} {
		w.room.script[id] = []run.Status{{Phase: run.Failed, Step: "stop-kubelet", Message: "step 1, stop-kubelet, failed"}}
	}
	deleteMachine(w)
	w.untilState(infrav1.HostStateQuarantined)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	host := w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(And(
		ContainSubstring("ended at its step stop-kubelet, so the kubelet with the credentials of its Node"),
		Not(ContainSubstring("etcd"))))
}

// A verification without a reset is no reset that ran.
func TestNoResetIsClaimedForAHostThatWasOnlyVerified(t *testing.T) {
	w := unclean(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Cleaning.Reboot = ptr.To(true) })
	mend(w)
	w.annotate(infrav1.VerifyOnlyAnnotation, "")
	w.until("booted", func(*infrav1.QuoinHost) bool { return w.room.boots == 1 })
	w.room.set(func() { w.room.findings = []reset.Finding{{What: "process kubelet runs", Fix: "stop it"}} })
	w.untilState(infrav1.HostStateQuarantined)
	w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
	host := w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(And(
		ContainSubstring("before it booted, so what may still run is what was found since"),
		ContainSubstring("because: after the reboot: process kubelet runs"), Not(ContainSubstring("ran to its end"))))
}

func TestAWordThatIsAboutNoQuarantineOrAnotherClaimIsTakenBack(t *testing.T) {
	const release = infrav1.ReleaseUncleanAnnotation
	provisioned := func(t *testing.T) *world {
		w := claimedWorld(t, false)
		w.untilState(infrav1.HostStateProvisioned)
		return w
	}
	for name, c := range map[string]struct {
		world             func(*testing.T) *world
		annotation, value string
		why               string
	}{
		"another claim": {func(t *testing.T) *world { return unclean(t, false) }, release,
			"quoin://hosts/h1/ffffffff", "the claim of the host is quoin://hosts/h1/0123abcd"},
		"no claim named": {func(t *testing.T) *world { return unclean(t, false) }, release, "", "it names"},
		"no claim":       {dirty, release, "", "no Machine has the host"},
		"no quarantine":  {provisioned, release, "quoin://hosts/h1/0123abcd", "not Quarantined"},

		"no quarantine to verify":  {provisioned, infrav1.VerifyOnlyAnnotation, "", "not Quarantined"},
		"a host that was given up": {givenUpWorld, release, "quoin://hosts/h1/0123abcd", "was given up"},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world(t)
			recorder := events.NewFakeRecorder(100)
			w.r.Recorder = recorder
			w.annotate(c.annotation, c.value)
			before := w.host().Status.State
			w.linger(3)
			w.g.Expect(w.host().Annotations).NotTo(HaveKey(c.annotation))
			w.g.Expect(told(recorder)).To(And(ContainSubstring("WordTakenBack"), ContainSubstring(c.why)))
			w.g.Expect(w.host().Status.State).To(Equal(before))
			w.g.Expect(w.host().ReleasedUnclean()).To(BeFalse())
		})
	}
}

// givenUpWorld is a host that a person abandoned, and whose Machine is still there.
func givenUpWorld(t *testing.T) *world {
	w := silentWorld(t, nothing)
	deleteMachine(w)
	w.annotate(infrav1.AbandonAnnotation, w.host().ProviderID())
	w.until("abandoned", (*infrav1.QuoinHost).Abandoned)
	w.linger(1)
	return w
}

func TestAManagerKilledWhileItLetsAMachineGoEndsIt(t *testing.T) {
	for n := 1; n <= 4; n++ {
		w := unclean(t, false)
		w.annotate(infrav1.ReleaseUncleanAnnotation, w.host().ProviderID())
		killed(w, n)
		w.until("let go", (*infrav1.QuoinHost).ReleasedUnclean)
		w.linger(2)
		w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.ReleaseUncleanAnnotation))
		message := condition1(w.host(), infrav1.HostCleanCondition).Message
		w.g.Expect(message).To(ContainSubstring("because: after the reset: a mount"), "write %d", n)
		finish(w, &clusterv1.Machine{}, "m1")
		finish(w, &infrav1.QuoinMachine{}, "qm1")
		w.until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
	}
}
