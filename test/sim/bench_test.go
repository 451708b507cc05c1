// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/sshd"
)

// site is a namespace full of hosts, and the manager at its production pace.
type site struct {
	b         *testing.B
	plane     *plane.Plane
	fleet     *sim.Fleet
	namespace string
	hosts     []*sim.Host
	manager   *plane.Manager
}

func newSite(b *testing.B, namespace string, n int) *site {
	b.Helper()
	needsPlane(b)
	// An API server of its own: one that holds the objects of an earlier site is slower for all that comes after it.
	own, err := plane.Start(b.Context(), namespace)
	if err != nil {
		b.Fatal(err)
	}
	s := &site{b: b, plane: own, fleet: newFleet(b, kube.Options{}, nil), namespace: namespace}
	if err := s.plane.Namespace(b.Context(), namespace); err != nil {
		b.Fatal(err)
	}
	if err := s.plane.Client.Create(b.Context(), credentials(s.fleet, namespace)); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		host, err := s.fleet.Add(fmt.Sprintf("%s-%d", namespace, i))
		if err != nil {
			b.Fatal(err)
		}
		s.hosts = append(s.hosts, host)
	}
	s.each(n, func(i int) error { return s.plane.Client.Create(b.Context(), quoinHost(s.hosts[i], namespace)) })
	return s
}

// each does n things, some at a time.
func (s *site) each(n int, do func(int) error) {
	s.b.Helper()
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				s.b.Error(err)
			}
		})
	}
	group.Wait()
}

func (s *site) start() {
	s.b.Helper()
	manager, err := s.plane.Run(context.Background(), plane.Options{Namespaces: []string{s.namespace}})
	if err != nil {
		s.b.Fatal(err)
	}
	s.manager = manager
}

func (s *site) stop() {
	if err := s.manager.Stop(); err != nil {
		s.b.Error(err)
	}
	s.fleet.Close()
	if err := s.plane.Stop(); err != nil {
		s.b.Error(err)
	}
}

// until waits until n hosts are in the state, and returns how long that took.
func (s *site) until(state infrav1.HostState, n int, patience time.Duration) time.Duration {
	s.b.Helper()
	begin := time.Now()
	for {
		hosts := &infrav1.QuoinHostList{}
		if err := s.plane.Client.List(s.b.Context(), hosts, client.InNamespace(s.namespace)); err != nil {
			s.b.Fatal(err)
		}
		states, found := map[infrav1.HostState]int{}, 0
		for i := range hosts.Items {
			states[hosts.Items[i].Status.State]++
			if hosts.Items[i].Status.State == state {
				found++
			}
		}
		if found >= n {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			s.b.Fatalf("only %d of %d hosts became %s in %s: %v", found, n, state, patience, states)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

func (s *site) addMachines(n int) {
	s.b.Helper()
	s.each(n, func(i int) error {
		return s.plane.AddMachine(s.b.Context(), plane.MachineOptions{
			Namespace: s.namespace, Name: fmt.Sprintf("m-%d", i), Version: version, Bootstrap: []byte(worker),
			Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}},
		})
	})
}

// BenchmarkHangingHosts provisions 450 hosts alone, and then beside 50 that were claimed and fell silent: connections
// stay open, are accepted, and say nothing. The ratio of the two times should be at most 1.1.
func BenchmarkHangingHosts(b *testing.B) {
	const healthy, hanging = 450, 50
	for range b.N {
		provision := func(namespace string, silent int) (time.Duration, float64) {
			s := newSite(b, namespace, healthy+silent)
			defer s.stop()
			s.start()
			s.until(infrav1.HostStateAvailable, healthy+silent, 15*time.Minute)
			for _, host := range s.hosts[healthy:] {
				host.Server.SetLine(sshd.Line{Hang: true})
			}
			begin, requests := time.Now(), s.manager.Requests()
			s.addMachines(healthy + silent)
			s.until(infrav1.HostStateProvisioned, healthy, 15*time.Minute)
			return time.Since(begin), float64(s.manager.Requests()-requests) / healthy
		}
		name := fmt.Sprint(time.Now().UnixNano() % 1e9)
		alone, each := provision("alone-"+name, 0)
		beside, _ := provision("beside-"+name, hanging)
		ratio := beside.Seconds() / alone.Seconds()
		b.Logf("%d hosts provisioned in %s with %.0f API requests each; beside %d hanging hosts in %s; ratio %.2f", healthy, alone.Round(time.Second), each, hanging, beside.Round(time.Second), ratio)
		b.ReportMetric(ratio, "ratio")
		b.ReportMetric(each, "requests/host")
	}
}

// BenchmarkIdleHosts registers 2,000 hosts, lets the leader change, and watches for a while what nothing costs.
func BenchmarkIdleHosts(b *testing.B) {
	const hosts, watched = 2000, time.Minute
	for range b.N {
		empty := heap()
		s := newSite(b, fmt.Sprintf("idle-%d", time.Now().UnixNano()%1e9), hosts)
		simulated := heap()
		s.start()
		registered := s.until(infrav1.HostStateAvailable, hosts, 30*time.Minute)
		if err := s.manager.Stop(); err != nil {
			b.Error(err)
		}
		connections := s.connections()
		s.start()
		cpu, requests := cpuTime(), s.manager.Requests()
		time.Sleep(watched)
		cpuUsed := cpuTime() - cpu
		perSecond := float64(s.manager.Requests()-requests) / watched.Seconds()
		connections = s.connections() - connections
		both := heap()
		b.Logf("%d hosts registered in %s; in the %s after a leader change: %.1f %% of one CPU (simulation included), %.1f API requests/s, %d SSH connections; heap per host: %.0f KiB simulated, %.0f KiB controllers and open connections",
			hosts, registered.Round(time.Second), watched, 100*cpuUsed.Seconds()/watched.Seconds(), perSecond, connections,
			float64(simulated-empty)/hosts/1024, float64(both-simulated)/hosts/1024)
		b.ReportMetric(100*cpuUsed.Seconds()/watched.Seconds(), "%cpu")
		b.ReportMetric(perSecond, "requests/s")
		b.ReportMetric(float64(connections), "connections")
		b.ReportMetric(float64(both-simulated)/hosts/1024, "KiB/host")
		s.stop()
	}
}

func (s *site) connections() int {
	n := 0
	for _, host := range s.hosts {
		n += host.Server.Accepted()
	}
	return n
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse) //nolint:gosec // below exabytes
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkMove moves namespaces of 50 and of 500 hosts and what belongs to them with clusterctl's own mover.
// It reads and writes one object after another, all while the Clusters are paused. Nobody reconciles: printed is what the mover
// and the two API servers need. "growth" is the time for one object among 500 hosts over that among 50, within one run.
func BenchmarkMove(b *testing.B) {
	needsPlane(b)
	from, to := onePlane(b, "bench-from"), onePlane(b, "bench-to")
	first := 0.0
	for _, hosts := range []int{50, 500} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			var pause time.Duration
			var objects, writes int
			for i := range b.N {
				namespace := fmt.Sprintf("move-%d-%d-%d", hosts, b.N, i)
				populate(b, from, namespace, hosts)
				var paused, resumed time.Time
				move := &plane.Move{From: from, To: to, Namespace: namespace, Before: func(_ int, what string) error {
					switch {
					case paused.IsZero() && what == "source patch Cluster c":
						paused = time.Now()
					case what == "target patch Cluster c":
						resumed = time.Now()
					}
					return nil
				}}
				if err := move.Run(b.Context()); err != nil {
					b.Fatal(err)
				}
				if paused.IsZero() || resumed.IsZero() {
					b.Fatalf("the pause was not seen: %v", move.Writes())
				}
				pause += resumed.Sub(paused)
				for _, what := range move.Writes() {
					writes++
					if strings.HasPrefix(what, "target create") {
						objects++
					}
				}
			}
			if objects/b.N < hosts {
				b.Fatalf("only %d objects were moved", objects/b.N)
			}
			each := pause.Seconds() / float64(objects)
			if first == 0 {
				first = each
			}
			b.ReportMetric(100*each, "s/100objects")
			b.ReportMetric(pause.Seconds()/float64(b.N), "s/pause")
			b.ReportMetric(float64(writes)/float64(objects), "writes/object")
			b.ReportMetric(each/first, "growth")
		})
	}
}

func onePlane(b *testing.B, name string) *plane.Plane {
	b.Helper()
	own, err := plane.Start(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = own.Stop() })
	return own
}

// populate makes a namespace of a Cluster and hosts that nobody will connect to.
func populate(b *testing.B, p *plane.Plane, namespace string, hosts int) {
	b.Helper()
	if err := p.Namespace(b.Context(), namespace); err != nil {
		b.Fatal(err)
	}
	cluster := &clusterv1.Cluster{}
	if err := p.Client.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster); err != nil {
		b.Fatal(err)
	}
	// clusterctl asks for it.
	conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	if err := p.Client.Status().Update(b.Context(), cluster); err != nil {
		b.Fatal(err)
	}
	create := func(o client.Object) {
		if err := p.Client.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ssh", Labels: map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}},
		Type:       corev1.SecretTypeSSHAuth, Data: map[string][]byte{corev1.SSHAuthPrivateKey: []byte("none")},
	})
	for i := range hosts {
		create(&infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("h-%d", i), Finalizers: []string{infrav1.HostFinalizer}},
			Spec:       infrav1.QuoinHostSpec{Address: fmt.Sprintf("192.0.2.%d", i%250+1), Port: int32(1000 + i), CredentialsRef: infrav1.SecretReference{Name: "ssh"}}, //nolint:gosec // a port
		})
	}
}
