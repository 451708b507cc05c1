// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// copyOf is another management cluster on the same host, with the same objects under other UIDs: what a move leaves
// behind when its source was not cleaned up, or what a restored backup brings back.
func copyOf(w *world, uid string) *world {
	w.t.Helper()
	host := w.host()
	host.UID, host.ResourceVersion, host.Status = types.UID(uid), "", infrav1.QuoinHostStatus{}
	cluster, quoinCluster, machine, quoinMachine, secret := consumer(false)
	other := newWorld(w.t, host, cluster, quoinCluster, machine, quoinMachine, secret)
	other.now, other.room = w.now, w.room
	other.restart()
	return other
}

func (w *world) changes() []string {
	var out []string
	w.room.set(func() { out = slices.Clone(w.room.changed) })
	return out
}

// expectOnlyReads lets the plane work for a long time, and reads the host afterwards.
func expectOnlyReads(w *world, what string) {
	w.t.Helper()
	before, record := w.changes(), *w.room.record
	w.linger(40)
	w.g.Expect(w.changes()).To(Equal(before), what)
	w.g.Expect(*w.room.record).To(Equal(record), what)
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Status).To(Equal(metav1.ConditionFalse), what)
	w.g.Expect(ready.Reason).To(Equal(infrav1.HostStaleClaimReason), "%s: %s", what, describe(w.host()))
	w.g.Expect(ready.Message).To(And(ContainSubstring("knows generation 2"), ContainSubstring("ours is 1"),
		ContainSubstring("annotate quoinhosts --all "+infrav1.RaiseGenerationAnnotation+"=")), what)
}

func TestTheNewerPlaneTakesOverAndTheOlderOnlyReads(t *testing.T) {
	for name, c := range map[string]struct {
		// reach is how far the claim is when the second plane takes it over.
		reach infrav1.HostState
		// script of the plan that then runs.
		script []run.Status
		// want is what the older plane is asked for.
		want func(older *world)
	}{
		"reset a node":        {infrav1.HostStateProvisioned, nil, deleteMachine},
		"bring add-ons":       {infrav1.HostStateProvisioned, nil, func(w *world) { wantAddons(w, "v1.36.0") }},
		"only look at a node": {infrav1.HostStateProvisioned, nil, func(*world) {}},
		"take up a lost plan": {infrav1.HostStateProvisioning, []run.Status{{Phase: run.Running, Message: "step 1"}},
			func(w *world) { w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Lost: true}} }},
		"reset a host at work": {infrav1.HostStateProvisioning, []run.Status{{Phase: run.Running, Message: "step 1"}},
			deleteMachine},
	} {
		t.Run(name, func(t *testing.T) {
			older := claimedWorld(t, false)
			if c.script != nil {
				older.room.script[provisionPlanID] = c.script
			}
			older.untilState(c.reach)
			older.until("started", func(*infrav1.QuoinHost) bool { return older.room.count("provision") > 0 })
			older.linger(1)
			newer := copyOf(older, "newer")
			newer.until("taken over", func(*infrav1.QuoinHost) bool { return newer.room.record.Generation == 2 })
			newer.g.Expect(newer.host().Spec.ManagedBy).To(Equal("newer"))
			newer.g.Expect(newer.host().Spec.ClaimGeneration).To(BeEquivalentTo(2))

			older.now = older.now.Add(time.Hour)
			c.want(older)
			expectOnlyReads(older, name)
			older.g.Expect(older.host().Spec.ClaimGeneration).To(BeEquivalentTo(1), "the older never raises")
		})
	}
}

func TestOfTwoPlanesMadeFromOneCopyOnlyTheFirstHasTheHost(t *testing.T) {
	source := claimedWorld(t, false)
	source.untilState(infrav1.HostStateProvisioned)
	first, second := copyOf(source, "first"), copyOf(source, "second")
	first.until("taken over", func(*infrav1.QuoinHost) bool { return first.room.record.Generation == 2 })
	second.until("raised as well", func(h *infrav1.QuoinHost) bool { return h.Spec.ClaimGeneration == 2 })
	second.now = second.now.Add(time.Hour)
	deleteMachine(second)
	before := second.changes()
	second.linger(40)
	second.g.Expect(second.changes()).To(Equal(before))
	ready := condition1(second.host(), infrav1.HostReadyCondition)
	second.g.Expect(ready.Reason).To(Equal(infrav1.HostStaleClaimReason), describe(second.host()))
	second.g.Expect(ready.Message).To(ContainSubstring(infrav1.RaiseGenerationAnnotation))

	deleteMachine(first)
	first.until("clean", (*infrav1.QuoinHost).Released)
}

func TestAPlanThatTheNewerPlaneCleanedAwayIsNoInterruptionToTheOlder(t *testing.T) {
	older := claimedWorld(t, false)
	older.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Step: "kubeadm-join", Message: "step 3 of 5"}}
	older.until("running", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil &&
			h.Status.Operation.Step != ""
	})
	newer := copyOf(older, "newer")
	newer.until("taken over", func(*infrav1.QuoinHost) bool { return newer.room.record.Generation == 2 })
	deleteMachine(newer)
	newer.until("clean", (*infrav1.QuoinHost).Released)
	newer.room.set(func() { delete(newer.room.plans, provisionPlanID) })

	older.restart()
	expectOnlyReads(older, "the journal is gone")
	older.g.Expect(condition1(older.host(), infrav1.HostProvisionedCondition).Reason).NotTo(
		Equal(infrav1.HostBootstrapInterruptedReason))
	older.g.Expect(older.room.record.Released()).To(BeTrue(), "a released host refuses the older one as well")
}

func TestAReleaseVerifiedByTheNewerPlaneIsNotVerifiedByTheOlder(t *testing.T) {
	older := claimedWorld(t, false)
	older.untilState(infrav1.HostStateProvisioned)
	deleteMachine(older)
	older.until("reset", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.ID == "reset-0123abcd" &&
			h.Status.Operation.Phase == string(run.Running)
	})
	older.room.set(func() { older.room.record.Generation = 2 })
	expectOnlyReads(older, "verify and release")
}

func TestOnePlaneKeepsItsGeneration(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.restart()
	w.linger(20)
	w.g.Expect(w.host().Spec.ClaimGeneration).To(BeEquivalentTo(1))
	w.g.Expect(w.host().Spec.ManagedBy).To(Equal("host-uid"))
	w.g.Expect(w.room.record.Generation).To(BeEquivalentTo(1))
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	finish(w, &clusterv1.Machine{}, "m1")
	host := w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(host.Spec.ClaimGeneration).To(BeEquivalentTo(1), "the end of a claim keeps the generation")
	order := w.room.record.Order
	w.g.Expect(order).To(HavePrefix("2-"), "one order for the node and one for its end")
	w.g.Expect(*w.room.record).To(Equal(owner.Record{Namespace: "hosts", Host: "h1", Generation: 1,
		ManagementCluster: "host-uid", Order: order}))
}

func TestNothingIsAdoptedWhilePausedOrWhileTheConsumerIsOnItsWay(t *testing.T) {
	w := claimedWorld(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	w.linger(5)
	w.g.Expect(w.host().Spec.ManagedBy).To(BeEmpty())

	host := newHost()
	host.Spec.HostKeys = []string{keyA}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
	host.Spec.ClaimGeneration, host.Spec.ManagedBy = 4, "source"
	moving := newWorld(t, host)
	moving.linger(5)
	moving.g.Expect(moving.host().Spec.ManagedBy).To(Equal("source"))
}

func TestAHostRegisteredAnewCatchesUpAndAnOldObjectDoesNot(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.record = &owner.Record{Namespace: "gone", Host: "former", Generation: 7}
	host := w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(host.Spec.ClaimGeneration).To(BeEquivalentTo(7))
	w.g.Expect(host.Spec.ManagedBy).To(Equal("host-uid"))

	w.room.set(func() { w.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Generation: 9} })
	w.now = w.now.Add(time.Hour)
	host = w.untilState(infrav1.HostStateQuarantined)
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostStaleClaimReason))
	w.annotate(infrav1.RetryAnnotation, "")
	w.linger(20)
	w.g.Expect(w.changes()).To(BeEmpty(), "not even a person's retry; the generation has to be raised first")

	w.update(func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration = 9; h.Generation = 2 })
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilState(infrav1.HostStateAvailable)
}

// A management cluster that was restored from a backup knows less than its hosts. One command has it back, and nothing
// else does.
func TestAPersonRaisesTheGenerationAboveWhatTheHostKnows(t *testing.T) {
	older := claimedWorld(t, false)
	older.untilState(infrav1.HostStateProvisioned)
	newer := copyOf(older, "newer")
	newer.until("taken over", func(*infrav1.QuoinHost) bool { return newer.room.record.Generation == 2 })
	older.now = older.now.Add(time.Hour)
	expectOnlyReads(older, "before the word")

	older.room.set(func() { older.room.err = errNoRoute })
	older.annotate(infrav1.RaiseGenerationAnnotation, "")
	older.linger(10)
	older.g.Expect(older.host().Spec.ClaimGeneration).To(BeEquivalentTo(1), "nobody knows above what")
	older.g.Expect(older.host().Annotations).To(HaveKey(infrav1.RaiseGenerationAnnotation))
	older.restart()
	older.room.set(func() { older.room.err = nil })
	older.until("told", func(*infrav1.QuoinHost) bool { return older.room.record.Generation == 3 })
	host := older.until("ready", func(h *infrav1.QuoinHost) bool {
		return condition1(h, infrav1.HostReadyCondition).Reason == infrav1.HostProvisionedReason
	})
	older.g.Expect(host.Spec.ClaimGeneration).To(BeEquivalentTo(3))
	older.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.RaiseGenerationAnnotation))

	newer.now = newer.now.Add(time.Hour)
	newer.untilReason(infrav1.HostReadyCondition, infrav1.HostStaleClaimReason)
	changes := newer.changes()
	deleteMachine(newer)
	newer.linger(20)
	newer.g.Expect(newer.changes()).To(Equal(changes))
}

func TestAGenerationThatIsNotBehindIsNotRaised(t *testing.T) {
	refused := func(t *testing.T, w *world) {
		t.Helper()
		generation := w.host().Spec.ClaimGeneration
		w.annotate(infrav1.RaiseGenerationAnnotation, "")
		w.until("answered", func(h *infrav1.QuoinHost) bool {
			_, asked := h.Annotations[infrav1.RaiseGenerationAnnotation]
			return !asked
		})
		w.linger(3)
		w.g.Expect(w.host().Spec.ClaimGeneration).To(Equal(generation))
	}
	t.Run("a node", func(t *testing.T) {
		w := claimedWorld(t, false)
		w.untilState(infrav1.HostStateProvisioned)
		refused(t, w)
		w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
	})
	t.Run("a free host", func(t *testing.T) {
		w := newWorld(t, newHost())
		w.untilState(infrav1.HostStateAvailable)
		refused(t, w)
	})
	t.Run("a host whose consumer is missing", func(t *testing.T) {
		w := leftBehind(t)
		w.room.set(func() {
			w.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 2,
				ManagementCluster: "target"}
		})
		refused(t, w)
	})
}

func TestAFreeHostThatServedANewerPlaneIsQuarantinedWhenItsGenerationIsRaised(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration, h.Spec.ManagedBy = 1, "host-uid" })
	w.room.set(func() { w.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Generation: 9} })
	w.now = w.now.Add(time.Hour)
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostStaleClaimReason)
	w.annotate(infrav1.RaiseGenerationAnnotation, "")
	w.until("raised", func(h *infrav1.QuoinHost) bool { return h.Spec.ClaimGeneration == 10 })
	host := w.until("told why", func(h *infrav1.QuoinHost) bool {
		return condition1(h, infrav1.HostReadyCondition).Reason == infrav1.HostNotCleanReason
	})
	w.g.Expect(host.Spec.Quarantine.Reason).To(Equal(infrav1.HostNotCleanReason))
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilState(infrav1.HostStateAvailable)
}

func wantAddons(w *world, version string) {
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.AddonVersions = []string{version}
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
}
