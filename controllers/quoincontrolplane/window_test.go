// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// No replacement begins before the Cluster's topology has handed down its version.
func TestARolloutWaitsForTheVersionOfTheTopology(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	topology := func(version string) {
		cluster := &clusterv1.Cluster{}
		g.Expect(w.mgmt.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster)).To(Succeed())
		cluster.Spec.Topology = clusterv1.Topology{Version: version, ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
		g.Expect(w.mgmt.Update(t.Context(), cluster)).To(Succeed())
	}
	topology(newVer)
	w.edit(outdate)
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(HaveField("Status", metav1.ConditionTrue),
		HaveField("Message", ContainSubstring("version "+newVer+" has yet to come"))))
	topology(oldVer)
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
}

// No replacement begins while the windows of the Cluster's policy are closed, and one does when these are edited.
func TestARolloutWaitsForItsWindow(t *testing.T) {
	w := newWorld(t, 1, func(p *controlplanev1.QuoinControlPlane) { p.Spec.Rollout.ProgressDeadlineSeconds = ptr.To[int32](1) })
	g := w.g
	initialized(t, w)
	other := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-another"}}
	other.Spec.ClusterName = "another"
	g.Expect(w.mgmt.Create(t.Context(), other)).To(Succeed())
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workers"}}
	policy.Spec.ClusterName = "c"
	policy.Spec.Windows = []quoinv1.RolloutWindow{{Start: "00:00", DurationMinutes: ptr.To[int32](60),
		Days: []quoinv1.RolloutDay{quoinv1.RolloutDay(time.Now().UTC().AddDate(0, 0, 3).Weekday().String())}}}
	g.Expect(w.mgmt.Create(t.Context(), policy)).To(Succeed())
	w.edit(outdate)
	w.reconcile()
	time.Sleep(1100 * time.Millisecond)
	w.once()
	g.Expect(w.machines()).To(HaveLen(1))
	g.Expect(w.condition(controlplanev1.ControlPlaneRollingOutCondition)).To(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", controlplanev1.WindowClosedReason),
		HaveField("Message", And(ContainSubstring("the next one opens"),
			ContainSubstring("change spec.windows of RolloutPolicy workers")))))
	g.Expect(w.plane().Status.Operation.WaitingOn).To(Equal(controlplane.ReasonWindowClosed))
	g.Expect(w.condition(controlplanev1.ControlPlaneProgressingCondition).Status).To(Equal(metav1.ConditionTrue),
		"a window that is awaited is no step that takes too long")

	policy.Spec.Windows[0].TimeZone = "Nowhere/Land"
	g.Expect(w.mgmt.Update(t.Context(), policy)).To(Succeed())
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
	g.Expect(w.plane().Status.Operation.Message).To(ContainSubstring("correct spec.windows of RolloutPolicy workers"))

	g.Expect(w.r.controlPlaneOfPolicy(t.Context(), policy)).To(ConsistOf(ctrl.Request{NamespacedName: key}))
	g.Expect(w.r.controlPlaneOfPolicy(t.Context(), other)).To(BeEmpty())
	policy.Spec.Windows = []quoinv1.RolloutWindow{{Start: "00:00", DurationMinutes: ptr.To[int32](1440)}}
	g.Expect(w.mgmt.Update(t.Context(), policy)).To(Succeed())
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(2))
}

// A policy is often applied together with the edit that it is for. Before a replacement begins the API server is asked
// for its windows, which the cache may not have seen yet.
func TestARolloutWaitsForAWindowThatTheCacheHasNotSeen(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workers"}}
	policy.Spec.ClusterName = "c"
	policy.Spec.Windows = []quoinv1.RolloutWindow{{Start: "00:00", DurationMinutes: ptr.To[int32](60),
		Days: []quoinv1.RolloutDay{quoinv1.RolloutDay(time.Now().UTC().AddDate(0, 0, 3).Weekday().String())}}}
	g.Expect(w.mgmt.Create(t.Context(), policy)).To(Succeed())
	w.r.Client = interceptor.NewClient(w.mgmt.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context,
		c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, is := list.(*quoinv1.RolloutPolicyList); is {
			return nil
		}
		return c.List(ctx, list, options...)
	}})
	w.edit(outdate)
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
}

// What a policy for the whole Cluster lets workers do is not the control plane's: it surges by one Machine.
//
// Proves: S3-32
func TestTheSurgeOfWorkersIsNotTheControlPlanes(t *testing.T) {
	w, names := three(t)
	g := w.g
	for i := range 3 {
		w.spare(fmt.Sprintf("spare-%d", i))
	}
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workers"}}
	policy.Spec.ClusterName = "c"
	policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(4))}
	g.Expect(w.mgmt.Create(t.Context(), policy)).To(Succeed())
	w.edit(outdate)
	most := 0
	for range 15 {
		w.reconcile()
		there := 0
		for _, machine := range w.admitted() {
			if machine.DeletionTimestamp.IsZero() || w.hasHook(machine.Name) {
				there++ // whose hook is off has left etcd, and its host is released
			}
			switch {
			case !slices.Contains(names, machine.Name):
				names = append(names, machine.Name)
				w.provision(machine.Name)
				w.hold(machine.Name)
			case machine.DeletionTimestamp.IsZero():
			case w.hasHook(machine.Name):
				w.drained(machine.Name)
			default:
				w.gone(machine.Name)
			}
		}
		most = max(most, there)
	}
	g.Expect(most).To(Equal(4), "one above replicas")
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(3))
	g.Expect(w.plane().Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(3)))
}

// A control plane comes again when the window opens, not when it would have come anyhow.
func TestAWindowThatOpensIsNotMissed(t *testing.T) {
	g := NewWithT(t)
	r := &Reconciler{Timings: DefaultTimings(), Clock: clock.RealClock{}}
	after := func(opens time.Time) time.Duration {
		return r.recheckAfter(&reconciliation{outcome: controlplane.Outcome{Step: controlplane.Step{
			RecheckAfter: controlplane.RecheckIdle}},
			observation: &observe.Observation{Inventory: observe.Inventory{Window: observe.Window{Opens: opens}}}})
	}
	g.Expect(after(time.Time{})).To(Equal(time.Minute))
	g.Expect(after(time.Now().Add(time.Hour))).To(Equal(time.Minute))
	g.Expect(after(time.Now().Add(20 * time.Second))).To(BeNumerically("~", 20*time.Second, time.Second))
	g.Expect(after(time.Now().Add(-time.Second))).To(And(BeNumerically(">", 0), BeNumerically("<", time.Second)))
}
