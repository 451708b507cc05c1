// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

func inOperation(id string, phase run.Phase) func(*infrav1.QuoinHost) bool {
	return func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.ID == id && h.Status.Operation.Phase == string(phase)
	}
}

func inState(s infrav1.HostState) func(*infrav1.QuoinHost) bool {
	return func(h *infrav1.QuoinHost) bool { return h.Status.State == s }
}

// A move drops every status and changes every UID. Wherever it finds a host, the host goes on there.
func TestAHostGoesOnWhereAMoveFoundIt(t *testing.T) {
	for name, c := range map[string]struct {
		deleted bool
		at      func(*infrav1.QuoinHost) bool
		// before and after the move.
		before, after func(*world)
		reboot        bool
	}{
		"first contact":   {at: inState(infrav1.HostStateRegistering)},
		"inspection":      {at: inState(infrav1.HostStateInspecting)},
		"claim":           {at: inState(infrav1.HostStateClaimed)},
		"plan under way":  {at: inOperation(provisionPlanID, run.Running)},
		"node":            {at: inState(infrav1.HostStateProvisioned)},
		"reset not begun": {deleted: true, at: inState(infrav1.HostStateCleaning)},
		"reset under way": {deleted: true, at: inOperation("reset-0123abcd", run.Running)},
		"reset done":      {deleted: true, at: inOperation("reset-0123abcd", run.Succeeded)},
		"reboot under way": {deleted: true, reboot: true,
			at: func(h *infrav1.QuoinHost) bool { return h.Status.Operation != nil && staged(h.Status.Operation.Step) }},
		"verified": {deleted: true, at: (*infrav1.QuoinHost).Released},
		"quarantine": {deleted: true, at: inState(infrav1.HostStateQuarantined),
			before: func(w *world) {
				w.room.set(func() { w.room.findings = []reset.Finding{{What: "a mount", Fix: "umount it"}} })
			},
			after: func(w *world) {
				w.room.set(func() { w.room.findings = nil })
				w.annotate(infrav1.RetryAnnotation, "")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			source := claimedWorld(t, false)
			source.update(func(h *infrav1.QuoinHost) { h.Spec.Cleaning.Reboot = ptr.To(c.reboot) })
			if c.before != nil {
				c.before(source)
			}
			if c.deleted {
				source.untilState(infrav1.HostStateProvisioned)
				deleteMachine(source)
			}
			source.until(name, c.at)
			target := copyOf(source, "target")
			if c.after != nil {
				c.after(target)
			}
			if !c.deleted {
				target.untilState(infrav1.HostStateProvisioned)
				target.g.Expect(target.room.plans[provisionPlanID].starts).To(Equal(1))
				target.g.Expect(target.room.provision.Owner.Generation).To(BeNumerically(">", 0))
			}
			if c.deleted {
				resets := 1
				if name == "quarantine" {
					resets = 2
				}
				expectFreed(target, resets)
			}
		})
	}
}

// expectFreed deletes the Machine after the move, and expects that many resets of its host.
func expectFreed(target *world, resets int) {
	target.t.Helper()
	deleteMachine(target)
	target.until("clean", (*infrav1.QuoinHost).Released)
	finish(target, &infrav1.QuoinMachine{}, "qm1")
	finish(target, &clusterv1.Machine{}, "m1")
	target.untilState(infrav1.HostStateAvailable)
	target.g.Expect(target.room.record.Released()).To(BeTrue())
	target.g.Expect(target.room.record.Generation).To(Equal(target.host().Spec.ClaimGeneration))
	target.g.Expect(target.room.plans).To(HaveLen(1+resets), "one plan made the node, one reset it, and one for each "+
		"word of a person")
}

// Objects and hosts of releases that counted no generations.
func TestAClaimFromBeforeGenerationsWereCountedGoesOn(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration, h.Spec.ManagedBy = 0, "" })
	w.room.set(func() { w.room.record.Generation, w.room.record.ManagementCluster = 1, "" })
	w.restart()
	w.now = w.now.Add(time.Hour)
	host := w.until("adopted", func(h *infrav1.QuoinHost) bool { return h.Spec.ManagedBy == "host-uid" })
	w.g.Expect(host.Spec.ClaimGeneration).To(BeEquivalentTo(1))
	w.linger(10)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostProvisionedReason),
		describe(w.host()))
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
}

// A person says that the rest of a move will not come any more: from then on the plane that it came from is the older
// one.
func TestAHostThatIsResetWithoutItsConsumerIsAdopted(t *testing.T) {
	source := claimedWorld(t, false)
	source.untilState(infrav1.HostStateProvisioned)
	target := copyOf(source, "target")
	quoinMachine := &infrav1.QuoinMachine{}
	target.object(quoinMachine, "qm1")
	quoinMachine.Finalizers = nil
	target.g.Expect(target.client.Update(context.Background(), quoinMachine)).To(Succeed())
	target.g.Expect(client.IgnoreNotFound(target.client.Delete(context.Background(), quoinMachine))).To(Succeed())
	target.untilReason(infrav1.HostProvisionedCondition, infrav1.HostConsumerMissingReason)
	target.linger(5)
	target.g.Expect(target.host().Spec.ManagedBy).To(Equal("host-uid"), "the rest may be on its way")

	confirmReset(target)
	target.until("reset", func(*infrav1.QuoinHost) bool { return target.room.count("clean") > 0 })
	target.g.Expect(target.room.clean.Owner.Generation).To(BeEquivalentTo(2))
	target.g.Expect(target.room.clean.Owner.ManagementCluster).To(Equal("target"))
}
