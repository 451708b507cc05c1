// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// A look waits on the host for the end of the plan, and for kubeadm while that was not reported: a pause between looks
// would come after each of both. A process that knows nothing yet asks without waiting.
func TestLooksWaitOnTheHostForNews(t *testing.T) {
	w := claimedWorld(t, false)
	w.r.Timings = DefaultTimings()
	w.r.Timings.PollPause = time.Millisecond
	script := []run.Status{}
	for _, step := range []string{"write-files", cloudinit.JoinStep, cloudinit.JoinStep} {
		script = append(script, run.Status{Phase: run.Running, Step: step})
	}
	w.room.script[provisionPlanID] = append(script, run.Status{Phase: run.Succeeded})
	w.untilState(infrav1.HostStateProvisioned)
	var heard []string
	for _, order := range w.room.followed {
		if order.ID == provisionPlanID {
			heard = append(heard, fmt.Sprintf("%s for %s", order.Step, order.Within))
		}
	}
	w.g.Expect(heard).To(Equal([]string{" for 0s", "kubeadm-join for 3s", "kubeadm-join for 3s", " for 3s", " for 3s"}))
}

// That kubeadm runs is told at once; any other step only when nothing was told for a while.
func TestTheStepOfKubeadmIsToldAtOnce(t *testing.T) {
	w := claimedWorld(t, false)
	script := []run.Status{}
	for _, step := range []string{"write-files", "pre-kubeadm", cloudinit.JoinStep, "post-kubeadm"} {
		script = append(script, run.Status{Phase: run.Running, Step: step})
	}
	w.room.script[provisionPlanID] = append(script, run.Status{Phase: run.Succeeded})
	var told []string
	w.until("the end", func(h *infrav1.QuoinHost) bool {
		if operation := h.Status.Operation; operation != nil && operation.ID == provisionPlanID &&
			!slices.Contains(told, operation.Step) {
			told = append(told, operation.Step)
		}
		return h.Status.State == infrav1.HostStateProvisioned
	})
	w.g.Expect(told).To(Equal([]string{"", cloudinit.JoinStep}))
}

// Quicker hosts are looked at sooner by timings of their own.
func TestTimingsShortenThePausesBetweenLooks(t *testing.T) {
	g := NewWithT(t)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	timings := DefaultTimings()
	timings.PollPause = 50 * time.Millisecond
	one := &reconciliation{controller: &Reconciler{Timings: timings}, host: newHost(), now: begin}
	first, err := one.started("provision-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).To(Equal(after(50 * time.Millisecond)))
}

// No host is left alone for longer than its timings say, whatever a state asks for.
func TestAHostIsLookedAtAfterTheLongestPause(t *testing.T) {
	w := newWorld(t, newHost())
	w.r.Timings = DefaultTimings()
	w.r.Timings.Probe, w.r.Timings.Longest = time.Hour, time.Minute
	w.untilState(infrav1.HostStateAvailable)
	for range 10 {
		w.g.Expect(w.reconcile().RequeueAfter).To(BeNumerically("<=", time.Minute))
	}
}

// The API says of a plan what its journal says, in the same words.
func TestTheAPISpeaksOfAPlanAsItsJournalDoes(t *testing.T) {
	g := NewWithT(t)
	for phase, word := range map[run.Phase]string{
		run.NotStarted:  infrav1.HostOperationNotStarted,
		run.Running:     infrav1.HostOperationRunning,
		run.Succeeded:   infrav1.HostOperationSucceeded,
		run.Failed:      infrav1.HostOperationFailed,
		run.Interrupted: infrav1.HostOperationInterrupted,
	} {
		g.Expect(word).To(Equal(string(phase)))
		operation := &infrav1.HostOperation{Phase: word}
		g.Expect(operation.Final()).To(Equal(phase.Final()), word)
		g.Expect(operation.Succeeded()).To(Equal(phase == run.Succeeded), word)
		g.Expect(operation.Failed()).To(Equal(phase.Final() && phase != run.Succeeded), word)
		g.Expect(operation.Began()).To(Equal(phase != run.NotStarted), word)
	}
	g.Expect((&infrav1.HostOperation{}).Began()).To(BeFalse(), "nothing is recorded")
	g.Expect(infrav1.HostOperationStepJoin).To(Equal(cloudinit.JoinStep))
}
