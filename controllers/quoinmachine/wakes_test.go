// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
)

// woken are the Machines that a change of a host wakes, of m1, which waits, and m2, which has host h2.
func woken(t *testing.T, before, now *infrav1.QuoinHost) (at, later []string) {
	t.Helper()
	machine1, waiting := owned("m1", uid1)
	waiting.Spec.HostSelector = selects("worker")
	conditions.Set(waiting, metav1.Condition{Type: infrav1.MachineHostClaimedCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.MachineNoMatchingHostReason})
	machine2, claimed := owned("m2", "99999999-0000-0000-0000-000000000000")
	claimed.Spec.ProviderID = "quoin://team/h2/99999999"
	w := newWorld(t, cluster(), machine1, waiting, machine2, claimed)
	q := cachetest.NewQueue()
	switch {
	case before == nil:
		w.r.hostEvents().Create(t.Context(), event.CreateEvent{Object: now}, q)
	case now == nil:
		w.r.hostEvents().Delete(t.Context(), event.DeleteEvent{Object: before}, q)
	default:
		w.r.hostEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: now}, q)
	}
	return namesOf(q.Now), namesOf(q.Later)
}

func namesOf(requests map[ctrl.Request]bool) []string {
	var names []string
	for request := range requests {
		names = append(names, request.Name)
	}
	return names
}

func TestAHostWakesTheMachinesThatItConcerns(t *testing.T) {
	free, used := host("h1", ""), host("h2", "")
	used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "m2"}
	failed := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		of        *infrav1.QuoinHost
		change    func(*infrav1.QuoinHost)
		now, late string
	}{
		"a probe": {free, func(h *infrav1.QuoinHost) { h.Status.ObservedGeneration = 7 }, "", ""},
		"another state": {free, func(h *infrav1.QuoinHost) {
			h.Status.State = infrav1.HostStateInspecting
		}, "", "m1"},
		"a hold": {free, func(h *infrav1.QuoinHost) {
			h.Spec.HeldFor = &infrav1.HostHold{Reason: "x"}
		}, "", "m1"},
		"labels of others": {free, func(h *infrav1.QuoinHost) {
			h.Labels = map[string]string{"role": "storage"}
		}, "", "m1"},
		"an older failure": {free, func(h *infrav1.QuoinHost) {
			h.Status.LastFailure = &infrav1.HostFailure{Time: failed}
		}, "m1", ""},
		"its claim": {free, func(h *infrav1.QuoinHost) {
			h.Spec.ConsumerRef = used.Spec.ConsumerRef
		}, "m2", "m1"},
		"its release": {used, func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil }, "m2 m1", ""},
		"a step on its way": {used, func(h *infrav1.QuoinHost) {
			h.Status.State = infrav1.HostStateProvisioning
		}, "m2", ""},
		"a domain while in use": {used, func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "rack-b" }, "m2", "m1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after := c.of.DeepCopy()
			c.change(after)
			now, late := woken(t, c.of, after)
			g.Expect(now).To(ConsistOf(strings.Fields(c.now)))
			g.Expect(late).To(ConsistOf(strings.Fields(c.late)))
		})
	}
	g := NewWithT(t)
	now, _ := woken(t, nil, free)
	g.Expect(now).To(ConsistOf("m1"), "a new host")
	now, late := woken(t, free, nil)
	g.Expect(now).To(BeEmpty())
	g.Expect(late).To(ConsistOf("m1"), "a host that is gone")
}
