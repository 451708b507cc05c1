// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
)

// fleet is Cluster c1 with a MachineDeployment blue of many Machines, a tenth of which surges, that are replaced as
// Cluster API replaces them: as soon as it may, whoever is next.
type fleet struct {
	tb     testing.TB
	client *cachetest.Client
	live   *liveReads
	r      *Reconciler
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	surge  int
	// old Machines that are there.
	old        []string
	reconciles int
}

// liveReads counts what is asked of the API server itself.
type liveReads struct {
	*cachetest.Client
	n int
}

// Get implements client.Reader.
func (l *liveReads) Get(ctx context.Context, key client.ObjectKey, o client.Object, by ...client.GetOption) error {
	l.n++
	return l.Client.Get(ctx, key, o, by...)
}

// List implements client.Reader.
func (l *liveReads) List(ctx context.Context, list client.ObjectList, by ...client.ListOption) error {
	l.n++
	return l.Client.List(ctx, list, by...)
}

func newFleet(tb testing.TB, size int) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, surge: max(size/10, 1), events: events.NewFakeRecorder(100 * size),
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1", UID: "c1"}}
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue", UID: "blue"}}
	blue.Spec = clusterv1.MachineDeploymentSpec{ClusterName: "c1", Template: template("v2")}
	blue.Spec.Replicas = ptr.To(int32(size)) //nolint:gosec // small numbers
	blue.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	rolling := &blue.Spec.Rollout.Strategy.RollingUpdate
	rolling.MaxSurge, rolling.MaxUnavailable = ptr.To(intstr.FromInt(f.surge)), ptr.To(intstr.FromInt32(0))
	f.client = cachetest.New(tb, cluster, policyOf("workers", f.clock.Now()), blue, setOf(blue, "v1"), setOf(blue, "v2"))
	f.live = &liveReads{Client: f.client}
	f.r = &Reconciler{Client: f.client, APIReader: f.live, Recorder: f.events, Clock: f.clock}
	f.r.pace()
	for i := range size {
		name := fmt.Sprint("old-", i)
		f.old = append(f.old, name)
		machine := machineOf(name, "v1")
		for n := range way {
			f.step(machine, n)
		}
		f.client.Put(machine)
		f.client.Put(hostedBy(name, "quoin://x"))
	}
	for range 3 { // it belongs to its Cluster from the second one on
		f.clock.Step(time.Minute)
		f.reconcile()
	}
	return f
}

// put is an event of an object. As many come in a second as Machines are on their way.
func (f *fleet) put(object client.Object) {
	f.tb.Helper()
	f.client.Put(object)
	f.clock.Step(time.Second / time.Duration(f.surge))
	f.reconcile()
}

func (f *fleet) reconcile() {
	f.tb.Helper()
	if f.r.rest.left(client.ObjectKey{Namespace: namespace, Name: "c1"}, f.clock.Now()) == 0 {
		f.reconciles++
	}
	if _, err := f.r.Reconcile(ctrl.LoggerInto(f.tb.Context(), logr.Discard()),
		ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}}); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fleet) machine(name string) *clusterv1.Machine {
	f.tb.Helper()
	machine := &clusterv1.Machine{}
	if err := f.client.Get(f.tb.Context(), client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
		f.tb.Fatal(err)
	}
	return machine
}

// way of a Machine to where it is Available, one event at a time. What a rollout does not ask for is part of it.
var way = []string{clusterv1.MachineBootstrapConfigReadyCondition, "Other",
	clusterv1.MachineInfrastructureReadyCondition, "Node", "Another", clusterv1.MachineNodeHealthyCondition}

func (f *fleet) step(machine *clusterv1.Machine, n int) {
	if way[n] == "Node" {
		machine.Status.NodeRef.Name = machine.Name
	}
	conditions.Set(machine, metav1.Condition{Type: way[n], Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.NewTime(f.clock.Now())})
}

// rollOut replaces all Machines by as many.
func (f *fleet) rollOut(size int) {
	f.tb.Helper()
	at := map[string]int{}
	var young []string
	made := 0
	for range 100 * size {
		if len(f.old) == 0 && len(young) == size {
			return
		}
		f.clock.Step(mostRest)
		f.reconcile()
		for len(f.old)+len(young) < size+f.surge && made < size {
			name := fmt.Sprint("new-", made)
			made++
			young = append(young, name)
			f.put(machineOf(name, "v2"))
			f.put(hostedBy(name, ""))
		}
		available := len(f.old)
		for _, name := range young {
			machine := f.machine(name)
			switch n := at[name]; {
			case n == len(way) && !rollout.Gated(machine):
				available++
			case n < len(way) && !rollout.AdmittedAt(machine).IsZero():
				if n == 0 {
					f.put(hostedBy(name, "quoin://x"))
				}
				f.step(machine, n)
				at[name]++
				f.put(machine)
			}
		}
		for ; available > size && len(f.old) > 0; available-- {
			f.client.Remove(f.machine(f.old[0]))
			f.client.Remove(hostedBy(f.old[0], ""))
			f.old = f.old[1:]
			f.reconcile()
		}
	}
	f.tb.Fatal("it does not end")
}

// costs of one replaced Machine.
type costs struct{ live, writes, events, listed, reconciles float64 }

func (c costs) requests() float64 { return c.live + c.writes + c.events }

// measure a rollout alone.
func (f *fleet) measure(size int) costs {
	f.tb.Helper()
	for len(f.events.Events) > 0 {
		<-f.events.Events
	}
	f.live.n, f.client.Writes, f.client.Listed, f.reconciles = 0, 0, 0, 0
	f.rollOut(size)
	each := func(n int) float64 { return float64(n) / float64(size) }
	return costs{each(f.live.n), each(f.client.Writes), each(len(f.events.Events)), each(f.client.Listed),
		each(f.reconciles)}
}

// A policy that takes no time of its own costs less than ten requests for each Machine, of which one is left to the
// QuoinMachine that waits, and no more in a larger pool.
func TestAReplacedMachineCostsLessThanTenRequests(t *testing.T) {
	g := NewWithT(t)
	small, large := newFleet(t, 10).measure(10), newFleet(t, 30).measure(30)
	t.Logf("10: %+v; 30: %+v", small, large)
	g.Expect(small.requests()).To(BeNumerically("<=", 9))
	g.Expect(large.requests()).To(BeNumerically("<=", small.requests()))
}

// Each reconcile reads all Machines, so one for each of their events would cost the more the more there are.
func TestEventsOfManyMachinesAreLookedAtTogether(t *testing.T) {
	g := NewWithT(t)
	f := newFleet(t, 200)
	f.clock.Step(mostRest)
	f.reconciles, f.surge = 0, 1000 // events, a millisecond apart
	for _, name := range f.old {
		f.put(f.machine(name))
	}
	g.Expect(f.reconciles).To(Equal(1))
	f.clock.Step(200 * restEach)
	f.reconcile()
	g.Expect(f.reconciles).To(Equal(2), "and nothing is forgotten")
}

// What a person counts by may be some seconds old, and whatever else changes takes it along.
func TestCountsOfAPolicyAreWrittenOnceInAWhile(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	w.r.pace()
	w.r.rest = nil
	blue := func() quoinv1.RolloutProgress { return w.policy().Status.MachineDeployments[0] }
	result := w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.Expect(blue().InFlight).To(HaveValue(BeZero()), "it was written with the admission")
	w.Expect(result.RequeueAfter).To(Equal(countsInterval))
	w.clock.Step(countsInterval)
	w.reconcile()
	w.Expect(blue().InFlight).To(HaveValue(BeEquivalentTo(1)))

	w.clock.Step(time.Second)
	w.joins("new-0")
	w.Expect(w.reconcile().RequeueAfter).To(Equal(countsInterval - time.Second))
	w.Expect(blue().Message).To(ContainSubstring("no Node yet"))
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(pool, func() { pool.Spec.Paused = ptr.To(true) })
	w.reconcile()
	w.Expect(blue().Reason).To(Equal(string(rollout.Suspended)), "at once")
	w.restart()
	w.adjust(pool, func() { pool.Spec.Paused = ptr.To(false) })
	w.reconcile()
	w.Expect(blue().Message).To(ContainSubstring("healthy since"))
}

// A Machine whose own conditions say all that it waits for gets no other one; one that has it keeps it as it is now.
func TestAGateSaysOnlyWhatNothingElseSays(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	gate := func() string {
		return conditions.GetReason(w.machine("new-0"), quoinv1.MachineRolloutValidatedCondition)
	}
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.SoakSeconds = ptr.To[int32](0) })
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeTrue())
	w.Expect(gate()).To(BeEmpty())
	w.adjust(policy, func() { policy.Spec.SoakSeconds = ptr.To[int32](60) })
	w.joins("new-0")
	w.reconcile()
	w.Expect(gate()).To(Equal(string(rollout.Soaking)))
	machine := w.machine("new-0")
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineNodeHealthyCondition, Status: metav1.ConditionFalse,
		Reason: "Test"})
	w.Expect(w.client.Status().Update(t.Context(), machine)).To(Succeed())
	w.reconcile()
	w.Expect(gate()).To(Equal(string(rollout.NotHealthy)), "what it said before is not so any more")
	w.joins("new-0")
	w.adjust(policy, func() { policy.Spec.SoakSeconds = ptr.To[int32](0) })
	w.reconcile()
	w.Expect(rollout.Gated(w.machine("new-0"))).To(BeFalse())
	w.Expect(gate()).To(Equal(string(rollout.Validated)))
}

// What many Machines tell is looked at together, the later the more there are.
func TestAClusterRestsForEachOfItsWorkers(t *testing.T) {
	g := NewWithT(t)
	r, now := &rest{}, time.Now()
	few, many := client.ObjectKey{Name: "few"}, client.ObjectKey{Name: "many"}
	r.begin(few, 10, now)
	r.begin(many, 5000, now)
	g.Expect(r.left(few, now)).To(Equal(10 * restEach))
	g.Expect(r.left(few, now.Add(10*restEach))).To(BeZero())
	g.Expect(r.left(many, now.Add(mostRest/4))).To(Equal(mostRest * 3 / 4))
	g.Expect(r.left(client.ObjectKey{Name: "another"}, now)).To(BeZero())

	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.r.pace()
	request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "c1"}}
	refuses := true
	w.refuse(func(object client.Object) error {
		if _, is := object.(*clusterv1.Machine); is && refuses {
			refuses = false
			return errors.New("nobody answers")
		}
		return nil
	})
	failed := 0
	for range 5 {
		if _, err := w.r.Reconcile(t.Context(), request); err != nil {
			failed++
			w.Expect(w.r.rest.left(request.NamespacedName, w.clock.Now())).To(BeZero(), "the queue has a pause of its own")
		}
	}
	w.Expect(failed).To(Equal(1))
	w.Expect(w.r.rest.left(request.NamespacedName, w.clock.Now())).To(Equal(3 * restEach))
}

// BenchmarkRollout is what the controller itself costs for each replaced Machine of pools of 10, 100 and 1,000, without
// an API server. "growth" is the time for one Machine over that in a pool of 10.
func BenchmarkRollout(b *testing.B) {
	var smallest float64
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var c costs
			for range b.N {
				b.StopTimer()
				f := newFleet(b, size)
				b.StartTimer()
				c = f.measure(size)
			}
			took := b.Elapsed().Seconds() / float64(size) / float64(b.N)
			if size == 10 {
				smallest = took
			}
			for unit, value := range map[string]float64{"live": c.live, "writes": c.writes, "events": c.events,
				"listed": c.listed, "reconciles": c.reconciles, "ms": took * 1e3} {
				b.ReportMetric(value, unit+"/machine")
			}
			if smallest > 0 {
				b.ReportMetric(took/smallest, "growth")
			}
		})
	}
}
