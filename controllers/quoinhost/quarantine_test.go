// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
)

// dirty is a free host that is quarantined, because an earlier Kubernetes was found on it.
func dirty(t *testing.T) *world {
	w := newWorld(t, newHost())
	w.room.facts.KubernetesPresent = []string{"/etc/kubernetes is not empty"}
	w.untilState(infrav1.HostStateQuarantined)
	w.linger(3)
	return w
}

// orphaned takes the claim's QuoinMachine and Machine away, so that a copy of the objects is that of a host nobody has.
func orphaned(w *world) *world {
	vanish(w, &infrav1.QuoinMachine{}, "qm1")
	vanish(w, &clusterv1.Machine{}, "m1")
	return w
}

func TestAQuarantinedHostIsQuarantinedForItsReasonAfterAMove(t *testing.T) {
	source := dirty(t)
	q := source.host().Spec.Quarantine
	source.g.Expect(q.Reason).To(Equal(infrav1.HostNotCleanReason))
	source.g.Expect(q.By).To(Equal(infrav1.WordGiverController))
	source.g.Expect(q.Since.Time).To(BeTemporally("~", source.now, time.Hour))
	source.g.Expect(q.Message).To(ContainSubstring("/etc/kubernetes is not empty"))

	target := copyOf(source, "target")
	// What was found is not to be seen any more: that proves nothing.
	target.room.set(func() { target.room.facts.KubernetesPresent = nil })
	target.linger(10)
	host := target.host()
	target.g.Expect(host.Status.State).To(Equal(infrav1.HostStateQuarantined))
	target.g.Expect(host.Spec.Quarantine).To(Equal(q), "it does not begin anew")
	ready := condition1(host, infrav1.HostReadyCondition)
	target.g.Expect(ready.Reason).To(Equal(infrav1.HostNotCleanReason), describe(host))
	target.g.Expect(ready.Message).To(ContainSubstring("/etc/kubernetes is not empty"))

	target.annotate(infrav1.RetryAnnotation, "")
	host = target.untilState(infrav1.HostStateAvailable)
	target.g.Expect(host.Spec.Quarantine).To(BeNil())
	target.g.Expect(target.room.record.Quarantine).To(Equal(owner.Quarantine{}))
}

func TestAQuarantineThatOnlyTheStatusTellsIsWrittenDown(t *testing.T) {
	w := dirty(t)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Quarantine = nil })
	w.linger(2)
	w.g.Expect(w.host().Spec.Quarantine.Reason).To(Equal(infrav1.HostNotCleanReason))
}

// A reset that was tried may have to be tried again under another name, of which only the host's journal knows.
func TestTheNextResetAfterAMoveIsAnotherOne(t *testing.T) {
	source := claimedWorld(t, false)
	source.untilState(infrav1.HostStateProvisioned)
	source.room.set(func() { source.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} })
	deleteMachine(source)
	source.untilState(infrav1.HostStateQuarantined)
	source.linger(2)
	source.annotate(infrav1.RetryAnnotation, "")
	source.until("quarantined again", func(h *infrav1.QuoinHost) bool {
		return h.Status.State == infrav1.HostStateQuarantined && h.Status.Operation.ID == "reset-0123abcd-2"
	})
	source.linger(2)

	target := copyOf(source, "target")
	deleteMachine(target)
	target.linger(10)
	target.g.Expect(target.host().Status.State).To(Equal(infrav1.HostStateQuarantined))
	target.g.Expect(target.host().Released()).To(BeFalse())
	target.room.set(func() { target.room.findings = nil })
	target.annotate(infrav1.RetryAnnotation, "")
	host := target.until("clean", (*infrav1.QuoinHost).Released)
	target.g.Expect(host.Status.Operation.ID).To(Equal("reset-0123abcd-3"))
}

func TestAnAbandonedHostStaysAbandonedAfterAMove(t *testing.T) {
	source := silentWorld(t, nothing)
	deleteMachine(source)
	source.annotate(infrav1.AbandonAnnotation, source.host().ProviderID())
	source.until("abandoned", (*infrav1.QuoinHost).Abandoned)
	source.g.Expect(source.host().Spec.Quarantine.By).To(Equal(infrav1.WordGiverPerson))

	target := copyOf(source, "target")
	target.room.set(func() { target.room.err = nil })
	deleteMachine(target)
	host := target.until("abandoned", func(h *infrav1.QuoinHost) bool {
		return h.Abandoned() && h.GivenUp() &&
			h.Fenced()
	})
	target.g.Expect(condition1(host, infrav1.HostProvisionedCondition).Reason).To(Equal(infrav1.HostAbandonedReason))
	orphaned(target).until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
	target.linger(5)
	target.g.Expect(target.host().Abandoned()).To(BeTrue())
	target.g.Expect(target.room.count("clean")+target.room.count("isolate")).To(BeZero(), "nothing is done to it any more")

	back := copyOf(target, "back")
	back.linger(5)
	back.g.Expect(back.host().Abandoned()).To(BeTrue(), "and after the move back")
}

// poweredOff has a host that is silent, and fenced by its BMC.
func poweredOff(t *testing.T) *world {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	w.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
	off := w.host().Spec.PoweredOff
	w.g.Expect(off).NotTo(BeNil())
	w.g.Expect(off.Message).To(ContainSubstring("its BMC confirms that the power is off"))
	return w
}

// movedWithBMC is the same host after a move, and its BMC.
func movedWithBMC(source *world) *world {
	target := copyOf(source, "target")
	target.bmc = source.bmc
	target.restart()
	target.bmc.orders = nil
	return target
}

func TestAHostThatWePoweredOffIsKnownToBeAfterAMove(t *testing.T) {
	t.Run("a retry turns it on", func(t *testing.T) {
		source := poweredOff(t)
		target := movedWithBMC(source)
		deleteMachine(target)
		host := target.until("given up", (*infrav1.QuoinHost).GivenUp)
		target.g.Expect(host.Spec.PoweredOff).NotTo(BeNil())
		orphaned(target).until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
		target.g.Expect(target.bmc.told()).To(BeEmpty())

		target.room.set(func() { target.room.err = nil })
		target.annotate(infrav1.RetryAnnotation, "")
		host = target.untilState(infrav1.HostStateAvailable)
		target.g.Expect(target.bmc.told()).To(Equal([]string{"on"}))
		target.g.Expect(host.Spec.PoweredOff).To(BeNil())
		target.g.Expect(host.Spec.Quarantine).To(BeNil())
	})
	t.Run("it is not cycled again before its claim ends", func(t *testing.T) {
		source := poweredOff(t)
		// The power was off, and the manager died before it gave the host up.
		source.update(func(h *infrav1.QuoinHost) { h.Spec.Quarantine = nil })
		target := movedWithBMC(source)
		deleteMachine(target)
		target.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
		target.g.Expect(target.bmc.told()).To(BeEmpty(), "a cycle would boot the old node")
	})
	t.Run("somebody turned it on", func(t *testing.T) {
		source := poweredOff(t)
		source.update(func(h *infrav1.QuoinHost) { h.Spec.Quarantine = nil })
		target := movedWithBMC(source)
		target.bmc.state = "On"
		deleteMachine(target)
		host := target.until("seen", func(h *infrav1.QuoinHost) bool { return h.Spec.PoweredOff == nil })
		target.g.Expect(host.Fenced()).To(BeFalse())
		target.g.Expect(host.GivenUp()).To(BeFalse())
	})
	t.Run("it answers", func(t *testing.T) {
		source := poweredOff(t)
		source.update(func(h *infrav1.QuoinHost) { h.Spec.Quarantine = nil })
		target := movedWithBMC(source)
		target.room.set(func() { target.room.err = nil })
		target.until("seen", func(h *infrav1.QuoinHost) bool { return h.Spec.PoweredOff == nil })
		target.g.Expect(target.bmc.told()).To(BeEmpty())
	})
}

// Objects from before the quarantine know nothing of it.
func TestAnOldBackupDoesNotLaunderAQuarantine(t *testing.T) {
	t.Run("of a free host", func(t *testing.T) {
		w := dirty(t)
		w.g.Expect(w.room.record.Quarantine.Reason).To(Equal(infrav1.HostNotCleanReason))
		w.room.set(func() { w.room.facts.KubernetesPresent = nil })
		old := newHost()
		old.UID = "restored"
		restored := newWorld(t, old)
		restored.room, restored.now = w.room, w.now
		restored.restart()
		host := restored.untilState(infrav1.HostStateQuarantined)
		restored.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(And(
			ContainSubstring("/etc/kubernetes is not empty"), ContainSubstring("older than that"),
			ContainSubstring(infrav1.RetryAnnotation)))
		restored.annotate(infrav1.RetryAnnotation, "")
		restored.untilState(infrav1.HostStateAvailable)
	})
	t.Run("of a host that has a claim there", func(t *testing.T) {
		w := claimedWorld(t, false)
		backup := w.host()
		w.untilState(infrav1.HostStateProvisioned)
		w.room.set(func() { w.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} })
		deleteMachine(w)
		w.untilState(infrav1.HostStateQuarantined)
		w.linger(3)
		w.g.Expect(w.room.record.Quarantine.Reason).To(Equal(infrav1.HostNotCleanReason))

		restored := copyOf(w, "restored")
		restored.update(func(h *infrav1.QuoinHost) { h.Spec.Quarantine = nil })
		restored.g.Expect(backup.Spec.Quarantine).To(BeNil())
		host := restored.untilState(infrav1.HostStateQuarantined)
		restored.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(ContainSubstring("a mount"))
	})
	t.Run("of a host that was free all the while", func(t *testing.T) {
		w := newWorld(t, newHost())
		w.untilState(infrav1.HostStateAvailable)
		w.room.set(func() {
			w.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Generation: 1,
				Quarantine: owner.Quarantine{Reason: infrav1.HostStepFailedReason, Message: "the reset failed"}}
		})
		w.now = w.now.Add(time.Hour)
		w.untilState(infrav1.HostStateQuarantined)
	})
}

// What the host cannot be told is told to it later, and changes nothing about why it is quarantined.
func TestAHostThatCannotBeToldOfItsQuarantineIsQuarantinedAllTheSame(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.errs["isolate"] = errNoRoute
	w.room.facts.KubernetesPresent = []string{"/etc/kubernetes is not empty"}
	w.untilState(infrav1.HostStateQuarantined)
	w.linger(5)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostNotCleanReason))
	w.room.set(func() { delete(w.room.errs, "isolate") })
	w.until("told", func(*infrav1.QuoinHost) bool { return w.room.record != nil && w.room.record.Quarantine.Reason != "" })
}

// Spec is written before the status: of the two, a manager that dies in between finds the stricter one.
func TestAManagerKilledAroundAQuarantineFindsIt(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { w.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} })
	deleteMachine(w)
	died := errors.New("the manager died")
	whole := w.client.(client.WithWatch) //nolint:forcetypeassert // the fake is one
	w.r.defaults()
	w.r.Client = interceptor.NewClient(whole, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			options ...client.SubResourcePatchOption) error {
			host := o.(*infrav1.QuoinHost) //nolint:forcetypeassert // nothing else is patched
			if host.Status.State == infrav1.HostStateQuarantined {
				return died
			}
			return c.SubResource(sub).Patch(ctx, o, p, options...)
		},
	})
	for range 60 {
		if _, err := w.r.Reconcile(context.Background(), request(w)); errors.Is(err, died) {
			break
		}
		w.now = w.now.Add(10 * time.Second)
		time.Sleep(5 * time.Millisecond)
	}
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateCleaning))
	w.g.Expect(w.host().Spec.Quarantine).NotTo(BeNil())
	w.room.set(func() { w.room.findings = nil })
	w.restart()
	w.linger(5)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(w.host().Released()).To(BeFalse())
}

// Admission lets a quarantine go only from an object that carries the annotation.
func TestAQuarantineIsLiftedWhileTheWordForItIsThere(t *testing.T) {
	for annotation, quarantined := range map[string]func(*testing.T) *world{
		infrav1.RetryAnnotation:      dirty,
		infrav1.VerifyOnlyAnnotation: func(t *testing.T) *world { return unclean(t, false) },
	} {
		w, lifted := quarantined(t), 0
		w.r.defaults()
		w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				options ...client.PatchOption) error {
				before := w.host()
				if err := c.Patch(ctx, o, p, options...); err != nil {
					return err
				}
				if after := w.host(); before.Spec.Quarantine != nil && after.Spec.Quarantine == nil {
					lifted++
					w.g.Expect(after.Annotations).To(HaveKey(annotation))
				}
				return nil
			},
		})
		mend(w)
		w.annotate(annotation, "")
		w.until("clean", func(h *infrav1.QuoinHost) bool {
			return h.Status.State == infrav1.HostStateAvailable || h.Released()
		})
		w.g.Expect(lifted).To(Equal(1))
		w.g.Expect(w.host().Annotations).NotTo(HaveKey(annotation))
	}
}
