// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// leftBehind is what a move leaves that took everything but the host: its node lives on, in another management cluster.
func leftBehind(t *testing.T) *world {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	loseConsumer(w)
	vanish(w, &clusterv1.Machine{}, "m1")
	w.g.Expect(w.client.Delete(context.Background(),
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c1"}})).To(Succeed())
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostConsumerMissingReason)
	return w
}

// vanish takes an object away, whatever holds it.
func vanish(w *world, o client.Object, name string) {
	w.t.Helper()
	finish(w, o, name)
	w.g.Expect(client.IgnoreNotFound(w.client.Delete(context.Background(), o))).To(Succeed())
}

func TestAHostThatAMoveLeftBehindIsNotResetByWhatItAdvises(t *testing.T) {
	w := leftBehind(t)
	for _, c := range w.host().Status.Conditions {
		w.g.Expect(c.Message).NotTo(ContainSubstring(infrav1.RetryAnnotation), "%s advises what destroys the node", c.Type)
	}
	w.annotate(infrav1.RetryAnnotation, "")
	w.linger(10)
	w.g.Expect(w.room.count("clean")).To(BeZero(), "one word resets a live node")
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
}

// confirmReset has a host whose consumer is missing reset: a person asks, reads what would be lost, and confirms it.
func confirmReset(w *world) {
	w.t.Helper()
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilReason(infrav1.HostResetConfirmedCondition, infrav1.HostConfirmationNeededReason)
	w.annotate(infrav1.RetryAnnotation, w.host().ProviderID())
}

func TestAResetWithoutTheConsumerIsAskedForTwice(t *testing.T) {
	w := leftBehind(t)
	w.annotate(infrav1.RetryAnnotation, "")
	asked := w.untilReason(infrav1.HostResetConfirmedCondition, infrav1.HostConfirmationNeededReason)
	for _, lost := range []string{
		"the node h1 ", "provider ID quoin://hosts/h1/0123abcd", "Machine team/m1", "it answered at 2026-01-01T",
		infrav1.RetryAnnotation + "=quoin://hosts/h1/0123abcd",
	} {
		w.g.Expect(asked.Message).To(ContainSubstring(lost))
	}
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal(infrav1.HostConfirmationNeededReason), ready.Message)
	w.restart()
	for _, word := range []string{"", "yes", "quoin://hosts/h1/ffffffff"} {
		w.annotate(infrav1.RetryAnnotation, word)
		w.linger(5)
		w.g.Expect(w.room.count("clean")).To(BeZero(), "%q confirms nothing", word)
		w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.RetryAnnotation))
	}
	w.annotate(infrav1.RetryAnnotation, "quoin://hosts/h1/0123abcd")
	w.until("reset", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == 1 })
	w.g.Expect(condition1(w.host(), infrav1.HostResetConfirmedCondition)).To(BeNil())
}

// Whoever pastes the second command first has read nothing.
func TestAConfirmationThatNobodyAskedForIsAQuestion(t *testing.T) {
	w := leftBehind(t)
	w.annotate(infrav1.RetryAnnotation, w.host().ProviderID())
	w.untilReason(infrav1.HostResetConfirmedCondition, infrav1.HostConfirmationNeededReason)
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(BeZero())
}

// A QuoinHost that is registered anew knows nothing of the node that its host carries for another management cluster.
func TestAServingHostThatIsRegisteredAnewIsResetOnlyAfterTwoWords(t *testing.T) {
	for name, record := range map[string]owner.Record{
		"of another management cluster": {Namespace: "hosts", Host: "h1", Machine: "qm7", UID: "7777aaaa", Generation: 4,
			ManagementCluster: "another"},
		"whose claim was taken off by hand": {Namespace: "hosts", Host: "h1", Machine: "qm7", UID: "7777aaaa", Generation: 1,
			ManagementCluster: "host-uid"},
		"from before planes were named": {Namespace: "hosts", Host: "h1", Machine: "qm7", UID: "7777aaaa", Generation: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newHost())
			w.room.record = &record
			w.untilState(infrav1.HostStateQuarantined)
			w.linger(2)
			w.annotate(infrav1.RetryAnnotation, "quoin://hosts/h1/7777aaaa")
			asked := w.untilReason(infrav1.HostReadyCondition, infrav1.HostConfirmationNeededReason)
			w.g.Expect(asked.Message).To(And(ContainSubstring("serves QuoinMachine qm7 (claim 7777aaaa, generation"),
				ContainSubstring(infrav1.RetryAnnotation+"=quoin://hosts/h1/7777aaaa"), ContainSubstring("the node h1 ")))
			w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.RetryAnnotation))
			w.restart()
			for _, word := range []string{"", "yes"} {
				w.annotate(infrav1.RetryAnnotation, word)
				w.linger(5)
				w.g.Expect(w.room.count("clean")).To(BeZero(), "%q confirms nothing", word)
			}
			w.annotate(infrav1.RetryAnnotation, "quoin://hosts/h1/7777aaaa")
			w.until("reset", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == 1 })
			w.g.Expect(condition1(w.host(), infrav1.HostResetConfirmedCondition)).To(BeNil())
		})
	}
}

func TestAQuarantinedHostThatIsSilentIsNotResetUnheard(t *testing.T) {
	w := dirty(t)
	w.room.set(func() { w.room.err = errNoRoute })
	w.annotate(infrav1.RetryAnnotation, "")
	w.linger(10)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.RetryAnnotation))
	w.room.set(func() { w.room.err, w.room.facts.KubernetesPresent = nil, nil })
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilState(infrav1.HostStateAvailable)
}

func TestAQuarantinedHostWhoseConsumerIsMissingIsResetOnlyAfterTwoWords(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { w.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} })
	deleteMachine(w)
	w.untilState(infrav1.HostStateQuarantined)
	w.linger(2)
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	resets := w.room.count("clean")
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostConfirmationNeededReason)
	w.g.Expect(condition1(w.host(), infrav1.HostCleanCondition).Reason).To(Equal(infrav1.HostNotCleanReason),
		"it is still quarantined for its reason")
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(Equal(resets))
	w.room.set(func() { w.room.findings = nil })
	w.annotate(infrav1.RetryAnnotation, w.host().ProviderID())
	w.until("reset", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == resets+1 })
}

// The Cluster is the first of a move's objects to arrive, and the last to leave.
func TestAHostSaysThatItsConsumerIsOnItsWayWhileTheClusterIsPaused(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	pause := func(paused bool) {
		c := &clusterv1.Cluster{}
		w.object(c, "c1")
		c.Spec.Paused = ptr.To(paused)
		w.g.Expect(w.client.Update(context.Background(), c)).To(Succeed())
		w.g.Expect(w.r.hostsOfCluster(context.Background(), c)).To(HaveLen(1), "the Cluster tells the host, with a Machine "+
			"and without")
	}
	pause(true)
	loseConsumer(w)
	vanish(w, &clusterv1.Machine{}, "m1")
	ready := w.untilReason(infrav1.HostReadyCondition, infrav1.HostMovingReason)
	w.g.Expect(ready.Message).To(And(ContainSubstring("Cluster team/c1 is paused"),
		ContainSubstring("QuoinMachine team/qm1"), Not(ContainSubstring(infrav1.RetryAnnotation))))
	w.annotate(infrav1.RetryAnnotation, w.host().ProviderID())
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(BeZero())
	w.g.Expect(w.host().Annotations).To(HaveKey(infrav1.RetryAnnotation), "nothing is begun while paused, not even an "+
		"answer")

	pause(false)
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostConfirmationNeededReason)
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(BeZero())

	_, _, machine, back, _ := consumer(false)
	w.create(machine, back)
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostProvisionedReason)
}

func TestAHostWithoutItsConsumerIsLookedAt(t *testing.T) {
	w := leftBehind(t)
	w.g.Expect(w.client.Create(context.Background(),
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other"}})).To(Succeed())
	w.room.set(func() {
		w.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 2,
			ManagementCluster: "target"}
	})
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostStaleClaimReason)
	w.room.set(func() {
		w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("no route to host")}
	})
	host := w.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).NotTo(ContainSubstring(infrav1.RetryAnnotation))
	w.annotate(infrav1.RetryAnnotation, "")
	asked := w.untilReason(infrav1.HostResetConfirmedCondition, infrav1.HostConfirmationNeededReason)
	w.g.Expect(asked.Message).To(ContainSubstring("it has not answered since"))
}

func TestAHostThatIsDeletedWithoutItsConsumerStays(t *testing.T) {
	w := leftBehind(t)
	w.g.Expect(w.client.Delete(context.Background(), w.host())).To(Succeed())
	w.linger(5)
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal(clusterv1.DeletingReason))
	w.g.Expect(ready.Message).To(And(ContainSubstring(infrav1.ForgetAnnotation+"=quoin://hosts/h1/0123abcd"),
		Not(ContainSubstring("delete Machine")), Not(ContainSubstring(infrav1.RetryAnnotation))))
	changes := w.changes()

	w.annotate(infrav1.ForgetAnnotation, "yes")
	w.linger(5)
	w.g.Expect(w.host().DeletionTimestamp.IsZero()).To(BeFalse(), "a word that names nothing")
	w.annotate(infrav1.ForgetAnnotation, "quoin://hosts/h1/0123abcd")
	w.reconcile()
	w.g.Expect(apierrors.IsNotFound(w.client.Get(context.Background(), w.key, &infrav1.QuoinHost{}))).To(BeTrue())
	w.g.Expect(w.changes()).To(Equal(changes), "the host is left as it is")
}

// The QuoinMachine goes before the Machine, and the host when both are gone.
func TestAHostThatIsDeletedWhileItIsReleasedAdvisesNothing(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.client.Delete(context.Background(), w.host())).To(Succeed())
	vanish(w, &infrav1.QuoinMachine{}, "qm1")
	w.annotate(infrav1.ForgetAnnotation, w.host().ProviderID())
	w.linger(2)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).NotTo(ContainSubstring(infrav1.ForgetAnnotation))
	vanish(w, &clusterv1.Machine{}, "m1")
	w.linger(3)
	w.g.Expect(apierrors.IsNotFound(w.client.Get(context.Background(), w.key, &infrav1.QuoinHost{}))).To(BeTrue())
}

func TestAHostWithItsConsumerIsNotForgotten(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.annotate(infrav1.ForgetAnnotation, w.host().ProviderID())
	w.linger(3)
	w.g.Expect(w.client.Delete(context.Background(), w.host())).To(Succeed())
	w.linger(5)
	w.g.Expect(w.host().DeletionTimestamp.IsZero()).To(BeFalse())
}
