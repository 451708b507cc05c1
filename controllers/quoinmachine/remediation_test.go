// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const skip = clusterv1.MachineSkipRemediationAnnotation

func (w *world) core(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	w.g.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "team", Name: name}, machine)).To(Succeed())
	return machine
}

// change edits the Machine, its status included.
func (w *world) change(name string, edit func(*clusterv1.Machine)) {
	machine := w.core(name)
	edit(machine)
	status := machine.Status
	w.g.Expect(w.client.Update(w.t.Context(), machine)).To(Succeed())
	machine.Status = status
	w.g.Expect(w.client.Status().Update(w.t.Context(), machine)).To(Succeed())
	w.reconcile(name)
}

// A health check counts from when the Machine was made. Who waits for a host longer than that would be made anew for
// ever.
func TestAMachineThatWaitsIsSparedByHealthChecksUntilItsInfrastructureIsReady(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Annotations = map[string]string{infrav1.HoldClaimAnnotation: ""}
	w := newWorld(t, cluster(), machine, quoinMachine)
	w.reconcile("m1")
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip), "our own gate")
	w.change("m1", func(m *clusterv1.Machine) { delete(m.Annotations, infrav1.HoldClaimAnnotation) })
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip), "no host is free")

	w.g.Expect(w.client.Create(t.Context(), host("h1", ""))).To(Succeed())
	w.reconcile("m1")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason,
			"sending the files of v1.35.4")
	})
	w.reconcile("m1")
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip), "a bundle may take its time")
	w.updateHost("h1", func(h *infrav1.QuoinHost) {
		setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionTrue, infrav1.HostProvisionedReason, "")
	})
	w.reconcile("m1")
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip),
		"without InfrastructureReady the health check counts from the Machine's creation")
	w.change("m1", func(m *clusterv1.Machine) {
		conditions.Set(m, metav1.Condition{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue,
			Reason: "Ready"})
	})
	w.g.Expect(w.core("m1").Annotations).NotTo(HaveKey(skip))
	w.g.Expect(w.core("m1").Annotations).NotTo(HaveKey(infrav1.SparedAnnotation))
}

func TestWhatANewMachineMendsIsNotSpared(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	because := func(reason string) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			setCondition(h, infrav1.HostProvisionedCondition, metav1.ConditionFalse, reason, "so it is")
		}
	}
	silent := func(since time.Duration) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) { h.Status.UnreachableSince = &metav1.Time{Time: now.Add(-since)} }
	}
	failing := func(times int32) func(*infrav1.QuoinHost) {
		return func(h *infrav1.QuoinHost) {
			because(infrav1.HostOperationFailedReason)(h)
			h.Status.Failures = ptr.To(times)
		}
	}
	for name, c := range map[string]struct {
		set    func(*infrav1.QuoinHost)
		spared bool
	}{
		"a failed step":               {because(infrav1.HostStepFailedReason), false},
		"kubeadm cut off":             {because(infrav1.HostBootstrapInterruptedReason), false},
		"an unsuitable host":          {because(infrav1.HostUnsuitableReason), false},
		"bootstrap data for nobody":   {because(infrav1.HostBootstrapDataInvalidReason), false},
		"a bundle server that is off": {because(infrav1.HostArtifactsUnavailableReason), true},
		"maintenance":                 {because(infrav1.HostMaintenanceReason), true},
		"a short silence":             {silent(9 * time.Minute), true},
		"a long silence":              {silent(11 * time.Minute), false},
		"a few failures":              {failing(3), true},
		"failures without an end":     {failing(10), false},
	} {
		t.Run(name, func(t *testing.T) {
			machine, quoinMachine := owned("m1", uid1)
			w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
			w.r.Clock = clocktesting.NewFakePassiveClock(now)
			w.reconcile("m1")
			w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip))
			w.updateHost("h1", c.set)
			w.reconcile("m1")
			if c.spared {
				w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip))
			} else {
				w.g.Expect(w.core("m1").Annotations).NotTo(HaveKey(skip))
			}
		})
	}
}

// Nobody would take it off any more.
func TestAMachineWhoseQuoinMachineGoesIsNotSpared(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine)
	w.reconcile("m1")
	w.g.Expect(w.core("m1").Annotations).To(HaveKey(skip))
	w.g.Expect(w.client.Delete(t.Context(), w.machine("m1"))).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.core("m1").Annotations).NotTo(Or(HaveKey(skip), HaveKey(infrav1.SparedAnnotation)))
}

func TestAPersonsWordAboutRemediationStands(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Annotations = map[string]string{skip: ""}
	w := newWorld(t, cluster(), machine, quoinMachine)
	ready := func(m *clusterv1.Machine) {
		conditions.Set(m, metav1.Condition{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue,
			Reason: "Ready"})
	}
	w.reconcile("m1")
	w.g.Expect(w.core("m1").Annotations).NotTo(HaveKey(infrav1.SparedAnnotation))
	w.change("m1", ready)
	w.g.Expect(w.core("m1").Annotations).To(HaveKeyWithValue(skip, ""), "a user's own stays")

	second, quoinSecond := owned("m2", "99999999-0000-0000-0000-000000000000")
	w.g.Expect(w.client.Create(t.Context(), second)).To(Succeed())
	w.g.Expect(w.client.Create(t.Context(), quoinSecond)).To(Succeed())
	w.reconcile("m2")
	w.change("m2", func(m *clusterv1.Machine) { m.Annotations[skip] = "mine" })
	w.change("m2", ready)
	w.g.Expect(w.core("m2").Annotations).To(And(HaveKeyWithValue(skip, "mine"), Not(HaveKey(infrav1.SparedAnnotation))),
		"a user made it theirs")

	third, quoinThird := owned("m3", "88888888-0000-0000-0000-000000000000")
	w.g.Expect(w.client.Create(t.Context(), third)).To(Succeed())
	w.g.Expect(w.client.Create(t.Context(), quoinThird)).To(Succeed())
	w.reconcile("m3")
	w.g.Expect(w.core("m3").Annotations).To(HaveKey(skip))
	w.change("m3", func(m *clusterv1.Machine) { m.Annotations[clusterv1.RemediateMachineAnnotation] = "" })
	w.g.Expect(w.core("m3").Annotations).NotTo(HaveKey(skip), "who asks for another Machine gets one")
}
