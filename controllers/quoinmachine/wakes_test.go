// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestOnlyChangesThatPlacementLooksAtWakeWaitingMachines(t *testing.T) {
	g := NewWithT(t)
	failed := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	before := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "h1"},
		Status: infrav1.QuoinHostStatus{State: infrav1.HostStateAvailable, LastFailure: &infrav1.HostFailure{Time: failed}}}
	for name, c := range map[string]struct {
		change func(*infrav1.QuoinHost)
		wakes  bool
	}{
		"a probe":          {func(h *infrav1.QuoinHost) { h.Status.ObservedGeneration = 7 }, false},
		"another state":    {func(h *infrav1.QuoinHost) { h.Status.State = infrav1.HostStateInspecting }, true},
		"another failure":  {func(h *infrav1.QuoinHost) { h.Status.LastFailure.Time.Time = failed.Add(time.Hour) }, true},
		"a hold":           {func(h *infrav1.QuoinHost) { h.Spec.HeldFor = &infrav1.HostHold{Reason: "x"} }, true},
		"a claim's change": {func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = &infrav1.ConsumerReference{} }, true},
	} {
		now := before.DeepCopy()
		c.change(now)
		g.Expect(placementChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now})).To(Equal(c.wakes), name)
	}
}
