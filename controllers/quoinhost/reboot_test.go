// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

func rebootingWorld(t *testing.T) *world {
	w := claimedWorld(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Cleaning.Reboot = ptr.To(true) })
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	return w
}

func TestAHostIsVerifiedAgainAfterARebootWhenThatIsAsked(t *testing.T) {
	w := rebootingWorld(t)
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.room.boots).To(Equal(1))
	w.g.Expect(w.room.verified).To(HaveLen(2))
	w.g.Expect(w.room.verified[0].RebootFollows).To(BeTrue())
	w.g.Expect(w.room.verified[1].RebootFollows).To(BeFalse())
	w.g.Expect(w.room.record.Released()).To(BeTrue())
}

// The manager dies after each reconcile, and the host is away while it boots.
func TestAManagerThatDiesAtAnyPointOfTheRebootGoesOn(t *testing.T) {
	w := rebootingWorld(t)
	away := 0
	for range 300 {
		if w.host().Released() {
			break
		}
		w.room.set(func() {
			w.room.err = nil
			if w.room.boots == 1 && away < 2 {
				w.room.err, away = &ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("connection refused")}, away+1
			}
		})
		result := w.reconcile()
		w.now = w.now.Add(min(result.RequeueAfter, 10*time.Second))
		if result.RequeueAfter > 0 {
			w.restart()
		}
	}
	w.g.Expect(w.host().Released()).To(BeTrue(), describe(w.host()))
	w.g.Expect(w.room.boots).To(Equal(1), "it boots once")
	w.g.Expect(w.room.count("clean")).To(Equal(1))
}

func TestWhatABootBringsBackQuarantinesTheHost(t *testing.T) {
	w := rebootingWorld(t)
	w.until("rebooted", func(*infrav1.QuoinHost) bool { return w.room.boots == 1 })
	w.room.set(func() {
		w.room.findings = []reset.Finding{{What: "the kubelet starts with the host", Fix: "disable it"}}
	})
	host := w.untilState(infrav1.HostStateQuarantined)
	w.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(ContainSubstring("starts with the host"))
	w.g.Expect(w.room.record.Released()).To(BeFalse(), "it is not free before the last verification")
}

func TestOldFactsAreReadAgainBeforeAHostBecomesANode(t *testing.T) {
	w := claimedWorld(t, false)
	w.setDataSecretName(nil)
	w.untilState(infrav1.HostStateClaimed)
	w.linger(2)
	inspections := w.room.count("inspect")
	w.room.set(func() { w.room.facts.ClockOffset = -2 * time.Minute })
	w.now = w.now.Add(24 * time.Hour)
	w.setDataSecretName(ptr.To("m1-bootstrap"))
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostClockOffsetReason)
	w.g.Expect(found.Message).To(ContainSubstring("2m0s behind"))
	w.g.Expect(w.room.count("inspect")).To(BeNumerically(">", inspections))
	w.g.Expect(w.room.count("provision")).To(BeZero(), "a certificate would not be valid there yet")
	w.room.set(func() { w.room.facts.ClockOffset = 0 })
	w.untilState(infrav1.HostStateProvisioned)
}

func TestAFailureAndThePoolAreRememberedForPlacement(t *testing.T) {
	w := claimedWorld(t, false)
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	machine.Labels[clusterv1.MachineDeploymentNameLabel] = "md-1"
	w.g.Expect(w.client.Update(t.Context(), machine)).To(Succeed())
	w.room.script[provisionPlanID] = []run.Status{{Phase: run.Failed, Step: "kubeadm-join",
		Message: "step 3 of 5, kubeadm-join, failed with code 1"}}
	host := w.until("failed", func(h *infrav1.QuoinHost) bool { return h.Status.LastFailure != nil })
	w.g.Expect(host.Status.LastFailure.Pool).To(Equal("team/md-1"))
	w.g.Expect(host.Status.LastFailure.Reason).To(Equal(infrav1.HostStepFailedReason))
	at := host.Status.LastFailure.Time
	w.linger(5)
	w.g.Expect(w.host().Status.LastFailure.Time.Equal(&at)).To(BeTrue(), "one failure is one failure")

	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	finish(w, &clusterv1.Machine{}, "m1")
	host = w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(host.Annotations).To(HaveKeyWithValue(infrav1.FormerPoolAnnotation, "team/md-1"))
	w.g.Expect(host.Status.LastFailure).NotTo(BeNil())
}
