// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clocktest"
)

// fleet is a management cluster with a fleet of hosts, of which no machine here may have any: they are another pool's.
type fleet struct {
	tb     testing.TB
	client *cachetest.Client
	r      *Reconciler
	now    time.Time
}

// newFleet brings every machine to where it waits.
func newFleet(tb testing.TB, hosts, machines int) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, client: cachetest.New(tb, cluster()), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	f.r = &Reconciler{Client: f.client, APIReader: f.client, Clock: clocktest.Shows(func() time.Time { return f.now })}
	for i := range hosts {
		h := host(fmt.Sprintf("h%d", i), fmt.Sprintf("rack-%d", i%20))
		h.UID = types.UID(h.Name)
		h.Labels["role"] = "storage"
		if i%2 == 0 {
			h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "other" + h.Name, Machine: "other",
				Claim: "ffffffff"}
			h.Status.State = infrav1.HostStateProvisioned
		}
		f.client.Put(h)
	}
	for i := range machines {
		machine, quoinMachine := owned(fmt.Sprintf("m%d", i), fmt.Sprintf("%08x-0000-0000-0000-000000000000", i))
		quoinMachine.UID = types.UID(fmt.Sprintf("q%d", i))
		quoinMachine.Spec.HostSelector = selects("worker")
		f.client.Put(machine)
		f.client.Put(quoinMachine)
		for range 3 {
			f.reconcile(request(quoinMachine.Name))
		}
	}
	return f
}

func selects(role string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}
}

func (f *fleet) reconcile(request reconcile.Request) {
	f.tb.Helper()
	if _, err := f.r.Reconcile(ctrl.LoggerInto(f.tb.Context(), logr.Discard()), request); err != nil {
		f.tb.Fatal(err)
	}
}

// change is one event of a host, with the reconciles that it makes due at once. Those that come later, once for many
// events, are returned.
func (f *fleet) change(name string, change func(*infrav1.QuoinHost)) (now, later map[reconcile.Request]bool) {
	f.tb.Helper()
	before := &infrav1.QuoinHost{}
	if err := f.client.Get(f.tb.Context(), client.ObjectKey{Namespace: "team", Name: name}, before); err != nil {
		f.tb.Fatal(err)
	}
	after := before.DeepCopy()
	change(after)
	f.client.Put(after)
	queue := cachetest.NewQueue()
	f.r.hostEvents().Update(f.tb.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	for request := range queue.Now {
		f.reconcile(request)
	}
	return queue.Now, queue.Later
}

// hostChanges are the events of hosts that change what machines may have. The first is undone by the second, and so on.
var hostChanges = []struct {
	name   string
	change func(*infrav1.QuoinHost)
}{
	{"begins maintenance", func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{Reason: "disks"} }},
	{"is free again", func(h *infrav1.QuoinHost) { h.Spec.Maintenance = nil }},
}

// What an event costs must not grow with the fleet. Time says so badly on a busy machine, so this counts.
func TestAHostsEventCostsTheSameInALargeFleet(t *testing.T) {
	g := NewWithT(t)
	const waiting = 100
	type cost struct{ Reconciles, Listed, Writes, Later int }
	measure := func(hosts int) (all []cost) {
		f := newFleet(t, hosts, waiting)
		for i := range 6 {
			listed, writes := f.client.Listed, f.client.Writes
			now, later := f.change("h1", hostChanges[i%len(hostChanges)].change)
			all = append(all, cost{len(now), f.client.Listed - listed, f.client.Writes - writes, len(later)})
		}
		return all
	}
	small, large := measure(50), measure(1000)
	g.Expect(large).To(Equal(small))
	for i, c := range large {
		g.Expect(c.Reconciles).To(BeZero(), "the host is another pool's")
		g.Expect(c.Writes).To(BeZero(), "counts wait")
		g.Expect(c.Listed).To(BeNumerically("<=", waiting))
		g.Expect(c.Later > 0).To(Equal(i == 0), "one recount for all events of a while")
	}
}

// The fleet is counted once for all that ask for the same, and the count is written once for many events.
func TestTheHostsAreCountedOnceForAllThatWait(t *testing.T) {
	g := NewWithT(t)
	const waiting = 100
	f := newFleet(t, 200, waiting)
	_, later := f.change("h0", func(h *infrav1.QuoinHost) { h.Labels["role"] = "worker" })
	for i := range 40 {
		f.change("h1", hostChanges[i%2].change)
	}
	g.Expect(later).To(HaveLen(waiting))
	g.Expect(f.shown("m7")).NotTo(ContainSubstring("in use"), "not yet")
	f.now = f.now.Add(countsEvery)
	listed, writes := f.client.Listed, f.client.Writes
	for request := range later {
		f.reconcile(request)
	}
	g.Expect(f.client.Listed-listed).To(BeNumerically("<", 200+2*waiting), "the fleet once")
	g.Expect(f.client.Writes - writes).To(BeNumerically("<=", waiting))
	g.Expect(f.shown("m7")).To(ContainSubstring("1 in use"))
}

func TestAHostThatFitsIsClaimedWhileTheCountsWait(t *testing.T) {
	g := NewWithT(t)
	const waiting = 100
	f := newFleet(t, 200, waiting)
	now, later := f.change("h1", func(h *infrav1.QuoinHost) { h.Labels["role"] = "worker" })
	g.Expect(now).To(HaveLen(waiting))
	g.Expect(later).To(BeEmpty())
	h := &infrav1.QuoinHost{}
	g.Expect(f.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "h1"}, h)).To(Succeed())
	g.Expect(h.Spec.ConsumerRef).NotTo(BeNil())
}

func (f *fleet) shown(name string) string {
	f.tb.Helper()
	m := &infrav1.QuoinMachine{}
	if err := f.client.Get(f.tb.Context(), client.ObjectKey{Namespace: "team", Name: name}, m); err != nil {
		f.tb.Fatal(err)
	}
	return fmt.Sprint(m.Status.Candidates, conditions.GetMessage(m, infrav1.MachineReadyCondition))
}

// BenchmarkHostEvent is what one change of a host costs that half a thousand waiting Machines might be concerned by:
// map function and reconciles, over a real cache with its indexes, in fleets of 50 and 5,000. "growth" is the time in
// the large fleet over that in the small one, within one run, and "B-growth" the same of what is allocated; both should
// be at most 2. Requests are counted, and answered at once. The recount of the hosts, which comes once for all events
// of a while, is a benchmark of its own.
func BenchmarkHostEvent(b *testing.B) {
	seconds, bytes := map[string]float64{}, map[string]float64{}
	for _, hosts := range []int{50, 5000} {
		for _, recount := range []bool{false, true} {
			name := map[bool]string{false: "event", true: "recount"}[recount]
			b.Run(fmt.Sprintf("%s/hosts=%d", name, hosts), func(b *testing.B) {
				f := newFleet(b, hosts, 500)
				listed, writes, reconciles := f.client.Listed, f.client.Writes, 0
				i, before := 0, allocated()
				for b.Loop() {
					now, later := f.change("h1", hostChanges[i%len(hostChanges)].change)
					i++
					reconciles += len(now)
					f.now = f.now.Add(time.Hour)
					if recount {
						for request := range later {
							f.reconcile(request)
						}
						reconciles += len(later)
					}
				}
				took, size := b.Elapsed().Seconds(), allocated()-before
				if hosts == 50 {
					seconds[name], bytes[name] = took/float64(b.N), size/float64(b.N)
				}
				b.ReportMetric(took/float64(b.N)/seconds[name], "growth")
				b.ReportMetric(size/float64(b.N)/bytes[name], "B-growth")
				b.ReportMetric(float64(f.client.Listed-listed)/float64(b.N), "listed/op")
				b.ReportMetric(float64(f.client.Writes-writes)/float64(b.N), "writes/op")
				b.ReportMetric(float64(reconciles)/float64(b.N), "reconciles/op")
			})
		}
	}
}

// allocated is what this process has allocated so far, in bytes.
func allocated() float64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.TotalAlloc)
}
