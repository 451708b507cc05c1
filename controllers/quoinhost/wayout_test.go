// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// ways are the words of what a person can do: a command, an annotation, an edit, a page.
var ways = regexp.MustCompile(`kubectl -n |spec\.|[Dd]elete (Machine|QuoinHost|one of the two)|` +
	`the Machine must be replaced|docs/`)

// saysTheWayOut holds what the host shows after each reconcile of each test: whatever it waits for, its condition Ready
// says what a person can do about it.
func (w *world) saysTheWayOut() {
	w.t.Helper()
	host := &infrav1.QuoinHost{}
	if err := w.r.Client.Get(context.Background(), w.key, host); err != nil {
		return
	}
	ready := conditions.Get(host, infrav1.HostReadyCondition)
	if ready != nil && ready.Status == metav1.ConditionFalse && !ways.MatchString(ready.Message) {
		w.t.Errorf("%s host, %s: what can a person do? %s", host.Status.State, ready.Reason, ready.Message)
	}
}

// Every state says what bounds its waits and what a person can do, so that a new one cannot forget it, whatever its own
// message says.
func TestEveryStateHasAWayOut(t *testing.T) {
	g := NewWithT(t)
	g.Expect(slices.Collect(maps.Keys(waysOn))).To(ConsistOf(slices.Collect(maps.Keys(handlers))))
	for state := range waysOn {
		for _, claimed := range []bool{false, true} {
			host := &infrav1.QuoinHost{}
			host.Namespace, host.Name, host.Status.State = "hosts", "h1", state
			r := &reconciliation{host: host, claim: claim{status: unclaimed}}
			if claimed {
				host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1"}
				r.claim.status = held
			}
			g.Expect(r.waiting(metav1.ConditionFalse, "Anything", "it waits")).To(MatchRegexp(`^it waits\. .*kubectl -n \S+ `),
				"%s, claimed: %v", state, claimed)
			g.Expect(r.waiting(metav1.ConditionFalse, "Anything", strings.Repeat("output ", maxMessage))).
				To(And(MatchRegexp(`kubectl -n \S+ `), WithTransform(func(said string) int { return len(said) },
					BeNumerically("<", maxMessage))))
			g.Expect(r.waiting(metav1.ConditionTrue, "Anything", "")).To(BeEmpty())
			g.Expect(r.waiting(metav1.ConditionFalse, "Anything", "do: kubectl -n hosts get")).To(
				Equal("do: kubectl -n hosts get"))
			// What a host printed is no way out, nor is one that is cut off.
			for _, output := range []string{"see kubectl logs", "kubectl -n kube-system logs x",
				strings.Repeat("output ", maxMessage) + "kubectl -n hosts get"} {
				g.Expect(r.waiting(metav1.ConditionFalse, "Anything", output)).To(MatchRegexp(`kubectl -n (hosts|team) `),
					"%s, claimed: %v: %s", state, claimed, output[:16])
			}
		}
	}
}

// A step that runs says since when, and that it has an end; what waits for a Machine says how to see what keeps that.
func TestAWaitSaysSinceWhen(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.QuoinHost{}
	host.Namespace, host.Name, host.Status.State = "hosts", "h1", infrav1.HostStateProvisioning
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1"}
	host.Status.Operation = &infrav1.HostOperation{ID: "p", Phase: infrav1.HostOperationRunning,
		Since: &metav1.Time{Time: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)}}
	r := &reconciliation{host: host, claim: claim{status: held}}
	g.Expect(r.waiting(metav1.ConditionFalse, infrav1.HostStepRunningReason, "kubeadm join")).To(And(
		ContainSubstring("since 2026-11-23T08:00:00Z; each has its time"),
		ContainSubstring("kubectl -n team delete machine m1")))
	r.claim.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: host.Status.Operation.Since}}
	g.Expect(r.waiting(metav1.ConditionFalse, infrav1.HostStepRunningReason, "kubeadm join")).To(And(
		ContainSubstring("being deleted since 2026-11-23T08:00:00Z"), ContainSubstring("describe machine m1"),
		ContainSubstring("quoinhost h1 quoin.cluster.x-k8s.io/abandon="), Not(ContainSubstring("delete machine"))))
	r.claim.machine = nil

	host.Status.State = infrav1.HostStateCleaning
	g.Expect(r.waiting(metav1.ConditionFalse, infrav1.HostCleaningReason, "reset")).To(And(
		ContainSubstring("after 3 resets a person is asked"), ContainSubstring("abandon=")))
}
