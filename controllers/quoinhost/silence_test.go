// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
)

// A machine that is installed anew is silent meanwhile, and presents another key afterwards.
// Nor is one of whose silence nobody knows whether it lasts, nor one that shows whom it serves and is not understood.
func TestAHostThatAnswersWithAnotherKeyOrRefusesOursIsNotPoweredOff(t *testing.T) {
	for name, err := range map[string]error{
		"another key": &ssh.HostKeyChangedError{Endpoint: "192.0.2.11:22", Want: []string{"SHA256:old"},
			Got: "SHA256:new"},
		"lost behind its bastion": &ssh.BastionError{Bastion: "192.0.2.1:22", Err: errors.New("no route to host")},
		"refused by an operator": &ssh.RefusedError{Endpoint: "192.0.2.11:22",
			Err: &egress.RefusedError{Address: netip.MustParseAddr("192.0.2.11"), Why: "it is in none of them"}},
		"no entry":                             &ssh.AuthError{Endpoint: "192.0.2.11:22", User: "root"},
		"a record of a later release of Quoin": &owner.UnreadableError{Format: 2},
		"weak algorithms":                      &ssh.AlgorithmsError{Endpoint: "192.0.2.11:22", Kind: "key exchange"},
	} {
		t.Run(name, func(t *testing.T) {
			w := silentWorld(t, withBMC)
			w.room.set(func() { w.room.err = err })
			deleteMachine(w)
			w.linger(60)
			w.g.Expect(w.bmc.told()).To(BeEmpty())
			host := w.host()
			w.g.Expect(host.GivenUp()).To(BeFalse())
			w.g.Expect(host.Status.UnreachableSince).To(BeNil())
		})
	}
}

func TestAFencedHostAtWhoseAddressSomebodyAnswersIsFencedNoMore(t *testing.T) {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	w.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
	w.room.set(func() {
		w.room.err = &ssh.HostKeyChangedError{Endpoint: "192.0.2.11:22", Want: []string{"SHA256:old"}, Got: "SHA256:new"}
	})
	w.now = w.now.Add(time.Hour)
	host := w.until("seen", func(h *infrav1.QuoinHost) bool { return !h.Fenced() })
	w.g.Expect(host.GivenUp()).To(BeTrue())
}

// What a plane last heard of a host is that it serves another one; that it hears nothing now gives it no right to its
// power.
func TestAStalePlaneDoesNotPowerOffASilentHost(t *testing.T) {
	older := claimedWorld(t, false)
	older.update(withBMC)
	older.untilState(infrav1.HostStateProvisioned)
	older.room.set(func() { older.room.record.Generation = 2 })
	older.now = older.now.Add(time.Hour)
	older.until("stale", func(h *infrav1.QuoinHost) bool { return usurped(h) != nil })
	older.room.set(func() { older.room.err = errNoRoute })
	older.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
	deleteMachine(older)
	found := older.untilReason(infrav1.HostFencedCondition, infrav1.HostStaleClaimReason)
	older.g.Expect(found.Message).To(And(ContainSubstring("another management plane"),
		ContainSubstring(infrav1.AbandonAnnotation)))
	older.linger(60)
	older.g.Expect(older.bmc.told()).To(BeEmpty())
	older.g.Expect(older.host().GivenUp()).To(BeFalse())

	older.room.set(func() {
		older.room.err = nil
		older.room.record = &owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1}
	})
	older.until("clean", (*infrav1.QuoinHost).Released)
}

func TestAFailingBMCDoesNotDelayTheNextAttempt(t *testing.T) {
	w := silentWorld(t, withBMC)
	w.bmc.err = errors.New("the BMC does not answer")
	deleteMachine(w)
	w.untilReason(infrav1.HostFencedCondition, infrav1.HostBMCFailedReason)
	for range 10 {
		if result := w.reconcile(); result.RequeueAfter > DefaultTimings().Power {
			t.Fatalf("looks again only after %s", result.RequeueAfter)
		}
	}
}

func TestAFencedHostThatSomebodyTurnsOnIsFencedAgainBeforeItsClaimEnds(t *testing.T) {
	w := fencedWorld(t)
	w.bmc.mu.Lock()
	w.bmc.state = "On"
	w.bmc.mu.Unlock()
	w.now = w.now.Add(time.Hour)
	w.until("fenced no more", func(h *infrav1.QuoinHost) bool { return !h.Fenced() })
	at := w.now
	w.until("fenced again", (*infrav1.QuoinHost).Fenced)
	w.g.Expect(w.now.Sub(at)).To(BeNumerically(">=", bootTime), "it had the time to answer")
	w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off", "off"}))
}

func TestNobodyVouchesForTheFenceOfADetachedHost(t *testing.T) {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	w.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
	w.annotate(infrav1.DetachedAnnotation, "")
	host := w.until("fenced no more", func(h *infrav1.QuoinHost) bool { return !h.Fenced() })
	w.g.Expect(host.GivenUp()).To(BeTrue())
}

// What a host prints may be more than its namespace has room for: that is no silence, and nothing is done as for one.
func TestAHostThatPrintsTooMuchIsReachable(t *testing.T) {
	w := atWork(t)
	w.room.set(func() { w.room.err = errNoRoute })
	w.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
	w.room.set(func() {
		w.room.err = &ssh.OutputError{Endpoint: "192.0.2.11:22", Err: errors.New("raise the manager's flag --host-output-mib")}
	})
	host := w.until("heard", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince == nil })
	w.g.Expect(condition1(host, infrav1.HostReachableCondition).Status).To(Equal(metav1.ConditionTrue))
	provisioned := condition1(host, infrav1.HostProvisionedCondition)
	w.g.Expect(provisioned.Reason).To(Equal(infrav1.HostOperationFailedReason))
	w.g.Expect(provisioned.Message).To(ContainSubstring("--host-output-mib"))
	w.g.Expect(host.Status.NextAttempt).NotTo(BeNil(), "it is tried again")
}
